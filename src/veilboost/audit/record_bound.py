"""A lower bound on the epsilon of one record in `secagg` with noise, against a server that chooses what it asks for.

The server knows everything but one record, which is one of two: they differ in the label, and in the category of one
column. With the leaves of the first tree it moves one to a margin where g is almost -1, and the other to one where g is
almost 1. From then on each request has them in the same bin, except in the column in which they differ, with the
largest distance that the loss allows. Each tree samples one column, so every cell that is released tells something.

The sums of everybody else are known, so a run consists of the noise and, for the second record, of the distance. The
noise of many runs is drawn at once, by the code with which participants add it, with as much as those add that do not
collude. The score of a run is the log-likelihood ratio of the two records under the claimed noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.audit.lower_bound import CONFIDENCE, LowerBound, check_runs, lower_bound
from veilboost.boost.booster import sample_columns
from veilboost.boost.objective import objective_of
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.errors import InvalidParameter
from veilboost.fixedpoint import Scale, choose_scale, to_fixed
from veilboost.protocols.secagg.noise import SumNoise, options_of
from veilboost.types import Float64Array, Int64Array

PARTICIPANTS, COLUMNS = 6, 20
DELTA = 0.01
CATEGORIES = ("a", "b")
BINS = len(CATEGORIES) + 1  # of a column: one for missing values
LABELS = 1.0, 0.0  # of the two records
FAR = 30.0  # log-odds to which a leaf of the first tree moves the second record, and the first to its negative


def record_lower_bound(
    eps: float,
    repeats: int,
    seed: int = 0,
    delta: float = DELTA,
    confidence: float = CONFIDENCE,
    trees: int = 10,
    depth: int = 1,
) -> LowerBound:
    """The bound for one record in `secagg` with `epsilon`: over the sums of the first tree's root, and of each level
    of the other trees.
    """
    check_runs(repeats)
    if trees < 2:
        raise InvalidParameter("the first tree only separates the two records", "set --trees to 2 or more")
    config = canary_config(eps, delta, seed, trees, depth)
    scale, noise = grid(config), SumNoise.of(config, COLUMNS)
    if noise is None:
        raise InvalidParameter("without noise there is no epsilon to measure", "set --eps above 0")
    part = noise.part(config, PARTICIPANTS)
    sigmas = np.array([noise.g / scale.g_unit, noise.h / scale.h_unit])
    scores = np.zeros((2, repeats))
    for number, whole in enumerate(distances(config)):
        move = whole[(whole != 0).any(axis=1)]
        for second in range(2):
            for _ in range(1 if number == 0 else depth):
                received = np.zeros((repeats, *move.shape), dtype=np.int64) + second * move
                for _ in range(PARTICIPANTS - options_of(config).colluding):
                    received = part.add_to_sums(Csprng(), received, scale)
                scores[second] += _log_ratio(received / sigmas, move / sigmas)
    found = lower_bound(scores[0], scores[1], delta, confidence)
    return LowerBound("records", eps, found, delta, repeats, confidence)


def canary_config(eps: float, delta: float, seed: int, trees: int, depth: int = 1) -> TrainingConfig:
    """The job: every tree has one of the columns, all of which are categories, so that no cut points are searched."""
    return TrainingConfig(
        objective="binary",
        n_estimators=trees,
        max_depth=depth,
        colsample_bytree=1.0 / COLUMNS,
        categories="onehot",
        random_state=seed,
        options={"epsilon": eps, "delta": delta},
    )


def sampled_columns(config: TrainingConfig) -> list[int]:
    """The column of each tree. The records differ in that of the first."""
    return [
        int(found[0])
        for number in range(config.n_estimators)
        if (found := sample_columns([COLUMNS], number, config)[0]) is not None
    ]


def grid(config: TrainingConfig) -> Scale:
    """The grid of a job with noise, which follows from the loss."""
    none = np.zeros((1, 1))
    bounds = objective_of("binary", config, 2).bounds(1.0, none, none)
    return choose_scale(*bounds, 1.0, config.gradient_bits)


def distances(config: TrainingConfig) -> Sequence[Int64Array]:
    """By how much the sums (bins, 2) of a tree's column change if the second record replaces the first."""
    objective, scale, columns = objective_of("binary", config, 2), grid(config), sampled_columns(config)
    moves: list[Int64Array] = []
    for number, column in enumerate(columns):
        margins = np.zeros((1, 2)) if number == 0 else np.array([[-FAR, FAR]])
        gradients = to_fixed(*objective.gradients(margins, np.array(LABELS), None), scale)[0].astype(np.int64)
        move = np.zeros((BINS, 2), dtype=np.int64)
        move[0] -= gradients[0]
        move[1 if column == columns[0] else 0] += gradients[1]
        moves.append(move)
    return moves


def _log_ratio(received: Float64Array, move: Float64Array) -> Float64Array:
    """The evidence (runs) for the second record in the noisy sums (runs, bins, 2), in units of the claimed noise."""
    return (received * move).sum(axis=(1, 2)) - (move * move).sum() / 2
