"""The attacks on `masked`: what works, what its paper tried, and controls that show what each one needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support import make_columns, make_labels, split_among
from veilboost.audit.attacks import (
    attack,
    masked_network,
    masked_projection,
    masked_sphere,
    masked_split_likelihood,
    masked_split_search,
    masked_stacking,
)
from veilboost.audit.attacks.masked import (
    RootMasks,
    balanced_bits,
    features_of,
    gradients_of,
    masked_node,
    nested_cuts,
    smallest_sum,
    true_vectors,
)
from veilboost.audit.replay import rounds
from veilboost.audit.sources import views_of_simulation
from veilboost.config import TrainingConfig
from veilboost.party.simulation import simulate_training
from veilboost.protocols.masked.messages import Masks

pytestmark = pytest.mark.fast

W3 = {"budget": "release", "eps_ap": 4.0, "noise_vectors": 3, "eps_pp": 3.0}  # Theorem 3 needs eps_PP above 3 ln 2


def played(options: dict | None = None, rows: int = 300, objective: str = "binary", labels: str = "", **parameters):
    """Views and truth of a small run; `labels` are made for another objective where that is `auto`."""
    defaults = {"objective": objective, "n_estimators": 2, "max_depth": 2, "max_bin": 8, "categories": "ordinal"}
    config = TrainingConfig.from_dict(defaults | parameters | {"options": options or {}})
    columns = make_columns(4, rows)
    tables = split_among(columns, make_labels(4, columns, labels or objective.replace("auto", "binary")), 2)
    # Whether an attack succeeds has no computed probability: the noise is the same in every run.
    run = simulate_training(tables, "p0", "masked", config, record="payload", unsafe_noise_seed=0)
    return views_of_simulation(run, tables)


def finding(how, views, truth, adversary: str = "p1", victim: str = "p0"):
    return attack(how, views[adversary], truth, victim, np.random.default_rng(0))


# --- labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["binary", "multiclass"])
@pytest.mark.parametrize("options", [{}, W3, {**W3, "chunk_megabytes": 0.001}], ids=["W=1", "W=3", "W=3 in chunks"])
def test_projection_and_stacking_give_the_labels(options, objective):
    views, truth = played(options, objective=objective)
    for how in (masked_projection, masked_stacking):
        found = finding(how, views, truth)
        assert found is not None
        assert found.outcome.value == 1.0
        assert found.succeeded


def test_an_objective_left_open_hides_no_classes_and_makes_none():
    views, truth = played(objective="auto")
    assert all(finding(how, views, truth).outcome.value == 1.0 for how in (masked_projection, masked_stacking))
    views, truth = played({"clip": 4000.0}, objective="auto", labels="regression")
    assert all(finding(how, views, truth) is None for how in (masked_projection, masked_stacking, masked_sphere))


def test_one_noise_vector_is_added_or_subtracted_and_three_are_not():
    views, truth = played()
    found = finding(masked_sphere, views, truth)
    assert found is not None
    assert found.outcome.value == 1.0
    assert finding(masked_sphere, *played(W3)) is None


@pytest.mark.parametrize("objective", ["binary", "regression"])
def test_stacking_gives_exact_gradients_of_any_tree_and_loss(objective):
    options = W3 | ({"clip": 4000.0} if objective == "regression" else {})
    views, truth = played(options, objective=objective, n_estimators=3)
    last = rounds(views["p1"], "p0")[-1]
    node = masked_node(last.levels[0], 0, 3, most=2)
    assert node is not None
    g, h = gradients_of(node), gradients_of(node, 1)
    y = truth.labels("p0")
    if objective == "binary":
        chance = g + y  # g = p - y and h = p (1 - p) belong together only if both are right
        assert np.allclose(h, chance * (1 - chance), atol=1e-3)
        assert np.unique(np.round(chance, 3)).size > 2  # not the first tree
    else:
        assert np.allclose(h, 1.0, atol=0.05)
        assert np.unique(np.round(g + y, 0)).size < 20  # predictions of two trees have few values
    assert masked_stacking.run(views["p1"], truth, "p0", np.random.default_rng(0)) is None or objective == "binary"


def test_without_the_masks_there_is_nothing_to_project_off():
    """A control: the same attack with masks of somebody else's making."""
    views, truth = played(W3)
    rng = np.random.default_rng(1)

    def other(seen):
        if not isinstance(seen.message, Masks):
            return seen
        noise = rng.normal(size=seen.message.masks.size).astype(np.float32)
        return replace(seen, message=replace(seen.message, masks=noise))

    view = replace(views["p1"], messages=tuple(map(other, views["p1"].messages)))
    for how in (masked_projection, masked_stacking):
        found = attack(how, view, truth, "p0", rng)
        assert found is not None
        assert abs(found.outcome.value - 0.5) < 0.12
        assert not found.succeeded


def test_the_papers_network_fails_where_projection_succeeds():
    views, truth = played(W3, n_estimators=1, max_depth=1)
    found = finding(masked_network, views, truth)
    assert found is not None
    assert not found.succeeded
    assert abs(found.outcome.value - 0.5) < 0.1
    assert finding(masked_projection, views, truth).succeeded


def test_the_network_learns_where_there_is_next_to_no_noise():
    """A control: it is a network that can learn."""
    views, truth = played({"sigma1": 0.01, "sigma2": 0.01}, n_estimators=1, max_depth=1)
    assert finding(masked_network, views, truth).outcome.value > 0.95


# --- splitting vectors --------------------------------------------------------------------------------------


def test_the_true_vectors_are_those_whose_noise_nearly_sums_to_nothing():
    """Scoring compares masks with the right candidates: with hardly any disturbing noise their active sums vanish."""
    views, truth = played({"sigma1": 1.0, "sigma2": 1e-4, "noise_vectors": 2}, n_estimators=1)
    roots = RootMasks.of(views["p0"], "p1", trees=1)
    assert roots is not None
    true = true_vectors(views["p0"], truth, "p1", roots.rounds[0])
    assert true is not None
    assert true.shape == (len(roots.masks), 300)
    left = np.abs((roots.masks * true[:, None]).sum(axis=2))
    right = np.abs((roots.masks * ~true[:, None]).sum(axis=2))
    assert left.max() < 0.02 < np.median(right)


def test_the_search_finds_a_tiny_set_and_no_large_one():
    rng = np.random.default_rng(3)
    true = np.zeros(14, dtype=bool)
    true[[1, 4, 6, 9, 12]] = True
    draws = rng.normal(size=(3, 5))
    masks = rng.normal(scale=np.sqrt(2), size=(3, 14))
    masks[:, true] = draws - np.roll(draws, 1, axis=1)  # active noise without disturbing noise
    assert np.array_equal(smallest_sum(masks, 5, rng), true)
    views, truth = played({"sigma1": 3.0, "sigma2": 1.0})
    found = finding(masked_split_search, views, truth, "p0", "p1")
    assert found is not None
    assert found.outcome.value < 0.6


def test_many_noise_vectors_of_a_large_ratio_show_who_is_left():
    options = {"sigma1": 10.0, "sigma2": 1.0, "noise_vectors": 3}
    views, truth = played(options, n_estimators=10, max_depth=1)
    found = finding(masked_split_likelihood, views, truth, "p0", "p1")
    assert found is not None
    assert found.outcome.value > 0.97
    assert found.succeeded


def test_the_default_budget_withstands_few_trees_and_not_as_many_as_a_job_has():
    """Theorem 3 speaks of one mask; a job of 100 trees and 64 bins makes 6300 for the same column and the same rows."""
    views, truth = played(n_estimators=3, max_depth=1)
    few = finding(masked_split_likelihood, views, truth, "p0", "p1")
    assert few is not None
    assert few.outcome.value < 0.65
    assert not few.succeeded
    columns = make_columns(4, 200, numeric=2)
    tables = split_among(columns, make_labels(4, columns), 2)
    config = TrainingConfig(objective="binary", n_estimators=100, max_depth=1, categories="ordinal")
    assert (config.n_estimators, config.max_bin, config.options) == (100, 64, {})
    run = simulate_training(tables, "p0", "masked", config, record="payload", unsafe_noise_seed=0)
    views, truth = views_of_simulation(run, tables)
    many = finding(masked_split_likelihood, views, truth, "p0", "p1")
    assert many is not None
    assert many.succeeded


def test_nested_cuts_help_each_other():
    """Few noise vectors: all cuts of a column together tell more than each by itself."""
    views, truth = played({"sigma1": 3.2, "sigma2": 1.0, "noise_vectors": 4}, n_estimators=1, max_depth=1)
    roots = RootMasks.of(views["p0"], "p1", trees=1)
    assert roots is not None
    first = features_of(views["p0"], "p1", roots)[0]
    assert len(first) == 7
    true = true_vectors(views["p0"], truth, "p1", roots.rounds[0])
    assert true is not None
    together = nested_cuts(roots.masks[first], 10.0)
    alone = np.concatenate([nested_cuts(roots.masks[[k]], 10.0) for k in first])
    assert np.mean(together == true[first]) > np.mean(alone == true[first]) + 0.05
    assert (together[1:] >= together[:-1]).all()


def test_columns_are_told_apart_by_the_scale_of_their_noise():
    """Cuts that send fewer than three rows left are missing, so the numbers of bins do not add up."""
    columns = make_columns(5, 400, numeric=5)
    columns[3].values[:398] = np.minimum(columns[3].values[:398], -1.0)  # most values are equal, few cuts are left
    tables = split_among(columns, make_labels(5, columns), 2)
    config = TrainingConfig(objective="binary", n_estimators=20, max_depth=1, max_bin=400, categories="ordinal")
    config = replace(config, options={"budget": "release"})  # whose scale grows with the rows
    run = simulate_training(tables, "p0", "masked", config, record="payload", unsafe_noise_seed=0)
    views, truth = views_of_simulation(run, tables)
    roots = RootMasks.of(views["p0"], "p1", trees=20)
    assert roots is not None
    true = true_vectors(views["p0"], truth, "p1", roots.rounds[0])
    assert true is not None
    found = features_of(views["p0"], "p1", roots)
    assert len(found) == 2
    for column in found:
        assert (true[column[1:]] >= true[column[:-1]]).all()


def test_noise_that_does_not_depend_on_sides_shows_none():
    """A control: the likelihood finds nothing where there is nothing."""
    rng = np.random.default_rng(8)
    true = rng.integers(16, size=200) <= np.arange(15)[:, None]
    guess = nested_cuts(rng.normal(size=(15, 60, 200)), 0.19)
    assert abs(balanced_bits(true, guess).mean() - 0.5) < 0.1


def test_noise_off_leaves_no_masks_to_look_at():
    views, truth = played({"sigma1": 0.0, "sigma2": 0.0})
    assert finding(masked_split_likelihood, views, truth, "p0", "p1") is None
    assert finding(masked_split_search, views, truth, "p0", "p1") is None
    assert finding(masked_stacking, views, truth).outcome.value == 1.0
