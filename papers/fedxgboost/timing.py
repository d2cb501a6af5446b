"""Tables 1 and 2: training time of plain XGBoost, Paillier encryption and FedXGBoost-LDP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from papers.context import Context
from papers.expected import START, training_seconds
from papers.fedxgboost.setting import CONFIG, CREDIT_1, CREDIT_2, PAPER, PLAIN, TREES, ldp, paillier
from papers.measure import cost_apart
from papers.noise import Method
from papers.summary import over_seeds, picked, the
from papers.tables import among
from papers.target import Cell, Claim, Row, Target
from veilboost.report.plots import bar_chart

SHORT, LONG = 512, 2048
_ROWS: tuple[tuple[Method, float, float], ...] = (  # seconds of Table 1 and of Table 2
    (PLAIN, 260, 69),
    (paillier(SHORT), 1560, 354),
    (ldp("laplace", 1.0, "second"), 270, 82),
    (ldp("duchi", 1.0, "second"), 240, 71),
    (ldp("duchi", 1.0, "first"), 212, 67),
    (ldp("laplace", 3.0, "second"), 270, 76),
    (ldp("duchi", 3.0, "second"), 235, 73),
    (ldp("duchi", 3.0, "first"), 204, 70),
)
_VALUES = ("seconds_per_tree", "cpu_seconds_per_tree", "megabytes_per_tree")


def _published(column: int) -> tuple[Row, ...]:
    return tuple({"method": row[0].name, "parameter": row[0].reading, "seconds": row[column]} for row in _ROWS)


def _measured(context: Context, data: str, method: Method, seed: int) -> dict[str, Any]:
    encrypted = method.protocol == "paillier"
    trees = 1 if encrypted else 3 if context.quick else TREES
    config = replace(CONFIG, n_estimators=trees, seed=seed, options=method.options)
    cost = cost_apart(among(context.table(data), 2), method.protocol, config, warm_up=not encrypted)
    return {value: getattr(cost, value) for value in _VALUES}


def cells(context: Context, data: str) -> list[Cell]:
    if not context.at_hand((data,)):
        return []
    table = context.table(data)
    seeds = range(1 if context.quick else 3)
    chosen = [(row[0], seed) for row in _ROWS for seed in seeds] + [(paillier(LONG), 0)]
    found: list[Cell] = []
    for method, seed in chosen:
        key = {"data": data, "method": method.name, "parameter": method.reading, "seed": seed}
        trees = 1 if method.protocol == "paillier" else 4 if context.quick else TREES + 1
        seconds = training_seconds(method.protocol, table.rows, len(table.columns) // 2, trees, method.options)
        found.append(Cell(key, partial(_measured, context, data, method, seed), START + seconds))
    return found


def table(measured: Sequence[Row], published: Sequence[Row]) -> Sequence[Row]:
    lines = over_seeds(measured, ("data", "method", "parameter"), _VALUES)
    for line in lines:
        plain = the(lines, "cpu_seconds_per_tree", method=PLAIN.name)
        line[f"seconds_of_{TREES}_trees"] = TREES * line["seconds_per_tree"]
        line["times_plain"] = None if plain is None else line["cpu_seconds_per_tree"] / plain
        own = {"method": line["method"], "parameter": line["parameter"]}
        line["paper_seconds"] = the(published, "seconds", **own)
        paper_plain = the(published, "seconds", method=PLAIN.name)
        line["paper_times_plain"] = None if line["paper_seconds"] is None else line["paper_seconds"] / paper_plain
    return lines


def claim(rows: Sequence[Row], published: Sequence[Row]) -> Claim:
    noised, encrypted = picked(rows, method="FedXGBoost-LDP"), picked(rows, method="Paillier Encryption")
    slowest = max(row["cpu_seconds_per_tree"] for row in noised)
    against = min(row["cpu_seconds_per_tree"] for row in encrypted) / slowest
    duchi = [row for row in noised if "DM" in row["parameter"]]
    first, second = (
        fmean(row["cpu_seconds_per_tree"] for row in duchi if ("First" in row["parameter"]) == wanted)
        for wanted in (True, False)
    )
    times = [row["times_plain"] for row in noised]
    keys = ", ".join(f"{row['parameter']} {row['times_plain']:.0f}" for row in encrypted)
    plain, paillier = (the(published, "seconds", method=name) for name in (PLAIN.name, "Paillier Encryption"))
    return Claim(
        f"encryption takes {paillier / plain:.1f} times as long as plain XGBoost, noise between 0.8 and 1.2 times: its "
        "overhead is negligible; the first order is quicker than the second",
        f"times the processor seconds of plain: noise {min(times):.1f} to {max(times):.1f}, encryption {keys}; the "
        f"slowest noise takes {slowest:.2f} s per tree, {against:.0f} times less than the quickest encryption; Duchi's "
        f"first order takes {first:.3f} s, the second {second:.3f} s",
        "yes" if max(times) <= 1.2 and first < second and against > 1 else "partly" if against > 1 else "no",
        "What noise costs in itself is tenths of a second per tree. The paper's plain XGBoost takes seconds per tree "
        "(Spark on two machines of 16 cores), which hides that; ours takes hundredths, so that drawing and sending "
        "fresh noise at every level shows, and encryption shows more.",
    )


def plot(rows: Sequence[Row], number: int) -> str:
    bars = {
        f"{row['method']} {row['parameter']}".strip(): {
            name: value
            for name, value in (("measured", row["times_plain"]), ("the paper", row["paper_times_plain"]))
            if value is not None
        }
        for row in rows
    }
    title = f"FedXGBoost, Table {number}: training time"
    return bar_chart(title, "times plain XGBoost (ours: processor seconds)", bars, log=True)


def _target(number: int, data: str, words: str) -> Target:
    published = _published(number)
    return Target(
        PAPER,
        f"table-{number}",
        f"training time on {words}",
        (data,),
        published,
        lambda context: cells(context, data),
        lambda measured: table(measured, published),
        lambda rows: claim(rows, published),
        lambda rows: plot(rows, number),
    )


TABLE_1 = _target(1, CREDIT_1, "Give Me Some Credit")
TABLE_2 = _target(2, CREDIT_2, "Default of Credit Card Clients")
