"""Epsilon from below: many small runs on two neighbouring tables, and how well anybody can tell which it was.

If a release is (epsilon, delta) private, no test that is right on one table with chance p can be wrong on the other
with less than exp(-epsilon) (p - delta). So a threshold on a statistic, chosen on a third of the runs, and
Clopper-Pearson bounds on its two rates in the others give an epsilon that the truth is not below, with confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from veilboost.audit.attacks.bins import histograms
from veilboost.audit.replay import leaf_of_rows
from veilboost.audit.solvers import beta_quantile
from veilboost.audit.sources import views_of_simulation
from veilboost.audit.view import Truth, View
from veilboost.boost.objective import sigmoid
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.crypto.fingerprint import content_digest
from veilboost.data.table import PartyTable
from veilboost.errors import ImpossibleParameter
from veilboost.party.simulation import simulate_training
from veilboost.privacy.discrete import cell_counts, noisy_cuts
from veilboost.protocols.sealed.parameters import cuts_event, cuts_sigma, options_of
from veilboost.protocols.sealed.spec import SPEC as SEALED
from veilboost.types import AnyArray, BoolArray, Column, Float32Array, Float64Array, PartyName

ROWS, TREES, DELTA, CONFIDENCE = 24, 2, 0.01, 0.95
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


def label_lower_bound(
    eps: float, repeats: int, seed: int = 0, delta: float = DELTA, confidence: float = CONFIDENCE
) -> LowerBound:
    """Of one person's label in `sealed`, against whoever has the model and knows all other labels."""
    config = _config({"eps": eps, "delta": delta, "selection_share": 0.01, "least_rows": 5}, seed)
    rng = np.random.default_rng(seed)
    labels = (np.arange(ROWS) % 2).astype(np.float64)
    tables = _tables(rng.normal(size=ROWS), labels, rng)
    changed = np.concatenate((1.0 - labels[:1], labels[1:]))  # the first person has the other label
    other = {**tables, "bank": replace(tables["bank"], label=changed)}
    pair = _collect(tables, other, config, repeats, _label_statistic)
    return LowerBound("labels", eps, lower_bound(*pair, delta, confidence), delta, repeats, confidence)


def feature_lower_bound(
    eps: float,
    repeats: int,
    seed: int = 0,
    delta: float = DELTA,
    cuts_move: bool = False,
    confidence: float = CONFIDENCE,
) -> LowerBound:
    """Of one person's passive record in `sealed` with `eps_features`, against the active party and its decrypted sums.

    The attacker knows both tables, and the bins that were used. In one pair of tables the column is categories, whose
    bins nobody moves; with `cuts_move` it is numbers, and the record's move would take a row of every bin into the next
    one if cuts were exact quantiles, in a column whose labels make that count.
    """
    options = {"eps": 1.0, "eps_features": eps, "delta_features": delta, "least_rows": 5}
    rng = np.random.default_rng(seed)
    if cuts_move:
        config = replace(_config(options, seed), n_estimators=1, max_bin=64)
        place = np.arange(256)
        alternate = np.where(place % 4 == 1, 1 - place // 4 % 2, np.where(place % 4 == 0, place // 4 % 2, 0))
        values, target = place.astype(np.float64), 300.0
        labels = alternate.astype(np.float64)
    else:
        config = replace(_config(options, seed), n_estimators=1)
        values, target = (np.arange(ROWS) % 4).astype(np.float64), 3.0
        labels = (np.arange(ROWS) // 4 % 2).astype(np.float64)
    moved = values.copy()
    moved[0] = target
    names = None if cuts_move else ("a", "b", "c", "d")
    tables = _tables(values, labels, rng, names)
    other = {**tables, "shop": _tables(moved, labels, rng, names)["shop"]}
    columns = values.astype(np.float32), moved.astype(np.float32)
    pair = _collect(tables, other, config, repeats, partial(_cell_statistic, columns))
    return LowerBound("features", eps, lower_bound(*pair, delta, confidence), delta, repeats, confidence)


def lower_bound(here: Float64Array, there: Float64Array, delta: float, confidence: float = CONFIDENCE) -> float:
    """From a statistic of independent runs on either table; 0 where nothing can be told."""
    if min(len(here), len(there)) < LEAST_RUNS:
        raise ImpossibleParameter(f"fewer than {LEAST_RUNS} runs tell nothing", "give more --repeats")
    first = min(len(here), len(there)) // 3
    best, chosen = -math.inf, (1.0, 0.0, here, there)
    # The threshold, its direction and which table counts as the first are all chosen on the first third.
    for low, high in ((here, there), (there, here)):
        for sign in (1.0, -1.0):
            for threshold in np.unique(sign * np.concatenate((low[:first], high[:first]))):
                found = _epsilon(sign * low[:first] >= threshold, sign * high[:first] >= threshold, delta, confidence)
                if found > best:
                    best, chosen = found, (sign, float(threshold), low, high)
    sign, threshold, low, high = chosen
    return max(0.0, _epsilon(sign * low[first:] >= threshold, sign * high[first:] >= threshold, delta, confidence))


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
    statistic: Callable[[Mapping[PartyName, View], Truth, int, JobRandomness], float],
) -> tuple[Float64Array, Float64Array]:
    """The statistic of `repeats` runs on each table, each run with randomness of its own.

    The statistic always takes the first table for true: it is the attacker's hypothesis.
    """
    found: list[list[float]] = [[], []]
    for side, trained in enumerate((tables, other)):
        for _ in range(repeats):
            run = simulate_training(trained, "bank", SEALED.name, config, record="payload")
            views, truth = views_of_simulation(run, tables)
            found[side].append(statistic(views, truth, side, run.secrets["shop"]))
    return np.array(found[0]), np.array(found[1])


def _label_statistic(views: Mapping[PartyName, View], truth: Truth, side: int, secret: JobRandomness) -> float:
    """What the noisy leaves with the first row hold beside all other rows of them: its own gradient and noise."""
    view = views["bank"]
    skeleton = None if view.part is None else view.part.skeleton
    if skeleton is None:
        raise TypeError("a run that ended has a skeleton")
    labels, margin, total = truth.labels("bank"), np.full(view.rows, skeleton.base_margin[0]), 0.0
    for number, tree in enumerate(skeleton.trees):
        chance = sigmoid(margin)
        gradient, leaf = chance - labels, leaf_of_rows(view, number)
        inside = leaf == leaf[0]
        hessian = float((chance * (1 - chance))[inside].sum())
        noisy = -float(tree.weight[leaf[0]]) / skeleton.config.learning_rate * (hessian + skeleton.config.reg_lambda)
        total += noisy - float(gradient[inside].sum())
        margin = margin + tree.weight[leaf].astype(np.float64)
    return total


def _cell_statistic(
    columns: tuple[Float32Array, Float32Array],
    views: Mapping[PartyName, View],
    truth: Truth,
    side: int,
    secret: JobRandomness,
) -> float:
    """How far the sums at the first root lie from one table's towards the other's, in the bins that were used."""
    seen = histograms(views["bank"], truth, "shop", np.random.default_rng(0))
    if seen is None:
        raise TypeError("the active party of a run of sealed reads sums")
    cuts = np.arange(0.5, 3.0, dtype=np.float32)  # one bin for each category
    if truth.tables["shop"].columns[0].categories is None:
        bins, options = truth.config.max_bin, options_of(truth.config)
        counts = cell_counts(columns[side])
        digest = content_digest(secret, repr(cuts_event(options, columns=1, number=0)), bins, counts)
        cuts = noisy_cuts(secret.for_request("cuts", digest), counts, bins, cuts_sigma(options, columns=1))
    root = seen.nodes[0]
    unit = np.array([2.0**truth.config.gradient_bits, 1.0])  # noise has the same size in units of the largest value
    here, there = (
        _sums_of(cuts.searchsorted(column[root.rows], side="right"), root.gradients / unit, seen.layout.slots)
        for column in columns
    )
    return float(((root.sums / unit - here) * (there - here)).sum())


def _sums_of(bins: AnyArray, gradients: Float64Array, slots: int) -> Float64Array:
    sums = np.zeros((slots, 2))
    np.add.at(sums, bins, gradients)
    return sums


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


def _tables(
    values: Float64Array, labels: Float64Array, rng: np.random.Generator, categories: tuple[str, ...] | None = None
) -> dict[PartyName, PartyTable]:
    spent = values.astype(np.float32 if categories is None else np.int32)
    ids = np.arange(len(values))
    income = rng.normal(size=len(values)).astype(np.float32)
    return {
        "bank": PartyTable(ids, (Column("income", income),), labels),
        "shop": PartyTable(ids, (Column("spent", spent, categories),)),
    }
