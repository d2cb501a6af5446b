"""Gradient-based one-side sampling: who is kept, who is drawn, and how much the drawn ones count."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from support import make_columns, make_labels, sha, split_among, train
from veilboost.boost import booster
from veilboost.boost.booster import LabelRows, amplification, sample_rows
from veilboost.boost.grower import SplitFinder
from veilboost.boost.metrics import metric_named
from veilboost.boost.objective import make_objective
from veilboost.boost.split import leaf_weights
from veilboost.config import TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.estimators import VerticalClassifier
from veilboost.fixedpoint import MAX_BITS, to_fixed

pytestmark = pytest.mark.fast


def goss(top_rate: float = 0.2, other_rate: float = 0.1, **others) -> TrainingConfig:
    return TrainingConfig(sampling="goss", top_rate=top_rate, other_rate=other_rate, **others)


class Listening(SplitFinder):
    """A finder that notes how rounds begin. With a large `min_child_weight` it is never asked for a split."""

    derives_siblings = True

    def __init__(self, config):
        self.config, self.rounds = config, []

    def begin_round(self, start):
        self.rounds.append(start)

    def leaf_weights(self, level, leaves, scale):
        return leaf_weights(level.totals[leaves], scale, self.config)


def rounds_of(config, y, weight=None, validation=None, classes=2):
    """The rounds that boosting stumps without a split starts from."""
    config = dataclasses.replace(config, min_child_weight=1e12)
    finder = Listening(config)
    objective = make_objective(config.objective, classes=classes)
    people = LabelRows(y, weight, validation)
    booster.train(finder, [1], people, objective, metric_named(objective.default_metric), config)
    return finder.rounds


@st.composite
def samples(draw):
    rows, trees = draw(st.integers(1, 60)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most = draw(st.sampled_from([1, 3, 2**30]))  # few values: many ties
    gradients = rng.integers(-most, most + 1, size=(trees, rows, 2)).astype(np.int32)
    pool = np.flatnonzero(rng.random(rows) < 0.8).astype(np.int32)
    top = draw(st.integers(1, 99))
    config = goss(top / 100, draw(st.integers(1, 100 - top)) / 100, random_state=draw(st.integers(0, 5)))
    return (pool if len(pool) else np.zeros(1, dtype=np.int32)), gradients, config


@given(samples())
def test_the_largest_are_kept_and_some_of_the_rest_drawn(case):
    pool, gradients, config = case
    sample = sample_rows(pool, gradients, 3, config)
    fit = pool[sample.drawn].tolist()
    kept = [row for row in fit if row not in sample.amplified]
    top, others = math.floor(len(pool) * config.top_rate), math.floor(len(pool) * config.other_rate)
    # The definition: order by size, of equal sizes by row, and take the first.
    size = {row: sum(abs(int(g)) for g in gradients[:, row, 0]) for row in pool.tolist()}
    by_size = sorted(size, key=lambda row: (-size[row], row))
    assert kept == sorted(by_size[: top if top + others else 1])
    assert len(sample.amplified) == others
    assert set(sample.amplified.tolist()) <= set(fit)
    again = sample_rows(pool, gradients, 3, config)
    assert (again.drawn == sample.drawn).all()


def test_the_draw_follows_the_seed_and_the_round():
    pool, gradients = np.arange(200, dtype=np.int32), np.zeros((1, 200, 2), dtype=np.int32)
    draws = {
        sample_rows(pool, gradients, number, goss(random_state=seed)).amplified.tobytes()
        for number in range(3)
        for seed in range(3)
    }
    assert len(draws) == 9


def test_every_row_of_the_rest_is_drawn_as_often():
    pool, gradients = np.arange(20, dtype=np.int32), np.zeros((1, 20, 2), dtype=np.int32)
    gradients[0, :4, 0] = 7
    times = np.zeros(20)
    for number in range(1000):
        times[sample_rows(pool, gradients, number, goss()).amplified] += 1
    assert (times[:4] == 0).all()
    assert (np.abs(times[4:] - 125) < 50).all()  # 2 of 16; the deviation is 10.5


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32),
    bits=st.sampled_from([8, 20, 30]),
    other_rate=st.sampled_from([0.05, 0.1, 0.35]),
    heaviest=st.sampled_from([None, 0.01, 3.0, 1e5]),
    objective=st.sampled_from(["binary", "multiclass", "regression", "poisson"]),
)
def test_the_drawn_count_more_on_the_grid_and_fit_its_range(seed, bits, other_rate, heaviest, objective):
    rng = np.random.default_rng(seed)
    y = rng.integers(3 if objective != "binary" else 2, size=60).astype(float)
    y[:3] = [0, 1, y[2]]
    weight = None if heaviest is None else rng.random(60) * heaviest
    validation = rng.random(60) < 0.2
    config = goss(0.3, other_rate, objective=objective, n_estimators=2, gradient_bits=bits)
    for start in rounds_of(config, y, weight, validation, classes=3):
        assert np.abs(start.gradients.astype(np.int64)).max() <= 2**MAX_BITS
        assert sorted([*start.fit, *start.routed]) == list(range(60))
        assert not validation[start.fit].any()
    # The first round again, by hand: whole numbers first, then weight and factor.
    start = rounds_of(config, y, weight, validation, classes=3)[0]
    made = make_objective(objective, classes=3)
    own = None if weight is None else weight[~validation]
    margin = np.repeat(made.base_margin(y[~validation], own, None)[:, None], 60, axis=1)
    g, h = made.gradients(margin, y, None)
    g[:, validation] = h[:, validation] = 0.0
    pool = np.flatnonzero(~validation).astype(np.int32)
    sample = sample_rows(pool, to_fixed(g, h, start.scale, weight), 0, config)
    assert start.fit.tolist() == pool[sample.drawn].tolist()
    unit = to_fixed(g, h, start.scale)
    for tree, row in np.ndindex(*g.shape):
        times = Fraction(1.0 if weight is None else weight[row])
        if row in sample.amplified:
            times *= Fraction(amplification(config))
        for got, whole in zip(start.gradients[tree, row], unit[tree, row], strict=True):
            assert abs(int(got) - int(whole) * times) <= Fraction(1, 2) + Fraction(1, 10**6)


def test_the_grid_is_coarser_where_the_factor_needs_room():
    y = np.arange(2000) % 2.0
    fine, coarse = (
        rounds_of(goss(0.2, rate, objective="binary", n_estimators=1, gradient_bits=28), y)[0] for rate in (0.4, 0.001)
    )
    assert amplification(goss(0.2, 0.001)) == pytest.approx(800)
    assert fine.scale.g_exponent == 28
    assert coarse.scale.g_exponent == 20
    assert np.abs(coarse.gradients[..., 0]).max() == 800 * 2**19


def test_classes_share_one_sample():
    y = np.random.default_rng(1).integers(3, size=300).astype(float)
    start = rounds_of(goss(objective="multiclass", n_estimators=1), y, classes=3)[0]
    assert start.gradients.shape[0] == 3
    assert len(start.fit) == 60 + 30


def test_the_first_sample_gives_away_the_rarer_class():
    """As the message that opens a round says."""
    y = (np.random.default_rng(2).random(1000) < 0.15).astype(float)
    start = rounds_of(goss(objective="binary", n_estimators=1), y)[0]
    assert set(np.flatnonzero(y)) <= set(start.fit.tolist())


def test_validation_rows_shape_nothing():
    columns = make_columns(3, rows=300, categorical=1)
    tables = split_among(columns, make_labels(3, columns), 3)
    config = goss(objective="binary", n_estimators=5, max_depth=4)
    without = train({name: table.take(np.arange(200)) for name, table in tables.items()}, config)
    assert sha(train(tables, config, held_out=np.arange(300) >= 200)) == sha(without)


@pytest.mark.parametrize("objective", ["binary", "multiclass", "regression"])
def test_the_model_does_not_depend_on_parties_or_threads(objective):
    columns = make_columns(1, rows=400, numeric=5, categorical=2, missing=0.1, distinct=40)
    y = make_labels(1, columns, objective)
    config = goss(objective=objective, n_estimators=4, max_depth=4, max_bin=16)
    reference = sha(train(split_among(columns, y, 2), config))
    for parties in (1, 3, 6):
        assert sha(train(split_among(columns, y, parties), config, threads=parties)) == reference
    assert sha(train(split_among(columns, y, 2), dataclasses.replace(config, random_state=1))) != reference


def test_two_shares_that_are_everything_change_nothing():
    columns = make_columns(4, rows=200)
    tables = split_among(columns, make_labels(4, columns), 2)
    config = TrainingConfig(objective="binary", n_estimators=4)
    everything = dataclasses.replace(config, sampling="goss", top_rate=0.5, other_rate=0.5)
    assert sha(train(tables, everything)) == sha(train(tables, config))


def test_a_third_of_the_rows_is_nearly_as_good():
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
    auc = {}
    for sampling in ("uniform", "goss"):
        model = VerticalClassifier(sampling=sampling, n_estimators=40, max_depth=4, max_bin=32)
        auc[sampling] = roc_auc_score(y_test, model.fit(X_train, y_train).predict_proba(X_test)[:, 1])
    assert auc["goss"] > auc["uniform"] - 0.03
    assert auc["goss"] > 0.95


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"sampling": "goss", "subsample": 0.5}, "subsample"),
        ({"sampling": "goss", "top_rate": 0.8, "other_rate": 0.3}, "sum to more than 1"),
        ({"top_rate": 0.3}, "need sampling='goss'"),
        ({"other_rate": 0.3}, "need sampling='goss'"),
    ],
)
def test_what_does_not_go_together_is_refused(wrong, named):
    with pytest.raises(UnsupportedCombination, match=named):
        TrainingConfig(**wrong)
