"""Both accountings of a party's releases, for a person to read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from veilboost.cli.console import make_table

INDENT = (0, 0, 0, 2)


def epsilon_text(epsilon: float | None) -> str:
    return "[bold red]infinite[/]" if epsilon is None or math.isinf(epsilon) else f"{epsilon:.4g}"


def print_spending(console: Console, told: Mapping[str, Any]) -> None:
    """What `privacy.spending` made: the paper's claims per release, then what was composed."""
    if told["paper"]:
        console.print("\n[bold]By the paper's formula, each release by itself[/]\n")
        numbers = ("releases", "epsilon each", "delta each")
        table = make_table("what", "hides a change of", "from", *numbers, numbers=numbers)
        for row in told["paper"]:
            table.add_row(
                escape(row["what"]),
                row["adjacency"],
                escape(row["adversary"]),
                str(row["releases"]),
                epsilon_text(row["epsilon_per_release"]),
                f"{row['delta_per_release']:.3g}",
            )
        console.print(Padding(table, INDENT))
    console.print(f"\n[bold]Composed over all releases[/], at delta {told['delta']:g}\n")
    if not told["composed"]:
        console.print("  nothing was released with noise, and nothing was booked")
        return
    numbers = ("releases", "epsilon", "PLD", "Renyi", "advanced", "basic")
    table = make_table("hides a change of", "from", *numbers, numbers=numbers)
    for row in told["composed"]:
        ways = (epsilon_text(row[way]) for way in ("epsilon", "pld", "renyi", "advanced", "basic"))
        table.add_row(row["adjacency"], escape(row["adversary"]), str(row["releases"] + row["exact_releases"]), *ways)
    console.print(Padding(table, INDENT))
    for row in told["composed"]:
        if row["exact_releases"]:
            console.print(
                f"  without noise, to {escape(row['adversary'])}: {escape('; '.join(row['exact']))}; "
                f"the rest alone would cost {epsilon_text(row['epsilon_of_noised'])}",
                soft_wrap=True,
            )
