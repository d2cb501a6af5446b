"""Whole trainings against a slow, obvious implementation of the same definition: every split, every leaf."""

from __future__ import annotations

import numpy as np
import pytest

from support import make_columns, make_labels, sha, split_among, train
from veilboost.boost.bins import ABOVE_ALL, propose_cuts
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import Scale, exponent_for
from veilboost.model.joined import join

pytestmark = pytest.mark.fast


class SlowTrees:
    """Greedy boosting, candidate by candidate and row by row."""

    def __init__(self, columns, y, config):
        self.columns, self.config = columns, config
        self.values = [np.where(c.values < 0, np.nan, c.values) if c.categories else c.values for c in columns]
        self.cuts = [propose_cuts(v, None, config.max_bin, config.binning) for v in self.values]
        objective = make_objective(
            config.objective,
            classes=int(y.max()) + 1 if config.objective == "multiclass" else 2,
            max_delta_step=config.max_delta_step,
            order=config.order,
        )
        self.step = objective.max_delta_step
        margin = np.repeat(objective.base_margin(y, None, None)[:, None], len(y), axis=1)
        self.trees = []
        for _ in range(config.n_estimators):
            g, h = objective.gradients(margin, y, None)
            bounds = objective.bounds(1.0, g, h)
            self.scale = Scale(*(exponent_for(b, config.gradient_bits) for b in bounds))
            gh = np.stack([np.rint(g * 2.0**self.scale.g_exponent), np.rint(h * 2.0**self.scale.h_exponent)], axis=-1)
            for k in range(len(g)):
                pairs = [(int(a), int(b)) for a, b in gh[k]]
                self.trees.append(self.grow(list(range(len(y))), pairs, 0, margin[k]))

    def value(self, total):
        g, h = total[0] * self.scale.g_unit, total[1] * self.scale.h_unit
        soft = np.sign(g) * max(abs(g) - self.config.reg_alpha, 0.0)
        w = -soft / (h + self.config.reg_lambda)
        return g, h, float(np.clip(w, -self.step, self.step)) if self.step > 0 else w

    def score(self, total):
        g, h, w = self.value(total)
        if self.step > 0:
            return -(2 * g * w + (h + self.config.reg_lambda) * w * w + 2 * self.config.reg_alpha * abs(w))
        soft = np.sign(g) * max(abs(g) - self.config.reg_alpha, 0.0)
        return soft * soft / (h + self.config.reg_lambda)

    def candidates(self, f, rows, gh):
        """(cut or left set, default left, left rows) in the canonical order."""
        v, column = self.values[f], self.columns[f]
        absent = [r for r in rows if np.isnan(v[r])]
        present = [r for r in rows if not np.isnan(v[r])]
        if column.categories and self.config.categories != "ordinal":
            codes = list(range(len(column.categories)))
            if self.config.categories == "sets":
                codes.sort(key=lambda c: self.value(self.total([r for r in present if v[r] == c], gh))[2])
            for c in range(len(codes)):
                members = [codes[c]] if self.config.categories == "onehot" else codes[: c + 1]
                left = [r for r in present if v[r] in members]
                yield frozenset(members), False, left
                if absent:
                    yield frozenset(members), True, left + absent
            return
        for cut in [*self.cuts[f], ABOVE_ALL]:
            left = [r for r in present if v[r] < cut]
            yield float(cut), False, left
            if absent:
                yield float(cut), True, left + absent

    @staticmethod
    def total(rows, gh):
        return sum(gh[r][0] for r in rows), sum(gh[r][1] for r in rows)

    def grow(self, rows, gh, depth, margin):
        total, best = self.total(rows, gh), None
        if depth < self.config.max_depth:
            for f in range(len(self.columns)):
                for where, default_left, left in self.candidates(f, rows, gh):
                    a = self.total(left, gh)
                    b = total[0] - a[0], total[1] - a[1]
                    if min(a[1], b[1]) * self.scale.h_unit < self.config.min_child_weight or min(a[1], b[1]) <= 0:
                        continue
                    gain = self.score(a) + self.score(b) - self.score(total)
                    if gain > 1e-6 and gain >= self.config.gamma and (best is None or gain > best[0]):
                        best = gain, self.columns[f].name, where, default_left, left
        if best is None:
            weight = np.float32(self.config.learning_rate * self.value(total)[2])
            margin[rows] += np.float64(weight)
            return float(weight)
        _, name, where, default_left, left = best
        right = sorted(set(rows) - set(left))
        return (
            name,
            where,
            default_left,
            self.grow(left, gh, depth + 1, margin),
            self.grow(right, gh, depth + 1, margin),
        )


def as_nested(model, tree, node=0):
    if tree.left[node] < 0:
        return float(tree.weight[node])
    categories = model.left_categories(tree, node)
    where = float(tree.threshold[node]) if categories is None else frozenset(categories)
    return (
        model.columns[tree.feature[node]].name,
        where,
        bool(tree.default_left[node]),
        as_nested(model, tree, tree.left[node]),
        as_nested(model, tree, tree.right[node]),
    )


CASES = {
    "binary": {"objective": "binary"},
    "ties": {"objective": "binary", "distinct": 3},
    "missing": {"objective": "binary", "missing": 0.2, "distinct": 6},
    "sets": {"objective": "binary", "categorical": 3, "missing": 0.1, "categories": "sets"},
    "onehot": {"objective": "binary", "categorical": 3, "missing": 0.1, "categories": "onehot"},
    "ordinal": {"objective": "binary", "categorical": 3, "missing": 0.1, "categories": "ordinal"},
    "multiclass": {"objective": "multiclass", "missing": 0.1},
    "regression": {"objective": "regression", "reg_alpha": 30.0, "gamma": 5.0},
    "poisson": {"objective": "poisson", "reg_lambda": 0.5},
    "first order": {"objective": "binary", "order": "first", "min_child_weight": 9},
    "width": {"objective": "regression", "binning": "width", "max_delta_step": 25.0},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("parties", [1, 3])
def test_training_equals_the_definition(case, parties):
    options = dict(CASES[case])
    data = {key: options.pop(key) for key in ("categorical", "missing", "distinct") if key in options}
    config = TrainingConfig.from_dict({"n_estimators": 3, "max_depth": 3, "max_bin": 8, "learning_rate": 0.5} | options)
    columns = make_columns(7, rows=90, numeric=3, **data)
    y = make_labels(7, columns, config.objective)
    model = join(train(split_among(columns, y, parties), config).shares)
    slow = SlowTrees(columns, y, config)
    assert len(model.trees) == len(slow.trees)
    for ours, theirs in zip(model.trees, slow.trees, strict=True):
        assert as_nested(model, ours) == theirs
    assert any(isinstance(tree, tuple) for tree in slow.trees), "the case splits at all"


@pytest.mark.parametrize("objective", ["binary", "multiclass", "regression", "poisson"])
@pytest.mark.parametrize("proposal", ["global", "local"])
def test_the_model_does_not_depend_on_parties_threads_or_row_order(objective, proposal):
    columns = make_columns(1, rows=400, numeric=5, categorical=2, missing=0.1, distinct=40)
    y = make_labels(1, columns, objective)
    config = TrainingConfig(
        objective=objective,
        n_estimators=4,
        max_depth=4,
        max_bin=16,
        proposal=proposal,
        subsample=0.8,
        colsample_bytree=0.7,
    )
    reference = sha(train(split_among(columns, y, 2), config))
    for parties in (1, 3, 6, 7):
        assert sha(train(split_among(columns, y, parties), config, threads=parties)) == reference
    other = TrainingConfig.from_dict(config.to_dict() | {"random_state": 1})
    assert sha(train(split_among(columns, y, 2), other)) != reference


def test_an_active_party_may_have_no_columns():
    columns = make_columns(2, rows=100)
    y = make_labels(2, columns)
    config = TrainingConfig(objective="binary", n_estimators=3)
    tables = {"p0": split_among(columns, y, 1)["p0"], "labels": split_among(columns, y, 1)["p0"].select([])}
    tables["p0"] = tables["p0"].without_label()
    from veilboost.party.simulation import simulate_training

    alone = simulate_training(tables, "labels", "plain", config)
    assert sha(alone) == sha(train(split_among(columns, y, 2), config))


def test_validation_rows_shape_nothing():
    columns = make_columns(3, rows=300, categorical=1)
    y = make_labels(3, columns)
    config = TrainingConfig(objective="binary", n_estimators=5, max_depth=4)
    tables = split_among(columns, y, 3)
    held_out = np.arange(300) >= 200
    with_validation = train(tables, config, held_out=held_out)
    without = train({name: table.take(np.arange(200)) for name, table in tables.items()}, config)
    assert sha(with_validation) == sha(without)
    assert all(result.validation is not None for result in with_validation.history)


def test_early_stopping_keeps_the_best_round():
    columns = make_columns(4, rows=300)
    y = make_labels(4, columns)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(300) < 0.3, 1 - y, y)  # noise, so that boosting overfits
    config = TrainingConfig(objective="binary", n_estimators=100, early_stopping_rounds=5, eval_metric="logloss")
    simulation = train(split_among(columns, y, 2), config, held_out=np.arange(300) >= 150)
    curve = [result.validation for result in simulation.history]
    assert len(curve) < 100
    kept = len(join(simulation.shares).trees)
    assert kept == int(np.argmin(curve)) + 1
    assert len(curve) == kept + 5
    trees = {int(tree) for part in simulation.shares.values() for tree in part.records.tree}
    assert max(trees) < kept, "owners forget the splits of trees that were dropped"


def test_integer_weights_count_as_repetition():
    columns = make_columns(5, rows=120)
    y = make_labels(5, columns)
    times = np.random.default_rng(5).integers(1, 4, size=120)
    config = TrainingConfig(objective="binary", n_estimators=4, max_bin=256)
    weighted = train(split_among(columns, y, 2, weight=times.astype(float)), config)
    rows = np.repeat(np.arange(120), times)
    repeated = split_among([column.take(rows) for column in columns], y[rows], 2)
    assert sha(weighted) == sha(train(repeated, config))
