"""Epsilon from below: many small runs on two neighbouring tables, and how well anybody can tell which it was.

If a release is (epsilon, delta) private, no test that is right on one table with chance p can be wrong on the other
with less than exp(-epsilon) (p - delta). So a threshold on a statistic, chosen on one half of the runs, and
Clopper-Pearson bounds on its two rates in the other half give an epsilon that the truth is not below, with confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from veilboost.audit.own import leaf_of_rows
from veilboost.audit.solvers import beta_quantile
from veilboost.audit.sources import views_of_simulation
from veilboost.audit.sums import histograms
from veilboost.audit.view import Truth, View
from veilboost.boost.objective import sigmoid
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.data.table import PartyTable
from veilboost.errors import ImpossibleParameter
from veilboost.party.simulation import simulate_training
from veilboost.types import BoolArray, Column, Float64Array, PartyName

ROWS, TREES, GRID, CONFIDENCE = 24, 2, 20, 0.95
LEAST_RUNS = 20


@dataclass(frozen=True)
class LowerBound:
    """With this confidence the true epsilon at `delta` is no less than `epsilon`; `claimed` is what was promised."""

    of: str
    claimed: float
    epsilon: float
    delta: float
    repeats: int
    confidence: float = CONFIDENCE

    @property
    def holds(self) -> bool:
        return self.epsilon <= self.claimed

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}


def label_lower_bound(eps: float, repeats: int, seed: int = 0, delta: float = 1e-5) -> LowerBound:
    """Of one person's label in `sealed`, against whoever has the model and knows all other labels."""
    config = _config({"eps": eps, "delta": delta, "selection_share": 0.01, "least_rows": 5}, seed)
    tables = _tables(seed)
    other = {**tables, "bank": _with_label(tables["bank"], 1.0 - _label(tables["bank"])[0])}
    pair = _collect(tables, other, config, repeats, _label_statistic)
    return LowerBound("labels", eps, lower_bound(*pair, delta), delta, repeats)


def feature_lower_bound(eps: float, repeats: int, seed: int = 0, delta: float = 1e-5) -> LowerBound:
    """Of one person's passive record in `sealed` with `eps_features`, against the active party and its decrypted sums."""
    config = _config({"eps": 1.0, "eps_features": eps, "delta_features": delta, "least_rows": 5}, seed)
    tables = _tables(seed)
    shop = tables["shop"].columns[0]
    moved = shop.values.copy()
    moved[0] = shop.values.max() if shop.values[0] < np.median(shop.values) else shop.values.min()
    other = {**tables, "shop": PartyTable(tables["shop"].ids, (Column(shop.name, moved),))}
    pair = _collect(tables, other, config, repeats, _cell_statistic)
    return LowerBound("features", eps, lower_bound(*pair, delta), delta, repeats)


def lower_bound(here: Float64Array, there: Float64Array, delta: float, confidence: float = CONFIDENCE) -> float:
    """From a statistic of independent runs on either table; 0 where nothing can be told."""
    if min(len(here), len(there)) < LEAST_RUNS:
        raise ImpossibleParameter(f"fewer than {LEAST_RUNS} runs tell nothing", "give more --repeats")
    half = min(len(here), len(there)) // 2
    best, chosen = -math.inf, (1.0, 0.0, here, there)
    # The threshold, its direction and which table counts as the first are all chosen on the first half.
    for low, high in ((here, there), (there, here)):
        for sign in (1.0, -1.0):
            for threshold in np.unique(sign * np.concatenate((low[:half], high[:half]))):
                found = _epsilon(sign * low[:half] >= threshold, sign * high[:half] >= threshold, delta, confidence)
                if found > best:
                    best, chosen = found, (sign, float(threshold), low, high)
    sign, threshold, low, high = chosen
    return max(0.0, _epsilon(sign * low[half:] >= threshold, sign * high[half:] >= threshold, delta, confidence))


def _epsilon(wrong: BoolArray, right: BoolArray, delta: float, confidence: float) -> float:
    """ln((p_right - delta) / p_wrong) at the ends of their intervals, each with half of what may go wrong."""
    tail = (1.0 - confidence) / 2.0
    hits, misses = int(right.sum()), int(wrong.sum())
    least = 0.0 if hits == 0 else beta_quantile(tail, hits, len(right) - hits + 1)
    most = 1.0 if misses == len(wrong) else beta_quantile(1.0 - tail, misses + 1, len(wrong) - misses)
    return math.log((least - delta) / most) if least > delta else -math.inf


# --- the runs -------------------------------------------------------------------------------------------


def _collect(
    tables: dict[PartyName, PartyTable],
    other: dict[PartyName, PartyTable],
    config: TrainingConfig,
    repeats: int,
    statistic: Callable[[Mapping[PartyName, View], Truth], float],
) -> tuple[Float64Array, Float64Array]:
    """The statistic of `repeats` runs on each table, each run with randomness of its own.

    The statistic always takes the first table for true: it is the attacker's hypothesis.
    """
    found: list[list[float]] = [[], []]
    for side, trained in enumerate((tables, other)):
        for _ in range(repeats):
            secrets = {name: JobRandomness() for name in tables}
            run = simulate_training(trained, "bank", "sealed", config, record="payload", randomness=secrets)
            found[side].append(statistic(*views_of_simulation(run, tables, config, randomness=secrets)))
    return np.array(found[0]), np.array(found[1])


def _label_statistic(views: Mapping[PartyName, View], truth: Truth) -> float:
    """What the noisy leaves with the first row hold beside all other rows of them: its own gradient and noise."""
    view = views["bank"]
    skeleton = None if view.part is None else view.part.skeleton
    if skeleton is None:
        raise TypeError("a run that ended has a skeleton")
    labels, margin, total = truth.labels("bank"), np.full(ROWS, skeleton.base_margin[0]), 0.0
    for number, tree in enumerate(skeleton.trees):
        chance = sigmoid(margin)
        gradient, leaf = chance - labels, leaf_of_rows(view, number)
        inside = leaf == leaf[0]
        hessian = float((chance * (1 - chance))[inside].sum())
        noisy = -float(tree.weight[leaf[0]]) / skeleton.config.learning_rate * (hessian + skeleton.config.reg_lambda)
        total += noisy - float(gradient[inside].sum())
        margin = margin + tree.weight[leaf]
    return total


def _cell_statistic(views: Mapping[PartyName, View], truth: Truth) -> float:
    """How much the sums at roots differ from the first table's where the first row would come from and go to."""
    seen, block = histograms(views["bank"], truth, "shop", np.random.default_rng(0)), truth.block("shop")
    if seen is None or block.shared is None:
        raise TypeError("the active party of a run of sealed reads sums")
    bins = block.shared.bins[0][:, 0].astype(np.int64)
    last, total = seen.layout.slots - 1, 0.0
    source, target = int(bins[0]), last if bins[0] <= last // 2 else 0
    for node in seen.nodes:
        if node.depth == 0:
            off = node.sums.astype(np.float64)
            np.subtract.at(off, bins[node.rows], node.gradients)
            own = node.gradients[node.rows == 0][0] / np.array([2.0**GRID, 1.0])
            total += float((off[target] - off[source]) / np.array([2.0**GRID, 1.0]) @ own)
    return total


def _config(options: dict[str, Any], seed: int) -> TrainingConfig:
    return TrainingConfig(
        objective="binary",
        n_estimators=TREES,
        max_depth=1,
        max_bin=4,
        learning_rate=0.1,
        categories="onehot",
        seed=seed,
        options=options,
    )


def _tables(seed: int) -> dict[PartyName, PartyTable]:
    rng = np.random.default_rng(seed)
    ids = np.arange(ROWS)
    values = rng.normal(size=(2, ROWS)).astype(np.float32)
    labels = (np.arange(ROWS) % 2).astype(np.float64)
    return {
        "bank": PartyTable(ids, (Column("income", values[0]),), labels),
        "shop": PartyTable(ids, (Column("spent", values[1]),)),
    }


def _label(table: PartyTable) -> Float64Array:
    if table.label is None:
        raise TypeError("the active table has labels")
    return table.label


def _with_label(table: PartyTable, label: float) -> PartyTable:
    changed = _label(table).copy()
    changed[0] = label
    return PartyTable(table.ids, table.columns, changed)
