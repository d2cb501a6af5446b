"""Trees of depth 1 from sums of labels: kernels against NumPy, and the trees against those of `plain`."""

from types import SimpleNamespace

import numpy as np
import pytest

from support import make_columns, make_labels
from veilboost import _native
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import join
from veilboost.party.simulation import simulate_training
from veilboost.protocols.mal.stumps import ColumnPairs, Stumps, sums_by_slot

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_margins_move_by_the_bin_of_one_column(kind, threads):
    rng = np.random.default_rng(1)
    bins = rng.integers(7, size=(500_000, 3)).astype(kind)
    step, margin = rng.normal(size=7), rng.normal(size=len(bins))
    expected = margin + step[bins[:, 1]]
    (_native.add_by_bin_u8 if kind == np.uint8 else _native.add_by_bin_u16)(bins, 1, step, margin, threads)
    assert np.array_equal(margin, expected)


def test_logistic_pairs_are_those_of_the_loss():
    margin = np.concatenate((np.linspace(-40, 40, 4001), [-1e300, 1e300, 0.0]))
    pairs = np.empty((len(margin), 2), dtype=np.int32)
    _native.logistic_pairs(margin, pairs, 2.0**20, 2.0**22, 1)
    g, h = make_objective("binary").gradients(margin[None], np.zeros_like(margin), None)
    assert np.abs(pairs[:, 0] - np.rint(g[0] * 2.0**20)).max() <= 1
    assert np.abs(pairs[:, 1] - np.rint(h[0] * 2.0**22)).max() <= 1
    assert (pairs[:, 0] == np.rint(g[0] * 2.0**20)).mean() > 0.999


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("widths", "bits"), [([19] * 5, 20), ([3, 700, 700, 2, 200, 4, 9], 22), ([1], 8), ([40, 30], 20)]
)
def test_columns_two_at_a_time_give_the_sums_of_each(widths, bits, threads):
    """Against NumPy; more rows than a word takes, at the largest values that it takes."""
    rng = np.random.default_rng(4)
    rows = 60_000
    bins = np.stack([rng.integers(width, size=rows) for width in widths], axis=1).astype(np.uint16)
    block = SimpleNamespace(layout=SimpleNamespace(widths=np.array(widths), slots=sum(widths)))
    pairs = rng.integers(2**bits + 1, size=(2, rows, 2)).astype(np.int32)
    pairs[1] = 2**bits
    found = ColumnPairs(block, bins).sums(pairs, bits, threads)
    for tree in range(2):
        for part in range(2):
            expected = [np.bincount(bins[:, f], pairs[tree, :, part], width) for f, width in enumerate(widths)]
            assert np.array_equal(found[tree, :, part], np.concatenate(expected))
    with pytest.raises(IndexError):
        ColumnPairs(block, bins + np.uint16(1))


@pytest.mark.parametrize("categories", ["sets", "onehot", "ordinal"])
@pytest.mark.parametrize("name", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("least", [1, 400, 401])
def test_sums_of_labels_give_the_trees_of_plain(name, categories, least):
    columns = make_columns(3, rows=400, numeric=4, categorical=2, missing=0.1)
    label = make_labels(3, columns, name)
    config = TrainingConfig(
        objective=name, n_estimators=12, max_depth=1, max_bin=9, binning="width", categories=categories,
        colsample_bytree=0.7, gamma=0.5, min_node_rows=least, gradient_bits=20,
    )  # fmt: skip
    block = ColumnBlock.build(columns, 400, config)
    objective = make_objective(name, classes=3)
    rows = label[None] if name != "multiclass" else (label == np.arange(3)[:, None]).astype(float)
    base = objective.base_margin(label, None, None)
    grown = Stumps(block, sums_by_slot(block, rows), base, objective, config)
    grown.train()
    run = simulate_training({"a": PartyTable(np.arange(400), tuple(columns), label)}, "a", "plain", config)
    plain = join(run.shares)
    assert len(grown.trees) == len(plain.trees)
    for tree, other in zip(grown.trees, plain.trees, strict=True):
        assert np.array_equal(tree.left, other.left)
        if name == "regression":  # labels are summed before they meet the grid
            assert np.allclose(tree.weight, other.weight, rtol=1e-4, atol=1e-4)
        else:
            assert np.array_equal(tree.weight, other.weight)
    assert len(grown.rules) == sum(tree.nodes == 3 for tree in plain.trees)
