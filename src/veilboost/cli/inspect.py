"""`veilboost inspect` and `veilboost export`: show a saved model, and write it as a plain XGBoost file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, bar, indented, make_table, print_json, status_text, stdout, tell, writing

if TYPE_CHECKING:
    from rich.console import Console

    from veilboost.model.share import ModelShare, Skeleton

MANIFEST = "manifest.json"


def inspect(
    model: Annotated[Path, typer.Argument(help="A folder that --save wrote, or the folder of one party in it.")],
    kind: Annotated[
        str,
        typer.Option(
            "--importance", metavar="NAME", help="gain, total_gain, cover, total_cover or weight, as in XGBoost."
        ),
    ] = "gain",
    as_json: AsJson = False,
) -> None:
    """Show the content of a saved model.

    With the shares of all parties: a summary, and the importance of each party
    and column; columns whose owner does not share their names are numbered.
    With the share of one party: what that party knows about the model.

    Examples:

        [bold]veilboost inspect model[/]

        [bold]veilboost inspect model/bank --json[/]
    """
    from veilboost.model.store import load_model, load_share

    if (model / MANIFEST).exists():
        _show_share(load_share(model), as_json)
    else:
        _show_model(load_model(model), kind, as_json)


def _show_model(shares: Mapping[str, ModelShare], kind: str, as_json: bool) -> None:
    from veilboost.model.explain import describe, importance, importance_by_party
    from veilboost.model.joined import join

    joined = join(shares)
    columns, parties, about = importance(joined, kind), importance_by_party(joined, kind), describe(joined)
    if as_json:
        print_json(
            about
            | _protected(joined.skeleton)
            | {
                "importance": kind,
                "importance_by_party": dict(parties),
                "importance_by_column": [item._asdict() for item in columns],
                "nodes_by_tree": [tree.nodes for tree in joined.trees],
            }
        )
        return
    console = stdout()
    console.print(
        f"[bold]{about['objective']} model[/], trained by {escape(about['protocol'])}: {about['rounds']} rounds, "
        f"{about['trees']} trees, depth {about['depth']}, {about['leaves']} leaves"
    )
    if about["classes"] is not None:
        console.print(f"classes {escape(', '.join(about['classes']))}")
    _print_protected(console, joined.skeleton)
    table = make_table("party", "columns", "splits", kind, "", numbers=("columns", "splits", kind))
    for name, value in parties:
        count, splits = about["columns"][name], about["splits"][name]
        table.add_row(f"[bold]{escape(name)}[/]", str(count), str(splits), f"{value:.4f}", f"[cyan]{bar(value)}[/]")
    console.print()
    indented(console, table)
    table = make_table("column", "party", kind, "", numbers=(kind,))
    highest = max((item.value for item in columns), default=0.0) or 1.0
    for item in columns:
        share = f"[cyan]{bar(item.value / highest)}[/]"
        table.add_row(f"[bold]{escape(item.column)}[/]", escape(item.party), f"{item.value:.4f}", share)
    console.print()
    indented(console, table)
    console.print(f"\nmodel sha256 {about['sha256']}", soft_wrap=True)


def _protected(skeleton: Skeleton) -> dict[str, Any]:
    """The source of the noise in training, and the protection status that follows from it."""
    from veilboost.errors import UnknownProtocol
    from veilboost.protocols.registry import protocol_named

    found: dict[str, Any] = {"noise": str(skeleton.noise), "warning": skeleton.noise.warning}
    try:
        return found | {"status": protocol_named(skeleton.protocol).statement.given(skeleton.noise).status}
    except UnknownProtocol:  # from a package that is not installed
        return found | {"status": None}


def _print_protected(console: Console, skeleton: Skeleton) -> None:
    told = _protected(skeleton)
    if told["status"] is not None:
        console.print(", ".join(f"{victim}: {status_text(status)}" for victim, status in told["status"].items()))
    if told["warning"] is not None:
        console.print(f"[bold red]not protected[/]: {escape(told['warning'])}", soft_wrap=True)


def _show_share(share: ModelShare, as_json: bool) -> None:
    import numpy as np

    counts = np.bincount(share.records.feature, minlength=len(share.columns))
    names = [
        info.name if share.share_names else f"{share.party}#{number}"
        for number, info in enumerate(share.columns, start=1)
    ]
    skeleton = share.skeleton
    about: dict[str, Any] = {
        "party": share.party,
        "role": "passive" if skeleton is None else "active",
        "columns": len(share.columns),
        "splits": share.records.count,
        "trees": None if skeleton is None else len(skeleton.trees),
        "parties": None if skeleton is None else list(skeleton.parties),
        "splits_by_column": [{"column": name, "splits": int(n)} for name, n in zip(names, counts, strict=True)],
    } | ({} if skeleton is None else _protected(skeleton))
    if as_json:
        print_json(about)
        return
    console = stdout()
    console.print(
        f"[bold]The model share of {escape(share.party)}[/]: "
        f"{about['columns']} columns, {about['splits']} splits on them"
    )
    if skeleton is None:
        console.print("The active party holds the structure of the trees and the leaf weights.")
    else:
        console.print(
            f"It is the active party and holds the structure of {about['trees']} trees with "
            f"{escape(', '.join(skeleton.parties))}."
        )
        _print_protected(console, skeleton)
    table = make_table("column", "splits", numbers=("splits",))
    for entry in sorted(about["splits_by_column"], key=lambda entry: -entry["splits"]):
        table.add_row(f"[bold]{escape(entry['column'])}[/]", str(entry["splits"]))
    console.print()
    indented(console, table)


def export(
    model: Annotated[
        Path,
        typer.Argument(
            help="A folder that --save wrote, with the model shares of all parties, or the run folder of a horizontal "
            "job, which holds the full model."
        ),
    ],
    to: Annotated[Path, typer.Option(metavar="FILE", help="The XGBoost JSON file to write.")],
    as_json: AsJson = False,
) -> None:
    """Write a model as a plain XGBoost file.

    The file contains the columns, cuts and categories of all parties: export it
    only if all owners consent. XGBoost does not have to be installed.

    Examples:

        [bold]veilboost export model --to xgboost.json[/]

        [bold]python -c "import xgboost; xgboost.Booster(model_file='xgboost.json')"[/]
    """
    from veilboost.model.export import export_xgboost
    from veilboost.model.joined import join
    from veilboost.model.store import load_shares

    joined = join(load_shares(model))
    with writing(to):
        export_xgboost(joined, to)
    told = {"file": str(to), "trees": len(joined.trees), "model_sha256": joined.sha256()}
    tell(told, as_json, f"wrote {escape(str(to))}: {len(joined.trees)} trees")
