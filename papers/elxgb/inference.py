"""Figure 6: how long a thousand users wait for their predictions, by the number of trees and their depth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from papers.elxgb import setting
from papers.rows import Row, Rows, by, picked
from papers.tables import among
from papers.target import Cell, Claim, Context, Target
from veilboost.boost.objective import sigmoid
from veilboost.data.table import PartyTable
from veilboost.party.simulation import simulate_prediction, simulate_training
from veilboost.secure_inference.attributes import attributes_of
from veilboost.secure_inference.roles import MemoryService

AT_ONCE = 50  # users who are served together
PUBLISHED: tuple[Row, ...] = (
    {"statement": "service time of 1000 samples grows slower with T than with D, and is higher for Credit card"},
)


@dataclass(frozen=True)
class Service:
    """An encryption of thresholds and rows; `users` of a full run and of a quick one, and seconds for one of them."""

    name: str
    scheme: str
    users: tuple[int, int]
    per_user: float
    keys: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def count(self, context: Context) -> int:
        return self.users[1] if context.quick else self.users[0]


SHORT = Service("Paillier 512", "paillier", (50, 10), 0.1, setting.SHORT_KEY)
LONG = Service("Paillier 2048", "paillier", (5, 2), 4.0)
LATTICE = Service("lattice", "lattice", (200, 20), 0.1)


def served(table: PartyTable, service: Service, point: setting.Point, users: int) -> dict[str, float]:
    """Seconds of users, active party and CSP together, and whether all scores are those of plain prediction."""
    tables = among(table, setting.PARTIES)
    run = simulate_training(tables, "party0", "elxgb", setting.job(point.trees, point.depth, backend="lattice"))
    attributes = {name: attributes_of(name, own.columns, "ordinal") for name, own in tables.items()}
    ready = MemoryService(run.shares, "party0", attributes, scheme=service.scheme, **service.keys)
    client = ready.user()
    wall, processor = time.perf_counter(), time.process_time()
    scores = [
        client.predict(_columns(table, low, min(low + AT_ONCE, users)), min(low + AT_ONCE, users) - low)
        for low in range(0, users, AT_ONCE)
    ]
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    few = {name: own.take(np.arange(users)) for name, own in tables.items()}
    expected = sigmoid(simulate_prediction(run.shares, "party0", few)[0])
    sent = sum(ready.transcripts[who].bytes_sent() for who in ("user", "party0", "csp"))
    return {
        "users": users,
        "seconds_per_1000": wall * 1000 / users,
        "cpu_seconds_per_1000": processor * 1000 / users,
        "kilobytes_per_user": sent / users / 1e3,
        "attributes": ready.directory.size,
        "exact": float(np.array_equal(np.concatenate(scores)[:, 0], expected)),
    }


def _columns(table: PartyTable, low: int, high: int) -> dict[str, Any]:
    return {column.name: column.take(np.arange(low, high)) for column in table.columns}


def _measured(context: Context, name: str, service: Service, point: setting.Point) -> Row:
    return served(setting.table_of(context, name), service, point, service.count(context))


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    seeds = context.seeds(setting.REPETITIONS)
    wanted = [
        (each, point, seed) for point in setting.structures(context) for each in (SHORT, LATTICE) for seed in seeds
    ]
    return [
        Cell(
            {"data": name, "method": service.name, **point.key, "seed": seed},
            partial(_measured, context, name, service, point),
            1.0 + service.per_user * service.count(context) * point.trees * point.depth / 15,
        )
        for name in sets
        for service, point, seed in [*wanted, (LONG, setting.DEFAULT, 0)]
    ]


def claim(rows: Rows) -> Claim:
    listed: list[str] = []
    slower: list[bool] = []
    for data, of_data in by(rows, "data"):
        own = picked(of_data, method=SHORT.name)
        rise = {
            along: line[-1]["cpu_seconds_per_1000"] / line[0]["cpu_seconds_per_1000"]
            for along in ("T", "D")
            if (line := picked(own, along=along))
        }
        slower.append(rise["T"] < rise["D"])
        at = picked(of_data, along=setting.DEFAULT.along, value=setting.DEFAULT.value)
        listed.append(
            f"{setting.NAMES[data]}, Paillier 512, from 2 to 6: T x{rise['T']:.1f}, D x{rise['D']:.1f}"
            + "".join(f"; {row['method']} {row['cpu_seconds_per_1000']:.0f} s" for row in at)
        )
    exact = all(row["exact"] == 1.0 for row in rows)
    return Claim(
        "the time to serve 1000 samples grows slower with T than with D, and is higher on Credit card, which has more "
        "attributes",
        "; ".join(listed)
        + f" (CPU seconds for 1000 users at T = 5, D = 3; all scores exact: {'yes' if exact else 'no'})",
        "yes" if all(slower) and exact else "partly" if exact else "no",
        "A user visits up to T times D nodes, so work grows alike with T and with D; the paper gives the waiting time "
        "of trees that run in parallel while their levels follow each other. Seconds are scaled to 1000 users from as "
        "many as the table says. The paper's 512-bit key can be factored; the point at 2048 bits is what is safe.",
    )


def plot(rows: Rows, label: str) -> str:
    lines = [row for row in rows if row["method"] != LONG.name]
    what, words = "cpu_seconds_per_1000", "CPU seconds for 1000 users"
    return setting.panels(f"{label}: service time", lines, what, words, ("T", "D"), log=True)


FIGURE_6 = Target(
    setting.PAPER, "figure-6", "service time by T and D", setting.SETS, PUBLISHED, cells, list, claim, plot
)
