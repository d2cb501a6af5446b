"""`veilboost protocols` and `veilboost datasets`: list the protocols with their status, and the built-in data sets."""

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
        typer.Option(
            metavar="DIR", help="Show only the protocol of this saved model or run, and its status for this model."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the protocols and what each of them protects.

    The status is given for the labels and features of the active party, the
    features of the passive parties, and the data of the participants of
    horizontal protocols: [green]sound[/]: proved under stated assumptions; [yellow]heuristic[/]: no
    known attack at the stated sizes; [bold red]broken[/]: an attack in the test suite
    succeeds; [bold red]unprotected[/]: no protection is claimed. An exact protocol gives the
    same model as plain, bit for bit. The decisive attack is the evidence for a
    status; a test runs it. Noise, masks and keys always come from the operating
    system's random generator. A model whose noise came from another source is
    not protected by it, and --model reports this.

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
            raise UnknownProtocol(
                f"{model} was trained with the protocol {skeleton.protocol!r}, which is not installed",
                "install the package that provides it",
            )
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
        "\ncost: time per tree relative to plain; 5000 rows, twenty columns, two parties or five participants\n",
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
    raise MissingShare(
        f"{folder} has no model share of the active party, which records the protocol",
        "give the folder of the active party, or one with the shares of all parties",
    )


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
    """For each victim and subject: the worst status, and the attack that is the evidence for it, if there is one."""
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
    name: Annotated[str | None, typer.Argument(help="The data set to write. Without a name, all are listed.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the parquet files.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in data sets, or write one as parquet.

    The demo data set has three tables of one town: a bank, a shop and a telecom
    that share about half of their customers. The other data sets come from
    scikit-learn.

    Examples:

        [bold]veilboost datasets[/]

        [bold]veilboost datasets demo --out town[/]
    """
    if name is None:
        if out is not None:
            raise InvalidParameter("--out is given without a data set", "run veilboost datasets NAME --out DIR")
        _list(as_json)
        return
    if out is None:
        raise InvalidParameter(f"no folder is given for {name}", "add --out DIR")
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
