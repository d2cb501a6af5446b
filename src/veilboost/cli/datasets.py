"""`veilboost datasets`: tables that are there without a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, make_table, print_json, stdout, tell, writing
from veilboost.errors import ImpossibleParameter


def datasets(
    name: Annotated[str | None, typer.Argument(help="The data set to write; leave it out to list all.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder to write parquet files to.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in data sets, or write one as parquet.

    The scene is three tables of one town: a bank, a shop and a telecom that
    share about half of their customers. The rest is what scikit-learn ships.

    Examples:

        [bold]veilboost datasets[/]

        [bold]veilboost datasets scene --out town[/]
    """
    if name is None:
        if out is not None:
            raise ImpossibleParameter(
                "--out is given without a data set", "name one: veilboost datasets NAME --out DIR"
            )
        _list(as_json)
        return
    if out is None:
        raise ImpossibleParameter(f"there is no folder to write {name} to", "give --out DIR")
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
    """One file for a single table, one per party for a scene."""
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
