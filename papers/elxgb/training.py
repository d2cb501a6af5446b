"""Figures 5 and 7: what training costs by the number of trees and their depth, in seconds and in bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from papers.elxgb import setting
from papers.rows import Line, Row, Rows, by, picked, the
from papers.tables import among
from papers.target import Cell, Claim, Context, Target
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import simulate_training


@dataclass(frozen=True)
class Scheme:
    """A method of the figures: how it is trained here, and about what a row of a tree costs."""

    name: str
    protocol: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    per_row: float = 2e-6
    first_tree_only: bool = False

    def seconds(self, rows: int, point: setting.Point) -> float:
        encrypted = 1 if self.first_tree_only else point.trees
        return 0.3 + rows * (self.per_row * encrypted + 3e-6 * point.trees) * (1 + point.depth / 8)


ELXGB = Scheme("ELXGB (Paillier 512)", "elxgb", setting.SHORT_KEY, 1e-4, first_tree_only=True)
SECUREBOOST = Scheme("SecureBoost (Paillier 512)", "paillier", setting.SHORT_KEY, 1e-4)
CENTRAL = Scheme("XGBoost", "plain")
LATTICE = Scheme("ELXGB (lattice)", "elxgb", {"backend": "lattice"}, 2e-5, first_tree_only=True)
ALL_LATTICE = Scheme("lattice", "lattice", per_row=2e-5)
SCHEMES = (ELXGB, SECUREBOOST, CENTRAL, LATTICE, ALL_LATTICE)
# Keys that cannot be factored: once each, at the default point.
LONG_KEYS = (
    Scheme("ELXGB (Paillier 2048)", "elxgb", {"key_bits": 2048}, 1.2e-3, first_tree_only=True),
    Scheme("SecureBoost (Paillier 2048)", "paillier", {"key_bits": 2048}, 1.2e-3),
)
PIVODL = "PIVODL"
PUBLISHED: tuple[Row, ...] = (
    {"data": "default_credit", "method": CENTRAL.name, "seconds": 1.0},
    {"data": "default_credit", "method": SECUREBOOST.name, "seconds": 209.0},
    {"data": "default_credit", "method": PIVODL, "seconds": 480.0},
)
STATED: tuple[Row, ...] = (
    {"statement": "as T grows ELXGB's communication keeps stable, SecureBoost's and PIVODL's grow faster"},
    {"statement": "D hardly affects ELXGB and SecureBoost; SecureBoost's communication is about five times ours"},
)


def training(table: PartyTable, protocol: str, config: TrainingConfig) -> dict[str, float]:
    """Four parties in one process, one thread: seconds of all of it, keys and bins included, and what was sent."""
    tables = among(table, setting.PARTIES)
    first = {name: own.take(np.arange(min(own.rows, 50))) for name, own in tables.items()}
    simulate_training(first, "party0", protocol, replace(config, n_estimators=1))  # loads what is loaded at first use
    wall, processor = time.perf_counter(), time.process_time()
    run = simulate_training(tables, "party0", protocol, config)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - processor,
        "megabytes": run.bytes_sent / 1e6,
        "exchanges": float(run.rounds),
    }


def _measured(context: Context, name: str, scheme: Scheme, point: setting.Point, seed: int) -> Row:
    config = replace(setting.job(point.trees, point.depth, **scheme.options), random_state=seed)
    return training(setting.table_of(context, name), scheme.protocol, config)


def cells(context: Context, sets: Sequence[str], repetitions: int = setting.REPETITIONS) -> list[Cell]:
    seeds = context.seeds(repetitions)
    wanted = [(scheme, point, seed) for point in setting.structures(context) for scheme in SCHEMES for seed in seeds]
    return [
        Cell(
            {"data": name, "method": scheme.name, **point.key, "seed": seed},
            partial(_measured, context, name, scheme, point, seed),
            scheme.seconds(setting.table_of(context, name).rows, point),
        )
        for name in sets
        for scheme, point, seed in [*wanted, *((scheme, setting.DEFAULT, 0) for scheme in LONG_KEYS)]
    ]


def table(lines: list[Line]) -> Rows:
    for line in lines:
        at_default = (line["along"], line["value"]) == (setting.DEFAULT.along, setting.DEFAULT.value)
        published = the(PUBLISHED, "seconds", data=line["data"], method=line["method"])
        line["paper_seconds"] = published if at_default else None
    return lines


def growth(rows: Rows, what: str, along: str, scheme: Scheme) -> float:
    """How many times more the last point costs than the first, on one data set."""
    line = picked(rows, method=scheme.name, along=along)
    return line[-1][what] / line[0][what]


def _growths(rows: Rows, what: str) -> tuple[list[str], list[bool]]:
    listed: list[str] = []
    slower: list[bool] = []
    for data, own in by(rows, "data"):
        for along in ("T", "D"):
            ours, theirs = (growth(own, what, along, scheme) for scheme in (ELXGB, SECUREBOOST))
            slower.append(ours < theirs)
            listed.append(f"{setting.NAMES[data]} from {along} = 2 to 6: ELXGB x{ours:.2f}, SecureBoost x{theirs:.2f}")
    return listed, slower


def claim_of_seconds(rows: Rows) -> Claim:
    listed, slower = _growths(rows, "cpu_seconds")
    for data, own in by(rows, "data"):
        at = {row["method"]: row["cpu_seconds"] for row in picked(own, **setting.DEFAULT.key)}
        listed.append(
            f"{setting.NAMES[data]} at T = 5, D = 3: " + ", ".join(f"{name} {each:.2f} s" for name, each in at.items())
        )
    return Claim(
        "training time grows slowly with T in ELXGB and linearly elsewhere, and with D more slowly than elsewhere; "
        "Credit card, T = 5, D = 3: XGBoost about 1 s, SecureBoost about 209 s, PIVODL about 480 s",
        "; ".join(listed) + " (CPU seconds of all parties)",
        "yes" if all(slower) else "partly",
        "Only the first tree is encrypted, hence the shape. The seconds do not compare: theirs is Java on a laptop, "
        "ours packs g and h into one ciphertext, subtracts siblings and uses GMP. A 512-bit key, the paper's, can be "
        "factored; the points at 2048 bits are what a user would pay. PIVODL is published only. `lattice` is ours "
        "with every tree encrypted.",
    )


def claim_of_bytes(rows: Rows) -> Claim:
    listed, _ = _growths(rows, "megabytes")
    stable: list[bool] = []
    for data, own in by(rows, "data"):
        ratio = [the(own, "megabytes", **setting.DEFAULT.key, method=scheme.name) for scheme in (SECUREBOOST, ELXGB)]
        if None not in ratio:
            listed.append(f"{setting.NAMES[data]} at T = 5: SecureBoost {ratio[0] / ratio[1]:.1f} times ELXGB")
        stable.append(growth(own, "megabytes", "T", ELXGB) < growth(own, "megabytes", "T", SECUREBOOST))
    return Claim(
        "ELXGB's traffic keeps stable as T grows, SecureBoost's and PIVODL's grow; D changes neither; SecureBoost "
        "sends about five times as much",
        "; ".join(listed),
        "yes" if all(stable) else "partly",
        "Later trees are not free: their noisy gradients go to three parties, 8 bytes for each row and tree, where a "
        "ciphertext of both has 128 at 512 bits. How many times SecureBoost sends depends on the key and on packing.",
    )


def _plot(rows: Rows, label: str, what: str, words: str) -> str:
    lines = [row for row in rows if "2048" not in row["method"]]
    return setting.panels(label, lines, what, words, ("T", "D"), log=True)


FIGURE_5 = Target(
    setting.PAPER,
    "figure-5",
    "training time by T and D",
    setting.SETS,
    PUBLISHED,
    cells,
    table,
    claim_of_seconds,
    lambda rows, label: _plot(rows, f"{label}: training time", "cpu_seconds", "CPU seconds"),
)
FIGURE_7 = Target(
    setting.PAPER,
    "figure-7",
    "communication by T and D",
    setting.SETS,
    STATED,
    partial(cells, repetitions=1),  # bytes do not vary between runs
    table,
    claim_of_bytes,
    lambda rows, label: _plot(rows, f"{label}: communication", "megabytes", "megabytes"),
)
