"""Figure 6: how long a thousand users wait for their predictions, by the number of trees and their depth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from papers.elxgb import setting
from papers.rows import Row, Rows, by, picked
from papers.rules import Rule
from papers.tables import among, synthetic
from papers.target import EXACT, SECONDS, Cell, Claim, Context, Target
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


def served(
    table: PartyTable, service: Service, point: setting.Point, users: int, *, noise_seed: int | None = None
) -> dict[str, float]:
    """Seconds of users, active party and CSP together, and whether all scores are those of plain prediction."""
    tables = among(table, setting.PARTIES)
    job = setting.job(point.trees, point.depth, backend="lattice")
    run = simulate_training(tables, "party0", "elxgb", job, unsafe_noise_seed=noise_seed)
    attributes = {name: attributes_of(name, own.columns, "ordinal") for name, own in tables.items()}
    ready = MemoryService(run.shares, "party0", attributes, scheme=service.scheme, **service.keys)
    client = ready.user()
    before = ready.transcripts["csp"].messages_sent()
    wall, processor = time.perf_counter(), time.process_time()
    scores = [
        client.predict(_columns(table, low, min(low + AT_ONCE, users)), min(low + AT_ONCE, users) - low)
        for low in range(0, users, AT_ONCE)
    ]
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    few = {name: own.take(np.arange(users)) for name, own in tables.items()}
    expected = sigmoid(simulate_prediction(run.shares, "party0", few)[0])
    batches = -(-users // AT_ONCE)
    sent = sum(ready.transcripts[who].bytes_sent() for who in ("user", "party0", "csp"))
    return {
        "users": users,
        "seconds_per_1000": wall * 1000 / users,
        "cpu_seconds_per_1000": processor * 1000 / users,
        "kilobytes_per_user": sent / users / 1e3,
        "attributes": ready.directory.size,
        "exchanges_with_csp": (ready.transcripts["csp"].messages_sent() - before) / batches,
        "exact": float(np.array_equal(np.concatenate(scores)[:, 0], expected)),
    }


def _columns(table: PartyTable, low: int, high: int) -> dict[str, Any]:
    return {column.name: column.take(np.arange(low, high)) for column in table.columns}


def _measured(context: Context, name: str, service: Service, point: setting.Point) -> Row:
    return served(setting.table_of(context, name), service, point, service.count(context))


@cache
def _small(scheme: str, trees: int, depth: int) -> list[float]:
    """On a few rows with a short key and fixed noise: exact scores, and the exchanges."""
    service = SHORT if scheme == SHORT.scheme else LATTICE
    point = setting.Point("T", trees) if depth == setting.DEPTH else setting.Point("D", depth)
    found = served(synthetic(60), service, point, 1, noise_seed=0)
    return [found["exact"], found["exchanges_with_csp"]]


def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
    wanted = [(each, point) for point in setting.structures(context) for each in (SHORT, LATTICE)]
    return [
        Cell(
            {"data": name, "method": service.name, **point.key, "seed": 0},
            partial(_measured, context, name, service, point),
            partial(_small, service.scheme, point.trees, point.depth),
            1.0 + service.per_user * service.count(context) * point.trees * point.depth / 15,
        )
        for name in sets
        for service, point in [*wanted, (LONG, setting.DEFAULT)]
    ]


def _rise(rows: Rows, what: str) -> dict[str, float]:
    """How many times more the last point along T and along D has than the first."""
    lines = {along: picked(rows, method=SHORT.name, along=along) for along in ("T", "D")}
    return {along: line[-1][what] / line[0][what] for along, line in lines.items()}


def _amounts(rows: Rows) -> list[float]:
    found = [0.0 if all(row["exact"] == 1.0 for row in rows) else -1.0]
    for _, own in by(rows, "data"):
        for what in ("exchanges_with_csp", "cpu_seconds_per_1000"):
            rise = _rise(own, what)
            found.append(1.0 - rise["T"] / rise["D"])
    return found


RULE = Rule(
    "Cases: all scores are exact; for each data set, from 2 to 6, exchanges with the CSP (what users wait for where "
    "the network is slow) grow by a smaller factor with T than with D, and so do processor seconds. Amounts: 1 less "
    "the ratio.",
    0.05,
    _amounts,
)


def claim(rows: Rows) -> Claim:
    listed: list[str] = []
    for data, of_data in by(rows, "data"):
        seconds, exchanges = (_rise(of_data, what) for what in ("cpu_seconds_per_1000", "exchanges_with_csp"))
        at = picked(of_data, along=setting.DEFAULT.along, value=setting.DEFAULT.value)
        listed.append(
            f"{setting.NAMES[data]} ({at[0]['attributes']:g} attributes), Paillier 512, from 2 to 6: "
            f"CPU T x{seconds['T']:.1f}, D x{seconds['D']:.1f}; exchanges with the CSP T x{exchanges['T']:.1f}, "
            f"D x{exchanges['D']:.1f}" + "".join(f"; {row['method']} {row['cpu_seconds_per_1000']:.0f} s" for row in at)
        )
    exact = all(row["exact"] == 1.0 for row in rows)
    counted = {row["value"]: row["exchanges_with_csp"] for row in picked(rows, method=SHORT.name, along="D")}
    return Claim(
        "the time to serve 1000 samples grows slower with T than with D, and is higher on Credit card, which has more "
        "attributes",
        "; ".join(listed)
        + f" (CPU seconds for 1000 users at T = 5, D = 3; all scores exact: {'yes' if exact else 'no'})",
        "A user visits up to T times D nodes, so work grows alike with T and with D. Trees are asked about together "
        "and levels one after the other, so that the number of exchanges with the CSP does not depend on T and is "
        + ", ".join(f"{count:g} at D = {depth:g}" for depth, count in counted.items())
        + ": that is the waiting time of which the paper speaks. Seconds are scaled to 1000 users from as "
        "many as the table says. The paper's 512-bit key can be factored; the point at 2048 bits is what is safe.",
    )


def plot(rows: Rows, label: str) -> str:
    lines = [row for row in rows if row["method"] != LONG.name]
    what, words = "cpu_seconds_per_1000", "CPU seconds for 1000 users"
    return setting.panels(f"{label}: service time", lines, what, words, ("T", "D"), log=True)


FIGURE_6 = Target(
    setting.PAPER,
    "figure-6",
    "service time by T and D",
    setting.SETS,
    PUBLISHED,
    cells,
    list,
    RULE,
    claim,
    plot,
    {"exact": EXACT, "exchanges_with_csp": EXACT, "cpu_seconds_per_1000": SECONDS},
)
