"""`veilboost protocols` and `veilboost datasets`: what there is to choose from, and how each stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, make_table, print_json, status_text, stdout, tell, writing
from veilboost.errors import InvalidParameter, MissingShare, UnknownProtocol
from veilboost.privacy.statement import Noise, Statement

if TYPE_CHECKING:
    from veilboost.model.share import Skeleton
    from veilboost.protocols.spec import ProtocolSpec


def protocols(
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Only the protocol of this saved model or run, as far as it protects it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the protocols and whom they protect.

    For the active party's labels and features and the passive parties'
    features, or, where rows are in different hands, for the participants':
    [green]sound[/] is proved under named assumptions, [yellow]heuristic[/] has no known attack
    at the stated sizes, [bold red]broken[/] falls to an attack in the test suite,
    [bold red]open[/] claims no protection. Exact ones give the very model of plain.
    The decisive attack is the one that a status rests on: a test runs it.
    Noise, masks and keys always come from the operating system's generator. A model
    that was made otherwise is not protected by them, and --model shows it.

    Examples:

        [bold]veilboost protocols[/]

        [bold]veilboost protocols --model model --json[/]
    """
    from veilboost.protocols.registry import all_protocols

    specs = all_protocols()
    if model is None:
        found = [_describe(spec, Noise.SYSTEM) for spec in specs.values()]
    else:
        skeleton = _skeleton(model)
        if skeleton.protocol not in specs:
            raise UnknownProtocol(f"{model} is a model of {skeleton.protocol!r}, which is not installed")
        found = [_describe(specs[skeleton.protocol], skeleton.noise)]
    if as_json:
        print_json({"protocols": found})
        return
    table = make_table("name", "setting", "exact", "whose", "status", "decisive attack", "cost", numbers=("cost",))
    for entry in found:
        cost = "" if entry["cost"] is None else f"{entry['cost']:g}"
        head = f"[bold]{escape(entry['name'])}[/]", entry["setting"], "yes" if entry["exact"] else "no"
        for at, way in enumerate(entry["directions"]):
            table.add_row(
                *(head if at == 0 else ("", "", "")),
                escape(f"{way['victim']}: {way['subject']}"),
                status_text(way["status"]),
                escape(way["decisive_attack"] or "-"),
                cost if at == 0 else "",
            )
    console = stdout()
    console.print(table)
    console.print(
        "\ncost: seconds of a tree over those of plain; 5000 rows, twenty columns, two parties or five participants\n",
        soft_wrap=True,
    )
    for entry in found:
        about = f"{escape(entry['summary'])} ({escape(entry['source'])})"
        console.print(f"[bold]{escape(entry['name'])}[/]: {about}; noise: {escape(entry['noise'])}", soft_wrap=True)
        if entry["warning"] is not None:
            console.print(f"[bold red]not protected[/]: {escape(entry['warning'])}", soft_wrap=True)


def _skeleton(folder: Path) -> Skeleton:
    from veilboost.model.store import load_share, load_shares

    shares = [load_share(folder)] if (folder / "manifest.json").exists() else list(load_shares(folder).values())
    for share in shares:
        if share.skeleton is not None:
            return share.skeleton
    raise MissingShare(f"{folder} holds no share of an active party, which alone says how it was trained")


def _describe(spec: ProtocolSpec, noise: Noise) -> dict[str, Any]:
    statement = spec.statement.given(noise)
    drawn = "from the operating system's generator" if noise is Noise.SYSTEM else str(noise)
    return {
        "name": spec.name,
        "setting": spec.setting,
        "exact": spec.exact,
        "status": statement.status,
        "directions": directions_of(spec.name, statement),
        "protections": statement.to_list(),
        "noise": "none in the model" if spec.exact and noise is Noise.SYSTEM else drawn,
        "warning": noise.warning,
        "cost": spec.relative_cost,
        "summary": spec.summary,
        "source": spec.source,
    }


def directions_of(protocol: str, statement: Statement) -> list[dict[str, str | None]]:
    """For each victim and what it is about: the worst status, and the attack that this rests on, if one does."""
    from veilboost.audit.attacks import name_of
    from veilboost.protocols.registry import protocol_named

    attacks = {(each.victim, each.subject): name_of(each) for each in protocol_named(protocol).evidence}
    return [
        {
            "victim": victim,
            "subject": subject,
            "status": str(statement.worst_for(victim, subject)),
            "decisive_attack": attacks.get((victim, subject)),
        }
        for victim, subject in statement.directions
    ]


def datasets(
    name: Annotated[str | None, typer.Argument(help="The data set to write; leave it out to list all.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write parquet files to.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in data sets, or write one as parquet.

    The demo data set is three tables of one town: a bank, a shop and a telecom that
    share about half of their customers. The rest is what scikit-learn ships.

    Examples:

        [bold]veilboost datasets[/]

        [bold]veilboost datasets demo --out town[/]
    """
    if name is None:
        if out is not None:
            raise InvalidParameter("--out is given without a data set", "name one: veilboost datasets NAME --out DIR")
        _list(as_json)
        return
    if out is None:
        raise InvalidParameter(f"there is no folder to write {name} to", "give --out DIR")
    files = _write(name, out)
    told = {"name": name, "files": {key: str(path) for key, path in files.items()}}
    tell(told, as_json, *(f"wrote {escape(str(path))}" for path in files.values()))


def _list(as_json: bool) -> None:
    from veilboost.data.datasets import list_datasets

    found = list_datasets()
    if as_json:
        print_json({"datasets": [dataclasses.asdict(info) for info in found]})
        return
    table = make_table("name", "rows", "features", "task", "parties", "about", numbers=("rows", "features"))
    for info in found:
        counts, parties = (str(info.rows), str(info.features)), ", ".join(info.parties) or "-"
        table.add_row(f"[bold]{info.name}[/]", *counts, info.task, parties, escape(info.about))
    stdout().print(table)


def _write(name: str, folder: Path) -> dict[str, Path]:
    """One file for a single table, one per party for the demo data set."""
    from veilboost.data.columns import pyarrow
    from veilboost.data.datasets import load_dataset

    loaded = load_dataset(name)
    tables = loaded if isinstance(loaded, Mapping) else {name: loaded}
    files = {key: folder / f"{key}.parquet" for key in tables}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for key, table in tables.items():
            pyarrow("parquet").write_table(table, files[key])
    return files
