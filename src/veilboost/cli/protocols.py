"""`veilboost protocols`: what there is to choose from, and how each stands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import make_table, print_json, status_text, stdout


def protocols(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """List the protocols and whom they protect.

    For the active party's labels and features and the passive parties'
    features, or, where rows are in different hands, for the participants':
    [green]sound[/] is proved under named assumptions, [yellow]heuristic[/] has no known attack
    at the stated sizes, [bold red]broken[/] falls to an attack in the test suite,
    [bold red]open[/] claims no protection. Exact ones give the very model of plain.
    The decisive attack is the one that a status rests on: a test runs it.

    Examples:

        [bold]veilboost protocols[/]

        [bold]veilboost protocols --json[/]
    """
    from veilboost.protocols.horizontal_registry import horizontal_protocols
    from veilboost.protocols.registry import all_protocols

    found = [_describe(spec) for spec in (*all_protocols().values(), *horizontal_protocols().values())]
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
        console.print(f"[bold]{escape(entry['name'])}[/]: {about}", soft_wrap=True)


def _describe(spec: Any) -> dict[str, Any]:
    from veilboost.audit.verdicts import COST
    from veilboost.cli.verdict import directions_of, protections_of, status_of

    return {
        "name": spec.name,
        "setting": spec.setting,
        "exact": spec.exact,
        "status": status_of(spec.statement),
        "directions": directions_of(spec.name, spec.statement),
        "protections": protections_of(spec.statement),
        "cost": COST.get(spec.name),
        "summary": spec.summary,
        "source": spec.source,
    }
