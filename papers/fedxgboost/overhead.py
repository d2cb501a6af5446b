"""What FedXGBoost-SMM costs: the measurement that the paper leaves to future work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from papers.context import Context
from papers.expected import START, training_seconds
from papers.fedxgboost.setting import CONFIG, CREDIT_1, CREDIT_2, PAPER, paillier
from papers.measure import cost_apart
from papers.noise import Method
from papers.summary import over_seeds, picked, the
from papers.tables import among, synthetic
from papers.target import Cell, Claim, Row, Target
from veilboost.config import TrainingConfig
from veilboost.report.plots import line_chart, sheet

PUBLISHED: tuple[Row, ...] = (
    {"statement": "FedXGBoost-SMM is lossless, with lower overhead than encryption, which is to be measured in future"},
)
SYNTHETIC = "synthetic"
ROWS = (1_000, 3_000, 10_000, 30_000, 100_000)
SHORT, LONG = 512, 2048
PLAIN, SMM = "plain", ("smm1", "smm2")
METHODS = (
    Method(PLAIN, "", "plain", {}),
    replace(paillier(SHORT), name="paillier"),
    Method("lattice", "", "lattice", {}),
    *(Method(name, "", name, {}) for name in SMM),
)
POINT_ROWS = 10_000  # where Paillier also has a key that protects
_VALUES = ("seconds_per_tree", "cpu_seconds_per_tree", "megabytes_per_tree", "rounds_per_tree", "peak_rss_mb")


def _measured(context: Context, data: str, rows: int, method: Method, seed: int) -> dict[str, Any]:
    table = synthetic(rows) if data == SYNTHETIC else context.table(data)
    cost = cost_apart(among(table, 2), method.protocol, _config(seed, method), warm_up=False)
    return {"sha256": cost.sha256, **{value: getattr(cost, value) for value in _VALUES}}


def _config(seed: int, method: Method) -> TrainingConfig:
    return replace(CONFIG, n_estimators=1, seed=seed, options=method.options)


def _cell(context: Context, data: str, rows: int, columns: int, method: Method, seed: int) -> Cell:
    key = {"data": data, "rows": rows, "protocol": method.name, "key": method.reading, "seed": seed}
    seconds = START + training_seconds(method.protocol, rows, columns // 2, 1, method.options)
    return Cell(key, partial(_measured, context, data, rows, method, seed), seconds)


def cells(context: Context) -> list[Cell]:
    sizes, seeds = (ROWS[:4], 1) if context.quick else (ROWS, 3)
    found = [
        _cell(context, SYNTHETIC, rows, 8, method, seed)
        for rows in sizes
        for method in METHODS
        for seed in range(seeds)
    ]
    found.append(_cell(context, SYNTHETIC, POINT_ROWS, 8, replace(paillier(LONG), name="paillier"), 0))
    for data in context.at_hand((CREDIT_2, CREDIT_1)):
        table = context.table(data)
        found += [
            _cell(context, data, table.rows, len(table.columns), method, seed)
            for method in METHODS
            for seed in range(seeds)
        ]
    return found


def table(measured: Sequence[Row]) -> Sequence[Row]:
    lines = over_seeds(measured, ("data", "rows", "protocol", "key"), _VALUES)
    for line in lines:
        same = {"data": line["data"], "rows": line["rows"]}
        plain = the(lines, "cpu_seconds_per_tree", protocol=PLAIN, **same)
        line["times_plain"] = None if plain is None else line["cpu_seconds_per_tree"] / plain
        model = the(measured, "sha256", protocol=PLAIN, **same)
        own = picked(measured, protocol=line["protocol"], key=line["key"], **same)
        line["same_model_as_plain"] = all(row["sha256"] == model for row in own)
    return lines


def claim(rows: Sequence[Row]) -> Claim:
    most = max(row["rows"] for row in rows if row["data"] == SYNTHETIC)
    at = {(row["protocol"], row["key"]): row for row in rows if row["data"] == SYNTHETIC and row["rows"] == most}
    told = "; ".join(
        f"{' '.join(name).strip()} {row['cpu_seconds_per_tree']:.2f} s and {row['megabytes_per_tree']:.1f} MB"
        for name, row in at.items()
    )
    smm = [row for row in rows if row["protocol"] in SMM]
    exact = all(row["same_model_as_plain"] for row in smm)
    ours = max(at[name, ""]["cpu_seconds_per_tree"] for name in SMM)
    lower = ours < at["paillier", f"{SHORT} bits"]["cpu_seconds_per_tree"]
    return Claim(
        "FedXGBoost-SMM is lossless and has lower overhead than encryption (not measured in the paper)",
        f"one tree of {most} rows and 8 columns: {told}; the models of smm1 and smm2 "
        f"{'equal' if exact else 'do not all equal'} that of plain",
        "yes" if exact and lower else "partly" if exact or lower else "no",
        "Lower than Paillier's in time; in bytes smm1 sends a number for every row and bin, far more than Paillier. "
        "Packed lattice encryption is exact too, about as quick, and holds where both SMM protocols fall to linear "
        "programming: what made SMM attractive was the comparison with the slowest encryption.",
    )


def plot(rows: Sequence[Row]) -> str:
    own = [row for row in rows if row["data"] == SYNTHETIC]
    named = dict.fromkeys((row["protocol"], row["key"]) for row in own)
    charts = [
        line_chart(
            title,
            "rows",
            label,
            {
                " ".join(name).strip(): [
                    (row["rows"], row[value]) for row in picked(own, protocol=name[0], key=name[1])
                ]
                for name in named
            },
            log_x=True,
            log_y=True,
        )
        for value, label, title in (
            ("cpu_seconds_per_tree", "processor seconds", "Time of a tree"),
            ("megabytes_per_tree", "megabytes", "Bytes of a tree"),
        )
    ]
    return sheet("FedXGBoost-SMM: what a tree costs (8 columns, depth 6, 32 bins)", charts)


TARGET = Target(
    PAPER,
    "smm-overhead",
    "time and bytes of FedXGBoost-SMM, which the paper left open",
    (CREDIT_2, CREDIT_1),
    PUBLISHED,
    cells,
    table,
    claim,
    plot,
)
