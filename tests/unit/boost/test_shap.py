"""TreeSHAP against Shapley values by their definition, over all subsets of features."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import pytest

from veilboost import _native
from veilboost.boost.grower import LEAF, Tree
from veilboost.boost.shap import LEAST_COVER, TreeShap, consistent_covers

pytestmark = pytest.mark.fast


def random_tree(rng: np.random.Generator, splits: int) -> Tree:
    """A tree whose leaves are split at random; few features, so that one often comes twice on a path."""
    left, leaves = [LEAF], [0]
    for _ in range(splits):
        node = leaves.pop(int(rng.integers(len(leaves))))
        left[node] = len(left)
        leaves += [len(left), len(left) + 1]
        left += [LEAF, LEAF]
    at = np.array(left, dtype=np.int32)
    cover = np.where(at == LEAF, rng.uniform(0.5, 9.0, len(at)), 0.0)
    for node in np.flatnonzero(at != LEAF)[::-1]:
        cover[node] = cover[at[node]] + cover[at[node] + 1]
    weight = np.where(at == LEAF, rng.normal(size=len(at)), 0.0).astype(np.float32)
    return Tree(at, np.where(at == LEAF, LEAF, 0).astype(np.int32), weight, np.zeros(len(at)), cover)


def expected(tree: Tree, feature: dict[int, int], goes_left: dict[int, bool], known: set[int], node: int = 0) -> float:
    """The mean over training rows that go where the row goes at splits by known features."""
    at = int(tree.left[node])
    if at == LEAF:
        return float(tree.weight[node])
    if feature[node] in known:
        return expected(tree, feature, goes_left, known, at if goes_left[node] else at + 1)
    return sum(
        float(tree.cover[child] / tree.cover[node]) * expected(tree, feature, goes_left, known, child)
        for child in (at, at + 1)
    )


def by_definition(tree: Tree, feature: dict[int, int], goes_left: dict[int, bool], features: int) -> np.ndarray:
    found = np.zeros(features + 1)
    for one in range(features):
        others = [other for other in range(features) if other != one]
        for size in range(features):
            share = factorial(size) * factorial(features - size - 1) / factorial(features)
            for subset in combinations(others, size):
                with_it, without = {*subset, one}, set(subset)
                gain = expected(tree, feature, goes_left, with_it) - expected(tree, feature, goes_left, without)
                found[one] += share * gain
    found[-1] = expected(tree, feature, goes_left, set())
    return found


@pytest.mark.parametrize("threads", [1, 3])
def test_contributions_are_shapley_values(threads: int) -> None:
    rng = np.random.default_rng(3)
    features, rows, groups = 4, 9, 2
    trees = [random_tree(rng, splits) for splits in (0, 1, 3, 6, 9, 12)]
    inner = [np.flatnonzero(tree.left != LEAF) for tree in trees]
    feature = rng.integers(features, size=sum(map(len, inner))).astype(np.int32)
    went_left = rng.random((len(feature), rows)) < 0.5
    shap = TreeShap(trees, groups, feature, feature, features, threads)
    found = shap.contributions(np.packbits(went_left, axis=1), rows)
    wanted = np.zeros((rows, groups, features + 1))
    first = 0
    for number, (tree, nodes) in enumerate(zip(trees, inner, strict=True)):
        own = slice(first, first + len(nodes))
        names = dict(zip(nodes.tolist(), feature[own].tolist(), strict=True))
        for row in range(rows):
            directions = dict(zip(nodes.tolist(), went_left[own, row].tolist(), strict=True))
            wanted[row, number % groups] += by_definition(tree, names, directions, features)
        first += len(nodes)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_features_that_share_a_slot_are_summed_and_numbers_hold_within_a_tree() -> None:
    rng = np.random.default_rng(5)
    trees = [random_tree(rng, 10) for _ in range(4)]
    feature = rng.integers(3, size=40).astype(np.int32)
    went_left = np.packbits(rng.random((40, 20)) < 0.5, axis=1)
    alone = TreeShap(trees, 1, feature, feature, 3).contributions(went_left, 20)
    renumbered = np.concatenate([rng.permutation(100)[part] for part in np.split(feature, 4)]).astype(np.int32)
    slot = np.array([0, 1, 0], dtype=np.int32)[feature]
    summed = TreeShap(trees, 1, renumbered, slot, 2).contributions(went_left, 20)
    wanted = np.stack([alone[..., 0] + alone[..., 2], alone[..., 1], alone[..., 3]], axis=-1)
    np.testing.assert_allclose(summed, wanted, atol=1e-12)


def test_noised_covers_become_positive_and_add_up() -> None:
    left = np.array([1, 3, LEAF, LEAF, LEAF], dtype=np.int32)
    owner = np.where(left == LEAF, LEAF, 0).astype(np.int32)
    weight = np.array([0, 0, 1, 2, -1], dtype=np.float32)
    tree = Tree(left, owner, weight, np.zeros(5), np.array([8.0, 3.0, 6.0, -2.0, 4.0]))
    np.testing.assert_allclose(consistent_covers(tree), [10.0, 4.0, 6.0, LEAST_COVER, 4.0])
    numbers = np.arange(2, dtype=np.int32)
    bits = np.packbits(np.array([[1, 1, 0], [1, 0, 0]]), axis=1)
    found = TreeShap([tree], 1, numbers, numbers, 2).contributions(bits, 3)
    np.testing.assert_allclose(found.sum(axis=(1, 2)), [2.0, -1.0, 1.0])


def test_arrays_that_do_not_fit_are_refused() -> None:
    ints, longs = (lambda *v: np.array(v, dtype=np.int32)), (lambda *v: np.array(v, dtype=np.int64))
    good = {
        "first": longs(0, 3),
        "left": ints(1, -1, -1),
        "feature": ints(0, -1, -1),
        "slot": ints(0, -1, -1),
        "cover": np.ones(3),
        "weight": np.ones(3),
        "group": ints(0),
        "went_left": np.zeros((1, 1), dtype=np.uint8),
        "out": np.zeros((8, 1, 2)),
    }
    _native.tree_shap(*good.values(), 1)
    for changed in (
        {"first": longs(0, 4)},
        {"first": longs(1, 3)},
        {"left": ints(0, -1, -1)},
        {"left": ints(2, -1, -1)},
        {"slot": ints(1, -1, -1)},
        {"slot": ints(-1, -1, -1)},
        {"cover": np.array([1.0, 0.0, 1.0])},
        {"cover": np.array([1.0, np.nan, 1.0])},
        {"weight": np.ones(2)},
        {"group": ints(1)},
        {"went_left": np.zeros((2, 1), dtype=np.uint8)},
        {"out": np.zeros((9, 1, 2))},
    ):
        with pytest.raises(ValueError, match="tree_shap"):
            _native.tree_shap(*(good | changed).values(), 1)
