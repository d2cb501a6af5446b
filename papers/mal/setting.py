"""What MAL's section 4 says about its experiments, and what it leaves open.

Not stated there, and chosen here: learning rate (0.3) and lambda (1), XGBoost's defaults; whose rows are whose (dealt
out by chance). Our SUSY is a draw of 40 000 rows, theirs of 289 330.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from papers.tables import hold_out, labels, sampled
from papers.target import Context
from veilboost.boost.metrics import auc
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import JoinedModel, join
from veilboost.party.simulation import SERVER, Simulation, simulate_training
from veilboost.types import PartyName

PAPER = "mal"
SETS = ("susy40k", "diabetes", "codrna")
TEST_SETS = {"codrna": "codrna_test"}  # which has test rows of its own
PARTICIPANTS = 10
TREES = (500, 1000)
RATE = 0.3
QUICK_ROWS = 8_000
# The paper's best number of buckets with 500 and with 1000 trees (section 4.1).
BEST_BUCKETS = {"susy40k": {500: 18, 1000: 28}, "diabetes": {500: 16, 1000: 28}, "codrna": {500: 20, 1000: 18}}


def split(context: Context, name: str, seed: int) -> tuple[PartyTable, PartyTable]:
    """Training and test rows: four fifths and a fifth by chance, or as the data set's own files say."""
    rows = QUICK_ROWS if context.quick else 0
    table = context.table(name, rows)
    apart = TEST_SETS.get(name)
    if apart is not None and context.at_hand([apart]):
        return table, sampled(context.table(apart), rows or 50_000)
    train, test = hold_out(table.rows, seed=seed)
    return table.take(train), table.take(test)


def deal(table: PartyTable, participants: int, seed: int = 0) -> dict[PartyName, PartyTable]:
    """Rows by chance to p0, p1, ..."""
    shares = np.array_split(np.random.default_rng(seed).permutation(table.rows), participants)
    return {f"p{at}": table.take(np.sort(share)) for at, share in enumerate(shares)}


def job(trees: int, buckets: int, epsilon: float, guard: str = "merge", rate: float = RATE) -> TrainingConfig:
    """Epsilon 0: no noise. The guard merges buckets where masks hide no label; the paper has none (`allow`)."""
    options: dict[str, Any] = {"epsilon": epsilon, "guard": guard}
    return TrainingConfig(objective="binary", n_estimators=trees, max_bin=buckets, learning_rate=rate, options=options)


def central_job(trees: int, rate: float = RATE) -> TrainingConfig:
    """What XGBoost's `hist` grows with depth 1 on all rows in one place, by `plain`."""
    return TrainingConfig(objective="binary", n_estimators=trees, max_bin=256, max_depth=1, learning_rate=rate)


def stumps(table: PartyTable, config: TrainingConfig) -> JoinedModel:
    return join(simulate_training({"all": table}, "all", "plain", config).shares)


def masked(table: PartyTable, config: TrainingConfig, seed: int, participants: int) -> Simulation:
    """A run of `mal`; the seed decides who has which rows."""
    return simulate_training(deal(table, participants, seed), SERVER, "mal", config)


def areas_of(model: JoinedModel, test: PartyTable) -> dict[str, float]:
    """AUC in percent, of the scores and of the predicted classes (0 or 1), which the paper's numbers look like."""
    truth, margins = labels(test), model.margins(test.columns)[0]
    classes = (margins > 0).astype(np.float64)
    return {"auc": 100.0 * float(auc(truth, margins)), "hard_auc": 100.0 * float(auc(truth, classes))}
