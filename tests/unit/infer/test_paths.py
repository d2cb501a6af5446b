"""A passive party answers for at most one node of each level: honest walks pass, and deviating requests do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost.boost.grower import LEAF
from veilboost.config import TrainingConfig
from veilboost.errors import MalformedMessage
from veilboost.infer.joint import PredictionResponder
from veilboost.infer.messages import RouteAnswer, RouteRequest
from veilboost.infer.paths import Paths
from veilboost.model.share import SplitRecords

pytestmark = pytest.mark.fast


def records_of(nodes: list[tuple[int, int]]) -> SplitRecords:
    """Records of these nodes (tree, node)."""
    tree, node = (np.array(each, dtype=np.int32) for each in zip(*sorted(nodes), strict=True))
    nothing = np.zeros(len(tree), dtype=np.int32)
    floats, bits = nothing.astype(np.float32), nothing.astype(np.bool_)
    return SplitRecords(tree, node, nothing, floats, bits, nothing - 1, np.zeros((0, 1), dtype=np.bool_))


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def paths_of(records: SplitRecords, rows: int, depth: int) -> Paths:
    return Paths(records, np.zeros((1, rows), dtype=np.float32), depth)


def advance(paths: Paths, records: SplitRecords, at: np.ndarray, rows: np.ndarray) -> None:
    """Ask about each of these rows at the node of its record."""
    starts = np.arange(len(at) + 1, dtype=np.int32)
    paths.answer(RouteRequest(records.tree[at], records.node[at], starts, rows, np.full(len(at), -1, dtype=np.int32)))


def grown(rng: np.random.Generator) -> tuple[int, list[tuple[int, int]]]:
    """A depth, and the splits (number, left child) of a tree that grows level by level."""
    depth, level, size, splits = int(rng.integers(1, 7)), [0], 1, []
    for _ in range(depth):
        children = []
        for node in level:
            if rng.random() < 0.7:
                splits.append((node, size))
                children += [size, size + 1]
                size += 2
        level = children
    return depth, splits or [(0, 1)]


@pytest.mark.parametrize("seed", range(50))
def test_every_walk_from_the_root_passes(seed):
    rng = np.random.default_rng(seed)
    depth, splits = grown(rng)
    owned = [splits[at] for at in np.flatnonzero(rng.random(len(splits)) < 0.6)] or splits
    records = records_of([(0, node) for node, _ in owned])
    paths, children, at = paths_of(records, 8, depth), dict(splits), dict.fromkeys(range(8), 0)
    while at:
        for row, node in list(at.items()):
            if node not in children:
                del at[row]
                continue
            here = np.flatnonzero(records.node == node).astype(np.int32)
            advance(paths, records, here, np.full(len(here), row, dtype=np.int32))
            at[row] = children[node] + int(rng.integers(2))


@pytest.mark.parametrize("seed", range(50))
def test_a_row_gets_no_more_nodes_than_levels_in_any_order(seed):
    rng = np.random.default_rng(seed)
    depth, splits = grown(rng)
    records = records_of([(0, node) for node, _ in splits])
    paths, answered = paths_of(records, 1, depth), 0
    for record in rng.permutation(len(splits)):
        try:
            advance(paths, records, ints(record), ints(0))
            answered += 1
        except MalformedMessage:
            continue
    assert answered <= depth


def test_which_nodes_may_follow_each_other():
    records = records_of([(tree, node) for tree in (3, 7) for node in range(15)])
    for second, passes in ((0, False), (1, False), (3, False), (4, False), (5, True), (7, True), (14, True)):
        paths = paths_of(records, 2, 4)
        advance(paths, records, ints(4), ints(1))
        advance(paths, records, ints(15 + 4, 4), ints(1, 0))  # another tree, another row
        if passes:  # as far as their numbers tell
            advance(paths, records, ints(second), ints(1))
            with pytest.raises(MalformedMessage):
                advance(paths, records, ints(13), ints(1))  # the last level was reached
        else:
            with pytest.raises(MalformedMessage):
                advance(paths, records, ints(second), ints(1))
    paths = paths_of(records, 1, 4)
    with pytest.raises(MalformedMessage):
        advance(paths, records, ints(0, 1), ints(0, 0))  # two nodes in one request
    advance(paths, records, ints(0), ints(0))  # what was refused changed nothing
    with pytest.raises(MalformedMessage):
        advance(paths_of(records, 1, 3), records, ints(7), ints(0))  # deeper than the job allows


@pytest.mark.parametrize("protocol", ["plain", "federboost"])
def test_the_levels_of_trained_trees_have_these_numbers(protocol):
    columns = make_columns(9, 300, numeric=6)
    tables = split_among(columns, make_labels(9, columns, "binary"), 2)
    for tree in train(tables, TrainingConfig(n_estimators=5, max_depth=5), protocol).shares["p0"].skeleton.trees:
        level = np.zeros(tree.nodes, dtype=int)
        for node in np.flatnonzero(tree.left != LEAF):
            level[tree.left[node] : tree.left[node] + 2] = level[node] + 1
        numbers = np.arange(tree.nodes)
        assert (np.maximum(2 * level - 1, 0) <= numbers).all()
        assert (numbers <= 2 ** (level + 1) - 2).all()


def test_a_responder_answers_no_more_than_a_path():
    columns = make_columns(9, 200, numeric=4, categorical=2)
    tables = split_among(columns, make_labels(9, columns, "binary"), 2)
    share = train(tables, TrainingConfig(n_estimators=3, max_depth=4)).shares["p1"]
    responder = PredictionResponder(share, share.matrix(tables["p1"].columns, 200), 4)
    records, answered = share.records, 0
    for record in range(records.count):
        request = RouteRequest(records.tree[[record]], records.node[[record]], ints(0, 1), ints(7), ints(-1))
        try:
            assert isinstance(responder.handle(request), RouteAnswer)
            answered += 1
        except MalformedMessage:
            continue
        assert isinstance(responder.handle(replace(request, rows=ints(record + 8))), RouteAnswer)
    assert answered <= 3 * 4 < records.count
