"""A lower bound on the epsilon of one record in `secagg` with noise, from the server's view.

The server knows all records but one, and which two values that one may have. It replays the model that it trained, so
for either value it knows the exact sums of every round; the difference between them and the sums that it received is
the noise of all participants. The score of a run is the log-likelihood ratio under the claimed noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from veilboost.audit.lower_bound import CONFIDENCE, DELTA, LowerBound, check_runs, lower_bound
from veilboost.audit.sources import views_of_simulation
from veilboost.audit.view import View
from veilboost.boost.grower import LEAF
from veilboost.boost.objective import sigmoid
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import UnreadableFile
from veilboost.fixedpoint import Scale, to_fixed
from veilboost.model.share import ModelShare, Skeleton
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.secagg.messages import MaskedSums, SumsRequest
from veilboost.protocols.secagg.noise import SumNoise
from veilboost.types import Column, Float64Array, Int64Array, PartyName

PARTICIPANTS, ROWS = 6, 5  # rows of each participant
CATEGORIES = ("a", "b", "c")


def record_lower_bound(
    eps: float,
    repeats: int,
    seed: int = 0,
    delta: float = DELTA,
    confidence: float = CONFIDENCE,
    trees: int = 3,
    depth: int = 1,
) -> LowerBound:
    """The bound for one record in `secagg` with `epsilon`, against the server. Sums of the first level are used."""
    check_runs(repeats)
    labels = np.zeros(PARTICIPANTS * ROWS)
    labels[1::2] = 1.0
    codes = np.arange(len(labels)) % len(CATEGORIES)
    moved = codes.copy()
    moved[0] = 1  # the first record has another category
    # Predictions stay near 0.98, where a record with label 0 has nearly the largest gradient.
    config = TrainingConfig(
        objective="binary",
        n_estimators=trees,
        max_depth=depth,
        learning_rate=0.01,
        base_score=0.98,
        categories="onehot",
        random_state=seed,
        options={"epsilon": eps, "delta": delta},
    )
    tables = [_table(each, labels) for each in (codes, moved)]
    scores = [[_score(_run(each, config), tables) for _ in range(repeats)] for each in tables]
    found = lower_bound(np.array(scores[0]), np.array(scores[1]), delta, confidence)
    return LowerBound("records", eps, found, delta, repeats, confidence)


def _table(codes: Int64Array, labels: Float64Array) -> PartyTable:
    return PartyTable(np.arange(len(labels)), (Column("category", codes.astype(np.int32), CATEGORIES),), labels)


def _run(table: PartyTable, config: TrainingConfig) -> View:
    parts = np.array_split(np.arange(table.rows), PARTICIPANTS)
    tables: Mapping[PartyName, PartyTable] = {f"h{at}": table.take(rows) for at, rows in enumerate(parts)}
    run = simulate_training(tables, SERVER, "secagg", config, record="payload")
    return views_of_simulation(run, tables)[0][SERVER]


def _score(view: View, tables: Sequence[PartyTable]) -> float:
    """The log-likelihood ratio of the second table, over the sums of the first level of every tree."""
    noise = SumNoise.of(view.config, 1)
    if noise is None or view.share is None or view.share.skeleton is None:
        raise UnreadableFile("the run has no noise, or has not finished")
    requests = view.sent(SumsRequest, view.peers[0])
    answers = zip(*(view.received(MaskedSums, peer) for peer in view.peers), strict=True)
    margins = [np.full(table.rows, view.share.skeleton.base_margin[0]) for table in tables]
    ratio = 0.0
    for request, masked in zip(requests, answers, strict=True):
        if request.depth > 0:
            continue
        scale = Scale(request.g_exponent, request.h_exponent)
        total = np.add.reduce([each.sums for each in masked]).view(np.int64)[0]
        sigmas = np.array([noise.g / scale.g_unit, noise.h / scale.h_unit])
        here, there = (_sums(*each, scale, len(total)) / sigmas for each in zip(tables, margins, strict=True))
        rest, move = total / sigmas - here, there - here
        ratio += float((rest * move).sum() - (move * move).sum() / 2)
        margins = [
            margin + _steps(view.share, request.number, table) for margin, table in zip(margins, tables, strict=True)
        ]
    return ratio


def _sums(table: PartyTable, margin: Float64Array, scale: Scale, slots: int) -> Float64Array:
    """The exact sums (slots, 2) of all rows, on the grid."""
    chance, label = sigmoid(margin), cast(Float64Array, table.label)
    sums = np.zeros((slots, 2))
    np.add.at(sums, table.columns[0].values, to_fixed(chance - label, chance * (1 - chance), scale))
    return sums


def _steps(share: ModelShare, number: int, table: PartyTable) -> Float64Array:
    """The leaf weight of every row in one tree."""
    tree, values = cast(Skeleton, share.skeleton).trees[number], share.matrix(table.columns, table.rows)
    leaf = np.zeros(table.rows, dtype=np.int64)
    for node in np.flatnonzero(tree.left != LEAF).tolist():  # parents come before their children
        rows = np.flatnonzero(leaf == node).astype(np.int32)
        record = share.records.find(np.array([number], dtype=np.int32), np.array([node], dtype=np.int32))
        leaf[rows] = tree.left[node] + ~share.records.goes_left(values, record.repeat(len(rows)), rows)
    return tree.weight[leaf].astype(np.float64)
