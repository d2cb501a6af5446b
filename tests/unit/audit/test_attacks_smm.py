"""The attacks on `smm1` and `smm2`, and the solver behind them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import make_columns, make_labels, split_among
from veilboost.audit.attacks import attack, smm1_columns, smm1_labels, smm2_columns, smm2_program, smm2_stacking
from veilboost.audit.attacks.smm import masked_blocks, stacked, union_of_bins
from veilboost.audit.replay import rounds
from veilboost.audit.solvers import two_valued, used_vectors
from veilboost.audit.sources import views_of_simulation
from veilboost.config import TrainingConfig
from veilboost.party.simulation import simulate_training
from veilboost.protocols.smm2.messages import Smm2Options

pytestmark = pytest.mark.fast


def played(protocol: str, options: dict | None = None, rows: int = 200, objective: str = "binary", **parameters):
    """Views and truth of a small run."""
    defaults = {"objective": objective, "n_estimators": 2, "max_depth": 2, "max_bin": 8}
    config = TrainingConfig.from_dict(defaults | parameters | {"options": options or {}})
    columns = make_columns(4, rows)
    label = make_labels(4, columns, objective.replace("auto", "binary"))
    if objective in ("auto", "binary"):
        label *= columns[0].values > 0  # fewer ones than zeros, so that p is not one half
    tables = split_among(columns, label, 2)
    # Whether an attack succeeds has no computed probability: the noise is the same in every run.
    run = simulate_training(tables, "p0", protocol, config, record="payload", unsafe_noise_seed=0)
    return views_of_simulation(run, tables)


def finding(how, views, truth, adversary: str = "p1", victim: str = "p0"):
    found = attack(how, views[adversary], truth, victim, np.random.default_rng(0))
    assert found is not None
    return found


# --- the solver ---------------------------------------------------------------------------------------------


def behind(x: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    return x - hidden @ (hidden.T @ x)


# Behind 35 % of the vectors the linear program misses a column in about one draw of two hundred: the draws are fixed.
@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32), share=st.sampled_from([0.02, 0.2, 0.35]), low=st.floats(-3, 3), width=st.floats(0.1, 9)
)
def test_two_values_are_found_behind_fewer_than_half_of_the_vectors(seed, share, low, width):
    rng = np.random.default_rng(seed)
    rows = 80
    high = rng.random((rows, 2)) < 0.4
    hidden = np.linalg.qr(rng.normal(size=(rows, int(share * rows))))[0]
    guess, fits = two_valued(behind(np.where(high, low + width, low), hidden), hidden, low, low + width, rng)
    assert fits.all()
    assert np.array_equal(guess, high)


def test_beyond_half_it_knows_that_it_does_not_know():
    rng = np.random.default_rng(5)
    high = rng.random((80, 1)) < 0.5
    hidden = np.linalg.qr(rng.normal(size=(80, 64)))[0]
    guess, fits = two_valued(behind(high.astype(float), hidden), hidden, 0.0, 1.0, rng)
    assert not fits.any()
    assert np.mean(guess == high) < 0.9


def test_vectors_that_were_used_are_told_from_the_others():
    rng = np.random.default_rng(6)
    kernel = np.linalg.qr(rng.normal(size=(100, 20)))[0]
    data = rng.normal(size=(100, 2))
    hidden, seen = used_vectors(kernel, behind(data, kernel[:, 3:9]))
    assert np.array_equal(hidden, kernel[:, 3:9])
    rotated = kernel @ np.linalg.qr(rng.normal(size=(20, 8)))[0]
    hidden, seen = used_vectors(kernel, behind(data, rotated))
    assert hidden.shape == (100, 20)
    assert np.allclose(seen, behind(data, kernel))


# --- smm1 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"r": 200, "share": 0.4}, {"r": 200, "share": 0.4, "rotate": True}],
    ids=["default", "many", "rotated"],
)
def test_smm1_shows_every_bin(options):
    found = finding(smm1_columns, *played("smm1", options, max_bin=4), "p0", "p1")
    assert found.outcome.value == 1.0
    assert found.outcome.baseline < 0.5
    assert found.succeeded


def test_smm1_shows_every_bin_of_rows_and_columns_that_a_round_samples():
    views, truth = played("smm1", subsample=0.6, colsample_bytree=0.5)
    assert finding(smm1_columns, views, truth, "p0", "p1").outcome.value == 1.0


def test_smm1_with_a_bound_on_what_is_revealed_withstands():
    views, truth = played("smm1", {"r": 200, "share": 0.95, "revealed": 0.2}, max_bin=4)
    found = finding(smm1_columns, views, truth, "p0", "p1")
    assert found.outcome.value < 0.7
    assert not found.succeeded


def test_smm1_labels_need_many_vectors_and_known_labels():
    assert not finding(smm1_labels, *played("smm1")).succeeded
    many = finding(smm1_labels, *played("smm1", {"r": 200, "share": 0.9, "revealed": 0.2}))
    assert many.outcome.value == 1.0


# --- smm2 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"r": 200, "share": 0.4, "rotate": True}, {"r": 200, "share": 0.4}],
    ids=["default", "rotated", "many"],
)
def test_one_answer_of_smm2_shows_every_label(options):
    found = finding(smm2_program, *played("smm2", options))
    assert found.outcome.value == 1.0
    assert found.succeeded


@pytest.mark.parametrize("objective", ["binary", "multiclass"])
def test_stacking_shows_the_labels_in_the_last_tree(objective):
    found = finding(smm2_stacking, *played("smm2", objective=objective, n_estimators=3))
    assert found.outcome.value == 1.0


@pytest.mark.parametrize("how", [smm2_program, smm2_stacking])
def test_an_objective_left_open_hides_no_classes(how):
    assert finding(how, *played("smm2", objective="auto")).outcome.value == 1.0


def test_several_answers_give_the_gradients_of_any_loss_to_the_last_bit():
    """Each answer hides up to three tenths; answers of several blocks and levels together hide nothing."""
    views, truth = played("smm2", {"r": 200, "share": 0.3}, objective="regression", max_depth=3)
    options = Smm2Options.from_dict(views["p1"].config.options)
    last = rounds(views["p1"], "p0")[-1]
    blocks = [block for level in last.levels for block in masked_blocks(level, options)]
    assert len(blocks) > 2
    g, h = (stacked(blocks, 200, kind) for kind in (0, 1))
    assert np.abs(g - np.rint(g)).max() < 1e-2  # on the grid: these are the gradients themselves
    assert np.rint(g).sum() == blocks[0].totals[0]
    assert np.rint(h).sum() == blocks[0].totals[1]
    assert smm2_stacking.run(views["p1"], truth, "p0", np.random.default_rng(0)) is None  # it speaks of classes


def test_smm2_columns_show_only_under_nearly_all_vectors():
    views, truth = played("smm2", n_estimators=1, max_depth=1)
    few = finding(smm2_columns, views, truth, "p0", "p1")
    assert few.outcome.value == 0.0
    assert few.verdict == "resisted"
    options = {"r": 200, "share": 0.95, "l1": 0, "l2": 0}
    views, truth = played("smm2", options, n_estimators=1, max_depth=1)
    assert finding(smm2_columns, views, truth, "p0", "p1").succeeded


def test_a_corner_counts_only_if_it_is_made_of_whole_bins_of_one_column():
    bins = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]])
    assert union_of_bins(np.array([1, 1, 0, 0, 1, 1], dtype=bool), bins)
    assert union_of_bins(np.array([0, 1, 0, 1, 0, 1], dtype=bool), bins)
    assert not union_of_bins(np.array([1, 0, 0, 0, 1, 1], dtype=bool), bins)
    assert not union_of_bins(np.ones(6, dtype=bool), bins)
