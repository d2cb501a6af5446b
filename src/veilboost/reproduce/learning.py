"""How good a model becomes, tree by tree: AUC and loss on rows that it did not see."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from veilboost.boost.metrics import auc, logloss
from veilboost.boost.objective import sigmoid
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import JoinedModel, join
from veilboost.party.simulation import simulate_training
from veilboost.protocols.masked.law import LAW
from veilboost.protocols.registry import all_protocols
from veilboost.reproduce.tables import ACTIVE, divided, hold_out, labels
from veilboost.types import Column, Float64Array


@dataclass(frozen=True)
class Learning:
    """A value after each tree: AUC and loss of test rows."""

    auc: list[float]
    loss: list[float]


def learning(table: PartyTable, own: float, seed: int, protocol: str, config: TrainingConfig) -> Learning:
    """Train on four fifths of the rows of a binary table, and test on the others after every tree.

    `own` is the active party's share of the columns; the seed decides about rows and noise.
    """
    train, test = hold_out(table.rows, seed=seed)
    job = replace(config, seed=seed)
    with law_at_hand():
        run = simulate_training(divided(table.take(train), own), ACTIVE, protocol, job)
    unseen = table.take(test)
    y = labels(unseen)
    after = list(predictions(join(run.parts), unseen.columns))
    return Learning([float(auc(y, p)) for p in after], [float(logloss(y, p)) for p in after])


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
