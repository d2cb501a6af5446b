"""How good a model becomes, tree by tree: AUC and loss on rows that it did not see."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from papers.tables import ACTIVE, divided, hold_out, labels
from veilboost.boost.metrics import auc, logloss
from veilboost.boost.objective import sigmoid
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import JoinedModel, join
from veilboost.party.simulation import simulate_training
from veilboost.protocols.masked.law import LAW
from veilboost.protocols.registry import all_protocols
from veilboost.types import Column, Float64Array


@dataclass(frozen=True)
class Learning:
    """A value after each tree: AUC and loss of test rows; loss of training rows where it was asked for."""

    auc: list[float]
    loss: list[float]
    train_loss: list[float]


def learning(
    table: PartyTable, own: float, seed: int, protocol: str, config: TrainingConfig, *, on_training_rows: bool = False
) -> Learning:
    """Train on four fifths of the rows of a binary table, and test on the others after every tree.

    `own` is the active party's share of the columns; the seed decides about rows and noise.
    """
    train, test = hold_out(table.rows, seed=seed)
    job = replace(config, seed=seed)
    with law_at_hand():
        # Threads change how long it takes and nothing else.
        run = simulate_training(divided(table.take(train), own), ACTIVE, protocol, job, threads=os.cpu_count() or 1)
    model, unseen = join(run.parts), table.take(test)
    after = list(predictions(model, unseen.columns))
    seen = table.take(train)
    return Learning(
        [float(auc(labels(unseen), p)) for p in after],
        [float(logloss(labels(unseen), p)) for p in after],
        [float(logloss(labels(seen), p)) for p in predictions(model, seen.columns)] if on_training_rows else [],
    )


def predictions(model: JoinedModel, columns: Sequence[Column]) -> Generator[Float64Array]:
    """Probabilities after each tree of a binary model. (A row may be routed otherwise than in training, where noise
    was on buckets: what counts is how the finished model predicts.)"""
    base = model.base_margin[0]
    margin = np.full(len(columns[0].values), base)
    for tree in model.trees:
        margin += replace(model, trees=(tree,)).margins(columns)[0] - base
        yield sigmoid(margin)


@contextmanager
def law_at_hand() -> Generator[None]:
    """MaskedXGBoost by the law of its noisy sums, which is in no list of protocols, can be named in here."""
    known = all_protocols()
    known[LAW.name] = LAW
    try:
        yield
    finally:
        del known[LAW.name]
