"""Table 3: what MAL costs beside XGBoost of depth 1, on the paper's network."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from papers.fingerprint import small_run
from papers.mal.setting import PAPER, PARTICIPANTS, SETS, deal, job, split
from papers.rows import Line, Row, Rows, by, picked, the
from papers.rules import Rule
from papers.target import EXACT, PAPER_NAMES, SECONDS, Cell, Claim, Context, Near, Target
from veilboost.boost.booster import RoundResult
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import Simulation, simulate_training
from veilboost.report.plots import bar_chart
from veilboost.types import PartyName
from veilboost.wire.transcript import Entry, Network

LINE = Network.parse("20mbit,100ms")  # section 4.2
TREES, BUCKETS, EPSILON = 500, 18, 4.0  # not stated for this table
MAL, CENTRAL = "MAL", "XGBoost, depth 1"
SERVER = "server"
_PRINTED = (
    ("susy40k", 3853.565, 5674.162, 1087.863, 3815.308, 1.547, 904.192, 200.634, 570.357),
    ("diabetes", 28.996, 602.684, 173.75, 26.976, 0.687, 4.096, 200.281, 201.677),
    ("codrna", 1855.945, 2597.845, 237.895, 1863.618, 0.692, 234.496, 200.283, 296.049),
)
_FIELDS = ("xgboost_ms", "mal_ms", "prep_ms", "train_ms", "prep_kb", "train_kb", "prep_latency_ms", "train_latency_ms")
PUBLISHED: tuple[Row, ...] = tuple(
    {"data": data, **dict(zip(_FIELDS, figures, strict=True))} for data, *figures in _PRINTED
)


def timed_run(
    tables: dict[PartyName, PartyTable], protocol: str, config: TrainingConfig
) -> tuple[Simulation, float, float]:
    """A run, its CPU seconds in all, and those of its trees, of all parties together on one thread."""
    stamps: list[float] = []

    def watch(_: RoundResult) -> None:
        stamps.append(time.process_time())

    began = time.process_time()
    run = simulate_training(tables, SERVER, protocol, config, watcher=watch)
    whole = time.process_time() - began
    each = (stamps[-1] - stamps[0]) / max(len(stamps) - 1, 1)
    return run, whole, each * len(stamps)


def prepared_and_trained(run: Simulation) -> tuple[list[Entry], list[Entry]]:
    """What one participant sends and gets: with helpers before training (extremes, keys), and with the server."""
    entries = run.transcripts["p0"].entries
    return [e for e in entries if e.peer != SERVER], [e for e in entries if e.peer == SERVER]


def xgboost_seconds(table: PartyTable, trees: int, bins: int) -> float:
    """CPU seconds of XGBoost's own stumps on all rows, one thread, bins included."""
    xgboost: Any = importlib.import_module("xgboost")
    values = np.stack([np.asarray(column.values, dtype=np.float32) for column in table.columns], axis=1)
    settings = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 1, "max_bin": bins, "nthread": 1}
    began = time.process_time()
    data = xgboost.QuantileDMatrix(values, table.label, max_bin=bins, nthread=1)
    xgboost.train(settings, data, trees)
    return time.process_time() - began


def _measured(context: Context, name: str, method: str, seed: int) -> Row:
    train, _ = split(context, name, seed)
    if method == CENTRAL:
        xgboost_seconds(train, 2, BUCKETS)  # loads what is loaded when it is first used
        return {"total_ms": 1000 * xgboost_seconds(train, TREES, BUCKETS)}
    parts = deal(train, PARTICIPANTS, seed)
    timed_run(parts, "mal", job(2, BUCKETS, EPSILON))
    run, whole, trees = timed_run(parts, "mal", job(TREES, BUCKETS, EPSILON))
    before, during = prepared_and_trained(run)
    latency = [1000 * LINE.replay(entries) for entries in (before, during)]
    return {
        "prep_ms": 1000 * (whole - trees),
        "train_ms": 1000 * trees,
        "prep_kb": sum(entry.size for entry in before) / 1e3,
        "train_kb": sum(entry.size for entry in during) / 1e3,
        "prep_latency_ms": latency[0],
        "train_latency_ms": latency[1],
        "total_ms": 1000 * whole + sum(latency),
        "messages": run.messages,
    }


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    methods = [MAL, CENTRAL] if importlib.util.find_spec("xgboost") else [MAL]
    return [
        Cell(
            {"data": name, "method": method, "seed": seed},
            partial(_measured, context, name, method, seed),
            small_run("mal", job(TREES, BUCKETS, EPSILON), horizontal=True) if method == MAL else _rounds,
            2.0,
        )
        for name in sets
        for method in methods
        for seed in range(1)
    ]


def _rounds() -> list[int]:
    """XGBoost is not ours: what it grows depends on its settings alone."""
    return [TREES, BUCKETS]


def table(lines: list[Line]) -> Rows:
    for line in lines:
        printed = ("mal_ms", *_FIELDS[2:]) if line["method"] == MAL else ("xgboost_ms",)
        line |= {f"paper_{name}": the(PUBLISHED, name, data=line["data"]) for name in printed}
    return [*picked(lines, method=MAL), *picked(lines, method=CENTRAL)]


MOST = 1.5  # as in the paper: 1.47 on SUSY, 1.40 on Cod-rna


def _amounts(rows: Rows) -> list[float]:
    found: list[float] = []
    for data, own in by(rows, "data"):
        central = the(own, "total_ms", method=CENTRAL)
        if central is not None and data != "diabetes":  # where nothing is to be computed
            ours = picked(own, method=MAL)[0]
            found.append(MOST - (ours["prep_ms"] + ours["train_ms"]) / central)
    return found


RULE = Rule(
    f"Cases: SUSY and Cod-rna. The processor time of all parties of MAL must be at most {MOST:g} times XGBoost's in "
    "the same run.",
    0.25,
    _amounts,
)


def claim(rows: Rows) -> Claim:
    listed: list[str] = []
    for data, own in by(rows, "data"):
        ours, central = picked(own, method=MAL)[0], the(own, "total_ms", method=CENTRAL)
        computed = ours["prep_ms"] + ours["train_ms"]
        text = (
            f"{PAPER_NAMES[data]}: {computed:.0f} ms computed ({ours['prep_ms']:.0f} + {ours['train_ms']:.0f}), "
            f"{ours['prep_latency_ms'] + ours['train_latency_ms']:.0f} ms in transit, {ours['prep_kb']:.0f} + "
            f"{ours['train_kb']:.0f} kB of one participant"
        )
        if central is not None:
            text += f", XGBoost {central:.0f} ms"
        listed.append(text)
    return Claim(
        "MAL's total time is close to XGBoost's: 5674 against 3854 ms on SUSY, 2598 against 1856 on Cod-rna, 603 "
        "against 29 on Diabetes, of which 402 to 771 ms are the network's",
        "; ".join(listed),
        "CPU milliseconds of all ten participants, comparer and server together, on one thread; the network is the "
        "paper's, computed from each participant's messages. Trees and buckets of this table are not stated (here 500"
        " and 18). The paper's 44 bytes for each extreme fit no ciphertext of its own scheme; ours have 596.",
    )


def plot(rows: Rows, label: str) -> str:
    bars: dict[str, dict[str, float]] = {}
    for row in rows:
        group = bars.setdefault(PAPER_NAMES[row["data"]], {})
        group[row["method"]] = row["total_ms"]
        group[f"{row['method']}, published"] = row["paper_mal_ms" if row["method"] == MAL else "paper_xgboost_ms"]
    return bar_chart(f"{label}: time with network", "milliseconds (logarithmic)", bars, log=True)


REPEATS = {"total_ms": SECONDS, "messages": EXACT, "train_kb": Near(0.0, 0.02)}
TABLE_3 = Target(
    PAPER, "table-3", "time and traffic beside XGBoost", SETS, PUBLISHED, cells, table, RULE, claim, plot, REPEATS
)
