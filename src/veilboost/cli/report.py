"""What a person reads after a simulation: how good, how fast, how many bytes, and who learned what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from veilboost.cli.console import bar, bytes_text, make_table, seconds_text, status_text, stdout
from veilboost.cli.experiment import Experiment, bytes_by_party, spent_by_party
from veilboost.cli.spending import print_spending
from veilboost.cli.verdict import EXPOSED, learned_by

INDENT = (0, 0, 0, 2)
_CHANCE = {"auc": 0.5}  # what guessing gives; bars start there


def print_report(done: Experiment, baselines: bool, saved: Path | None) -> None:
    console = stdout()
    _heading(console, done)
    _quality(console, done, baselines)
    _cost(console, done)
    _learned(console, done)
    _spent(console, done)
    _verdict(console, done)
    if saved is not None:
        console.print("\n[bold]Files[/]")
        console.print(f"  model parts, one folder per party: {escape(str(saved))}", soft_wrap=True)
        console.print(f"  look inside: veilboost inspect {escape(str(saved))}", soft_wrap=True)


def _heading(console: Console, done: Experiment) -> None:
    problem = done.problem
    train, test = problem.train[problem.active].rows, problem.test[problem.active].rows
    rounds = len(done.skeleton.trees) // done.skeleton.trees_per_round
    console.print(
        f"[bold]{escape(done.spec.name)}[/]: {escape(done.spec.summary)}\n"
        f"{done.skeleton.objective}, {rounds} rounds of depth {done.config.max_depth}, "
        f"trained on {train} rows, tested on {test}\n"
    )
    table = make_table("party", "role", "columns", "sent", numbers=("columns", "sent"))
    sent = bytes_by_party(done.run)
    for name, own in problem.train.items():
        role = "active (holds the label)" if name == problem.active else "passive"
        table.add_row(f"[bold]{escape(name)}[/]", role, str(len(own.columns)), bytes_text(sent[name]))
    _indented(console, table)


def _quality(console: Console, done: Experiment, baselines: bool) -> None:
    name, better = done.metric.name, "higher" if done.metric.higher_is_better else "lower"
    console.print(f"\n[bold]{name} on the test rows[/] ({better} is better)")
    rows: list[tuple[str, float]] = []
    if done.alone is not None:
        rows.append((f"alone, {escape(done.problem.active)} only", done.alone))
    rows.append((f"[bold]together, {len(done.problem.train)} parties[/]", done.together))
    if done.central is not None:
        rows.append(("central XGBoost, all columns in one hand", done.central))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for (title, value), share in zip(rows, _shares(name, [value for _, value in rows]), strict=True):
        table.add_row(title, f"{value:.4f}", f"[cyan]{bar(share)}[/]")
    _indented(console, table)
    if baselines and done.config.sampling == "goss":
        console.print("  no comparison with central XGBoost: it samples by gradient on a GPU only")
    elif baselines and done.central is None:
        console.print("  compare with central XGBoost: pip install 'veilboost\\[compare]'")


def _shares(name: str, values: Sequence[float]) -> list[float]:
    start = _CHANCE.get(name, 0.0)
    end = 1.0 if name in _CHANCE else max(values)
    return [(value - start) / (end - start) if end > start else 0.0 for value in values]


def _cost(console: Console, done: Experiment) -> None:
    run, central = done.run, done.xgboost
    against = "" if central is None else f" (central XGBoost {seconds_text(central.seconds_per_tree)})"
    console.print("\n[bold]Cost[/]")
    console.print(
        f"  {seconds_text(done.seconds_per_tree)} per tree{against}, {seconds_text(done.fit_seconds)} in all, "
        f"{done.threads} threads\n"
        f"  {bytes_text(run.bytes_sent)} in {run.messages} messages, {run.rounds} rounds of waiting for an answer\n"
        f"  peak memory {done.peak_rss_mb:.0f} MB"
    )


def _learned(console: Console, done: Experiment) -> None:
    """Parties that learned the same are named together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, things in learned_by(done.run.transcripts, done.spec.messages).items():
        groups.setdefault(tuple(things), []).append(name)
    console.print("\n[bold]What each party was shown in training[/]")
    for things, names in groups.items():
        console.print(f"  [bold]{escape(', '.join(names))}[/]")
        for thing in things or ("nothing",):
            console.print(Padding(f"- {escape(thing)}", (0, 0, 0, 4)))


def _spent(console: Console, done: Experiment) -> None:
    for name, told in spent_by_party(done).items():
        if told["composed"]:
            console.print(f"\n[bold]What {escape(name)} spent of its privacy[/]")
            print_spending(console, told)


def _verdict(console: Console, done: Experiment) -> None:
    console.print("\n[bold]Verdict[/]")
    protections = done.statement.protections
    for item in protections:
        console.print(
            Padding(
                f"{status_text(item.status)}: {escape(item.data)} of the {escape(item.victim)} side "
                f"against {escape(item.adversary)}: {escape(item.why)}",
                INDENT,
            )
        )
    exposed = [item for item in protections if item.status in EXPOSED]
    if exposed:
        whose = " and ".join(f"the {item.victim} side's {item.data}" for item in exposed)
        console.print(
            Padding(
                f"[bold red]{escape(done.spec.name)} does not protect {escape(whose)}[/]: "
                "right for a simulation, wrong between organisations that may not share them.",
                INDENT,
            )
        )
    console.print(f"\nmodel sha256 {done.model_sha256}", soft_wrap=True)


def _indented(console: Console, table: Table) -> None:
    console.print(Padding(table, INDENT))
