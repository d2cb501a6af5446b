"""How the demonstration ends: what it gave, what it cost, what each party saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from veilboost.align.preshared import align_by_id
from veilboost.boost.metrics import metric_named
from veilboost.boost.objective import make_objective
from veilboost.cli.baseline import active_only, central_xgboost
from veilboost.cli.console import bar, bytes_text, seconds_text
from veilboost.cli.demo_files import ACTIVE, JOB, NEW, TRAINING, party_file
from veilboost.cli.problem import Problem, labels
from veilboost.cli.saved import ON_TEST_ROWS, learning_curve
from veilboost.cli.verdict import EXPOSED
from veilboost.data.load import load_table
from veilboost.data.scenes import ID, LABEL
from veilboost.data.table import PartyTable
from veilboost.model.joined import join
from veilboost.party.exchange import read_exchanges, shown_to
from veilboost.party.federation import Federation, Trained
from veilboost.party.predicting import LivePredictor
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.protocols.registry import protocol_named
from veilboost.report.runs import facts_of_runs
from veilboost.types import Float64Array, PartyName

INDENT = (0, 0, 0, 2)
METRIC = "auc"


@dataclass(frozen=True)
class Results:
    """AUC on rows that nobody trained on, and what crossed. `central` is None where XGBoost is not installed."""

    protocol: str
    rows: int
    test_rows: int
    alone: float | None
    together: float
    central: float | None
    sha256: str
    sent: Mapping[PartyName, int]
    saw: Mapping[PartyName, Sequence[str]]
    runs: Mapping[PartyName, Path]
    curve: Sequence[tuple[float, float]]


def predict_new(folder: Path, federation: Federation) -> Float64Array:
    """What the parties say of the new customers, in the order of their file."""
    return LivePredictor(federation.party, federation.run).predict(_table(folder / NEW, ACTIVE)).scores


def measure(folder: Path, parties: Sequence[PartyName], scores: Float64Array) -> Results:
    """Only here are all files in one hand: this machine played every party."""
    runs = {name: load_party(party_file(folder, name)).runs / JOB for name in parties}
    parts = {name: RunFolder(run).load_part() for name, run in runs.items()}
    own = {name: _table(folder / f"{name}.parquet", name) for name in parties}
    new = _table(folder / NEW, ACTIVE)
    train, test = align_by_id(own), align_by_id({**own, ACTIVE: new})
    objective = make_objective(TRAINING.objective, classes=2)
    truth, metric = labels(test, ACTIVE), metric_named(METRIC)

    def score(prediction: Float64Array) -> float:
        return metric.function(truth, prediction, None)

    joined = join(parts)
    # Alone, the bank needs no alignment: it trains on all of its customers.
    alone = active_only(Problem(ACTIVE, {ACTIVE: own[ACTIVE]}, test, None), TRAINING, objective, 1)
    central = central_xgboost(Problem(ACTIVE, train, test, None), parts, TRAINING, objective, metric, 1)
    exchanges = {name: read_exchanges(run)[1] for name, run in runs.items()}
    sent = dict.fromkeys(parties, 0)
    for name, items in exchanges.items():
        for item in items:
            if item.receiver == name:
                sent[item.sender] += item.size
    return Results(
        protocol=joined.skeleton.protocol,
        rows=train[ACTIVE].rows,
        test_rows=test[ACTIVE].rows,
        alone=None if alone is None else score(alone),
        together=metric.function(labels({ACTIVE: new}, ACTIVE), scores, None),
        central=None if central is None else score(central.prediction),
        sha256=joined.sha256(),
        sent=sent,
        saw={name: shown_to(name, items) for name, items in exchanges.items()},
        runs=runs,
        curve=learning_curve(joined, test, ACTIVE, objective, metric),
    )


def save_result(folder: Path, results: Results) -> None:
    """What `veilboost report` makes a page of: the run folders of all parties, and what only this machine knows."""
    quality = {
        f"alone, {ACTIVE} only": results.alone,
        "together, three parties": results.together,
        "central XGBoost, all columns in one hand": results.central,
    }
    facts = facts_of_runs(list(results.runs.values()))
    replace(
        facts,
        title=f"A demonstration by {results.protocol}: three parties over mutual TLS",
        source="veilboost demo",
        settings=dict(facts.settings) | {"rows tested on": results.test_rows},
        quality={who: value for who, value in quality.items() if value is not None},
        curves={ON_TEST_ROWS: results.curve},
        note="This machine played every party, so the page knows what all of them know.",
    ).save(folder)


def print_screen(
    console: Console, folder: Path, stays: bool, done: Trained, results: Results, seconds: Mapping[str, float]
) -> None:
    console.rule()
    console.print(
        f"[bold]{escape(results.protocol)}[/]: {done.rounds} rounds on {results.rows} common customers, "
        f"tested on {results.test_rows} others\n"
    )
    console.print("[bold]AUC[/] (higher is better)")
    _quality(console, results)
    console.print("\n[bold]Seconds[/]")
    listed = ", ".join(f"{name} {seconds_text(value)}" for name, value in seconds.items())
    console.print(Padding(f"{listed}; {seconds_text(sum(seconds.values()))} in all", INDENT))
    console.print("\n[bold]Bytes sent[/]")
    listed = ", ".join(f"{escape(name)} {bytes_text(size)}" for name, size in results.sent.items())
    console.print(Padding(listed, INDENT))
    console.print("\n[bold]What each party saw[/]")
    _saw(console, results)
    console.print("\n[bold]Files[/]")
    if stays:
        console.print(
            Padding(f"settings, tables, certificates and logs: {escape(str(folder))}", INDENT), soft_wrap=True
        )
        for name, run in results.runs.items():
            console.print(
                f"  what {escape(name)} has of the model, and its transcript: {escape(str(run))}", soft_wrap=True
            )
        own = escape(str(results.runs[ACTIVE]))
        console.print(f"  look closer: veilboost transcript {own}", soft_wrap=True)
        console.print(f"  all of it as a page: veilboost report {escape(str(folder))}", soft_wrap=True)
    else:
        console.print("  removed; with --keep or --folder DIR they stay")
    console.print(f"\nmodel sha256 {results.sha256}\nnothing is left running", soft_wrap=True)


def _quality(console: Console, results: Results) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows = (
        (f"alone, {ACTIVE} only", results.alone),
        ("[bold]together, three parties[/]", results.together),
        ("central XGBoost, all columns in one hand", results.central),
    )
    for title, value in rows:
        if value is not None:
            table.add_row(title, f"{value:.4f}", f"[cyan]{bar(2 * value - 1)}[/]")
    console.print(Padding(table, INDENT))
    if results.central is None:
        console.print("  central XGBoost was left out: pip install 'veilboost\\[compare]'")


def _saw(console: Console, results: Results) -> None:
    """Parties that saw the same are named together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, things in results.saw.items():
        groups.setdefault(tuple(things), []).append(name)
    for things, names in groups.items():
        console.print(f"  [bold]{escape(', '.join(names))}[/]")
        for thing in things or ("nothing",):
            console.print(Padding(f"- {escape(thing)}", (0, 0, 0, 4)))
    statement = protocol_named(results.protocol).statement
    exposed = [item for item in statement.protections if item.status in EXPOSED]
    if exposed:
        whose = " and ".join(f"the {item.victim} side's {item.data}" for item in exposed)
        console.print(
            Padding(f"[bold red]{escape(results.protocol)} does not protect {escape(whose)}[/] from the others", INDENT)
        )


def _table(file: Path, party: PartyName) -> PartyTable:
    return load_table(file, id=ID, label=LABEL if party == ACTIVE else None)
