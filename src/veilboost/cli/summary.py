"""The summary of a run for the terminal: quality, time, bytes, what each party learned, and privacy budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from veilboost.cli.console import bar, bytes_text, epsilon_text, indented, make_table, seconds_text, status_text
from veilboost.report.values import alike

if TYPE_CHECKING:
    from veilboost.experiment.summary import RunSummary

_NAMED = 6  # the number of parties that are listed by name
_ROLES = {"active": "active (holds the label)"}


def print_summary(console: Console, done: RunSummary, saved: Path | None) -> None:
    console.print(
        f"[bold]{escape(done.spec.name)}[/]: {escape(done.spec.summary)}\n"
        f"{done.model.skeleton.objective}, {done.trees} rounds of depth {done.config.max_depth}, "
        f"trained on {done.rows_train} rows, tested on {done.rows_test}\n"
    )
    _members(console, done)
    print_quality(console, done)
    _cost(console, done)
    console.print("\n[bold]What each party learned in training[/]")
    print_learned(console, done.learned)
    for names, told in _alike(done.privacy):
        if told["composed"]:
            console.print(f"\n[bold]Privacy budget spent by {'each of ' if ', ' in names else ''}{names}[/]")
            print_spending(console, told)
    _verdict(console, done)
    if saved is not None:
        console.print("\n[bold]Files[/]")
        console.print(f"  model shares, one folder per party: {escape(str(saved))}", soft_wrap=True)
        console.print(f"  show the model: veilboost inspect {escape(str(saved))}", soft_wrap=True)


def _members(console: Console, done: RunSummary) -> None:
    table = make_table("party", "role", "columns", "rows", "sent", numbers=("columns", "rows", "sent"))
    shown = list(done.owners)[:_NAMED]
    for name, member in done.members.items():
        if name in shown or name not in done.owners:
            counts = (str(member.columns), str(member.rows)) if name in done.owners else ("", "")
            role = _ROLES.get(member.role, member.role)
            table.add_row(f"[bold]{escape(name)}[/]", role, *counts, bytes_text(done.bytes_sent[name]))
    indented(console, table)
    if len(done.owners) > _NAMED:
        console.print(f"  and {len(done.owners) - _NAMED} more parties")


def print_quality(console: Console, done: RunSummary) -> None:
    info = done.metric.info
    console.print(f"\n[bold]{done.metric.name} on the test rows[/] ({info.direction})")
    start = info.chance
    end = 1.0 if start else max(done.quality.values())
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for title, value in done.quality.items():
        share = (value - start) / (end - start) if end > start else 0.0
        style = "bold" if title.startswith("together") else "none"
        table.add_row(f"[{style}]{escape(title)}[/]", f"{value:.4f}", f"[cyan]{bar(share)}[/]")
    indented(console, table)
    if done.baselines and done.config.sampling == "goss":
        console.print("  no comparison with central XGBoost: it supports goss on a GPU only")
    elif done.baselines and done.central is None:
        console.print("  to compare with central XGBoost: pip install 'veilboost\\[compare]'")


def _cost(console: Console, done: RunSummary) -> None:
    against = "" if done.xgboost is None else f" (central XGBoost {seconds_text(done.xgboost.seconds_per_tree)})"
    console.print("\n[bold]Cost[/]")
    console.print(
        f"  {seconds_text(done.seconds_per_tree)} per tree{against}, {seconds_text(done.fit_seconds)} in total, "
        f"{seconds_text(done.train_seconds)} of it training, {done.threads} threads\n"
        f"  {bytes_text(sum(done.bytes_sent.values()))} in {done.messages} messages, "
        f"{done.rounds} round trips\n"
        f"  peak memory {done.peak_rss_mb:.0f} MB"
    )


def print_learned(console: Console, learned: Mapping[str, Sequence[str]]) -> None:
    for names, things in _alike(learned):
        console.print(f"  [bold]{names}[/]")
        for thing in things or ("nothing",):
            indented(console, f"- {escape(thing)}", by=4)


def _alike(told: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Group parties with the same value."""
    for names, value in alike(told):
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield escape(", ".join(names[:_NAMED]) + more), value


def _verdict(console: Console, done: RunSummary) -> None:
    console.print("\n[bold]Verdict[/]")
    for item in done.statement.protections:
        indented(
            console,
            f"{status_text(item.status)}: {escape(item.data)} of the {escape(item.victim)} party "
            f"against {escape(item.adversary)}: {escape(item.why)}",
        )
    print_unprotected(
        console, done, ": acceptable in a simulation, not between organisations that may not share these data."
    )
    if done.exposed_rows:
        console.print(f"  [bold red]{done.exposed_rows} labels[/] were sent although their masks hide them too little")
    for name, why in done.dropped.items():
        console.print(f"  {escape(name)} dropped out: {escape(why)}", soft_wrap=True)
    console.print(f"\nmodel sha256 {done.model.sha256()}", soft_wrap=True)


def print_unprotected(console: Console, done: RunSummary, rest: str) -> None:
    """Print what the protocol does not protect, if anything."""
    whose = " and ".join(f"the {item.victim} party's {item.data}" for item in done.statement.unprotected)
    if whose:
        indented(console, f"[bold red]{escape(done.spec.name)} does not protect {escape(whose)}[/]{rest}")


def print_spending(console: Console, told: Mapping[str, Any]) -> None:
    """Print the result of `privacy.spending`: the paper's claims per release, then the composed cost."""
    if told["paper"]:
        console.print("\n[bold]Claim of the paper, for each release separately[/]\n")
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
        indented(console, table)
    console.print(f"\n[bold]Composed over all releases[/], at delta {told['delta']:g}\n")
    if not told["composed"]:
        console.print("  no release with noise, and no entry in the ledger")
        return
    numbers = ("releases", "epsilon", "PLD", "Renyi", "advanced", "basic")
    table = make_table("hides a change of", "from", *numbers, numbers=numbers)
    for row in told["composed"]:
        ways = (epsilon_text(row[way]) for way in ("epsilon", "pld", "renyi", "advanced", "basic"))
        table.add_row(row["adjacency"], escape(row["adversary"]), str(row["releases"] + row["exact_releases"]), *ways)
    indented(console, table)
    for row in told["composed"]:
        if row["exact_releases"]:
            console.print(
                f"  without noise, to {escape(row['adversary'])}: {escape('; '.join(row['exact']))}; "
                + (f"{row['assignments']} left/right assignments of each row; " if row["assignments"] else "")
                + f"the rest alone would cost {epsilon_text(row['epsilon_of_noised'])}",
                soft_wrap=True,
            )
