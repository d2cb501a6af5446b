"""`veilboost data check`: everything that is wrong or unusual in a table, in one report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, print_json, stdout
from veilboost.errors import UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.data import TableReport

data = command_group()
UNUSABLE = 1


@data.callback()
def group() -> None:
    """Check the tables of a party."""


@data.command()
def check(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A table: a parquet, csv, arrow or libsvm file, or a folder of parquet."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings of a party: checks the table of its \\[data] section.")
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Record-id column.")] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Label column.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sample-weight column.")] = None,
    features: Annotated[
        list[str] | None,
        typer.Option("--feature", metavar="COLUMN", help="Feature column. Repeatable. Default: all other columns."),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Numeric column that holds categories; text columns always do. Repeatable."
        ),
    ] = None,
    missing_values: Annotated[
        list[str] | None,
        typer.Option(
            "--missing-value", metavar="VALUE", help="A value that stands for a missing one, such as -999. Repeatable."
        ),
    ] = None,
    format: Annotated[
        str | None, typer.Option(metavar="NAME", help="Format of FILE; unset: by its file extension.")
    ] = None,
    constant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Constant and empty columns: error, drop or keep.", show_default="error"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report everything that is wrong or unusual in a table.

    Errors are what training refuses. Warnings and notes are what training
    accepts in its own way: dates become days, and only the frequent values of a
    column with very many values are used. The report names columns and counts
    rows; it never shows a value. Nothing is sent. The exit code is 0 if training
    accepts the table, otherwise 1.

    Examples:

        [bold]veilboost data check shop.csv --id customer_id[/]

        [bold]veilboost data check --config bank.toml --json[/]
    """
    from veilboost.data import SchemaRules, check_table
    from veilboost.party.settings import load_party

    roles: dict[str, Any] = {"id": id, "label": label, "weight": weight, "features": features, "format": format}
    lists: dict[str, Any] = {"categorical": categorical or (), "missing_values": missing_values or ()}
    if (file is None) == (config is None):
        raise UnsupportedCombination("data check needs either a file or --config", "give one of them")
    if config is None:
        rules = SchemaRules() if constant is None else SchemaRules(constant=cast(Any, constant))
        report = check_table(file, **roles, **lists, rules=rules)
    elif any((*roles.values(), *lists.values(), constant)):
        raise UnsupportedCombination("--config names the columns under [data]", "leave out the options for columns")
    else:
        report = load_party(config).own_data.check()
    if as_json:
        print_json(report.to_dict())
    else:
        _print(report)
    if report.errors:
        raise typer.Exit(UNUSABLE)


def _print(report: TableReport) -> None:
    from veilboost.data.schema import count

    console = stdout()
    for error in report.errors:
        console.print(f"[bold red]error[/]    {escape(str(error))}", soft_wrap=True)
    for note in report.notes:
        style = "yellow" if note.level == "warning" else "dim"
        console.print(f"[{style}]{note.level:<8}[/] {escape(str(note))}", soft_wrap=True)
    if report.table is None:
        console.print("training refuses this table")
        return
    task = "" if report.objective is None else f", labels for {report.objective}"
    console.print(
        f"{count(report.rows, 'row')}, {count(len(report.table.columns), 'feature')}{task}: training accepts this table"
    )
