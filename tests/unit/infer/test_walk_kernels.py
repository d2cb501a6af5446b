"""The kernels of joint predictions agree with what they mean, written in Python, and refuse arrays that do not fit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost import _native
from veilboost.boost.grower import LEAF
from veilboost.config import TrainingConfig
from veilboost.errors import MalformedMessage
from veilboost.infer.joint import Routes, Walk
from veilboost.infer.messages import RouteRequest
from veilboost.infer.paths import Paths
from veilboost.model.share import ModelShare, SplitRecords

pytestmark = pytest.mark.fast
ROWS, DEPTH = 24, 5


@pytest.fixture(scope="module")
def shares() -> dict[str, ModelShare]:
    columns = make_columns(5, 300, numeric=4, categorical=3, missing=0.2)
    config = TrainingConfig(n_estimators=6, max_depth=DEPTH)
    return dict(train(split_among(columns, make_labels(5, columns, "binary"), 3), config).shares)


def values_for(share: ModelShare, rng: np.random.Generator) -> np.ndarray:
    """Small codes and numbers, and what no table should hold."""
    values = rng.normal(size=(len(share.columns), ROWS)).astype(np.float32)
    values[rng.random(values.shape) < 0.4] = rng.integers(-2, 40)
    values[rng.random(values.shape) < 0.2] = np.nan
    values[rng.random(values.shape) < 0.05] = np.inf
    values[rng.random(values.shape) < 0.05] = -np.inf
    return values


def by_rule(records: SplitRecords, record: int, value: np.float32) -> bool:
    rule = records.rule(record)
    if np.isnan(value):
        return rule.default_left
    if rule.left_set is None:
        return bool(value < rule.threshold)
    return any(value == member for member in rule.left_set)


@pytest.mark.parametrize("seed", range(5))
def test_rules_send_values_left(shares, seed):
    rng, share = np.random.default_rng(seed), shares["p1"]
    records, values = share.records, np.trunc(values_for(share, rng))
    at = rng.integers(records.count, size=500).astype(np.int32)
    rows = rng.integers(ROWS, size=500).astype(np.int32)
    expected = [by_rule(records, r, values[records.feature[r], row]) for r, row in zip(at, rows, strict=True)]
    assert records.goes_left(values, at, rows).tolist() == expected
    assert records.goes_left(np.asfortranarray(values), at, rows).tolist() == expected


class Twin:
    """A passive party as the documentation describes it, pair by pair."""

    def __init__(self, records: SplitRecords, values: np.ndarray, max_depth: int) -> None:
        self.place = {key: at for at, key in enumerate(zip(records.tree.tolist(), records.node.tolist(), strict=True))}
        self.records, self.values, self.max_depth = records, values, max_depth
        self.least: dict[tuple[int, int], int] = {}

    def answer(self, request: RouteRequest) -> list[bool] | None:
        nodes = list(zip(request.tree.tolist(), request.node.tolist(), strict=True))
        if len(set(nodes)) != len(nodes) or any(node not in self.place for node in nodes):
            return None
        spans = list(zip(request.starts.tolist(), request.starts[1:].tolist(), strict=False))
        child: dict[int, int] = {}
        for k, after in enumerate(request.after.tolist()):
            if after == -1:
                continue
            fits = after >= 0 and after // 2 < k and nodes[after // 2][0] == nodes[k][0]
            if not fits or after in child or spans[k][0] != spans[k][1]:
                return None
            child[after] = k
        wave = [(k, row) for k, (low, high) in enumerate(spans) for row in request.rows[low:high].tolist()]
        answer: list[bool] = []
        while wave:
            reached = {}
            for k, row in wave:
                tree, node = nodes[k]
                level = max(int(math.log2(node + 1)), self.least.get((tree, row), 0))
                if (tree, row) in reached or level > min((node + 1) // 2, self.max_depth - 1):
                    return None
                reached[tree, row] = level + 1
            self.least |= reached
            further = []
            for k, row in wave:
                record = self.place[nodes[k]]
                left = by_rule(self.records, record, self.values[self.records.feature[record], row])
                answer.append(left)
                if (below := child.get(2 * k + (not left))) is not None:
                    further.append((below, row))
            wave = further
        return answer


def drawn(records: SplitRecords, rng: np.random.Generator) -> RouteRequest:
    """A request about some nodes, most of them after another one of their tree."""
    at = np.sort(rng.choice(records.count, size=int(rng.integers(1, 5)), replace=bool(rng.random() < 0.05)))
    after, counts, taken = [], [], set()
    for k, record in enumerate(at.tolist()):
        parents = [p for p in range(k) if records.tree[at[p]] == records.tree[record]]
        wanted = 2 * int(rng.choice(parents)) + int(rng.integers(2)) if parents and rng.random() < 0.9 else -1
        if wanted in taken and rng.random() < 0.9:
            wanted = -1
        taken.add(wanted)
        after.append(wanted)
        counts.append(int(rng.integers(0, 3)) if wanted == -1 or rng.random() < 0.02 else 0)
    rows = rng.integers(ROWS, size=sum(counts)).astype(np.int32)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return RouteRequest(records.tree[at], records.node[at], starts, rows, np.array(after, dtype=np.int32))


@pytest.mark.parametrize("seed", range(20))
def test_requests_are_answered_and_refused_as_documented(shares, seed):
    rng, share = np.random.default_rng(seed), shares[f"p{1 + seed % 2}"]
    values, answered, refused = np.trunc(values_for(share, rng)), 0, 0
    for _ in range(20):
        paths, twin = Paths(share.records, values, 4), Twin(share.records, values, 4)
        for _ in range(6):
            request = drawn(share.records, rng)
            expected = twin.answer(request)
            if expected is None:
                refused += 1
                with pytest.raises(MalformedMessage):
                    paths.answer(request)
                break  # what was noted of a refused request does not matter: the session ends
            found, answered = paths.answer(request), answered + 1
            assert len(found) == (len(expected) + 7) // 8
            assert np.unpackbits(found, count=len(expected)).tolist() == expected
    assert min(answered, refused) >= 5, "both happen"


def test_pairs_are_sorted_by_owner_and_node(shares):
    routes = Routes(shares["p0"].skeleton)
    walk = Walk(routes, ROWS)
    rng = np.random.default_rng(0)
    for _ in range(3):  # to random children
        walk.move(walk.moving, rng.integers(2, size=len(walk.moving)).astype(np.uint8))
        walk.settle()
    runs = np.diff(routes.run_starts) > 0  # an honest walk waits where a run begins
    walk.moving = walk.moving[runs[walk.nodes(walk.moving)]]
    waiting = walk.waiting()
    assert sum(len(pairs.index) for pairs in waiting.values()) == len(walk.moving) > 0
    for owner, pairs in waiting.items():
        nodes = walk.nodes(pairs.index)
        assert (routes.owner[nodes] == owner).all()
        assert (routes.left[nodes] != LEAF).all()
        assert (np.diff(nodes) >= 0).all()
        assert (np.diff(pairs.index)[np.diff(nodes) == 0] > 0).all(), "rows keep their order"
        request = walk.request(pairs, 100)
        assert len(request.tree) == pairs.asked == len(set(zip(request.tree, request.node, strict=True)))
        asked_about = np.repeat(routes.first[request.tree] + request.node, np.diff(request.starts))
        assert asked_about.tolist() == nodes.tolist()
        assert (request.rows == pairs.index % ROWS + 100).all()


def test_arrays_that_do_not_fit_are_refused(shares):
    share = shares["p1"]
    records, values = share.records, np.zeros((len(share.columns), ROWS), dtype=np.float32)
    ints = lambda *each: np.array(each, dtype=np.int32)  # noqa: E731
    longs = lambda *each: np.array(each, dtype=np.int64)  # noqa: E731
    for at, rows in ((ints(records.count), ints(0)), (ints(-1), ints(0)), (ints(0), ints(ROWS)), (ints(0, 0), ints(0))):
        with pytest.raises(ValueError, match="goes_left"):
            records.goes_left(values, at, rows)
    with pytest.raises(ValueError, match="no such split, column"):
        records.goes_left(values[:0], ints(0), ints(0))
    with pytest.raises(ValueError, match="splits: shapes"):
        replace(records, threshold=records.threshold[1:]).goes_left(values, ints(0), ints(0))

    routes = Routes(shares["p0"].skeleton)
    nodes, at = routes.nodes, routes.first.astype(np.int32)
    none, rules = np.full(nodes, -1, dtype=np.int32), records.rule_arrays
    for split_of, wrong in ((none[1:], longs(0)), (none, longs(len(at))), (none, longs(-1)), (none + 10**6, longs(0))):
        with pytest.raises(ValueError, match=r"walk|goes_left"):
            _native.walk_own(routes.left, split_of, *rules, values, at.copy(), wrong)
    with pytest.raises(ValueError, match="no such child"):
        _native.walk_own(routes.left + nodes, none + 1, *rules, values, at.copy(), longs(0))

    sizes, runs = np.empty((routes.owners, 2), dtype=np.int64), routes.run_starts
    for changed in ({"owner": routes.owner + 9}, {"runs": runs[1:]}, {"pairs": longs(len(at))}, {"at": at + nodes}):
        inputs = {"owner": routes.owner, "runs": runs, "at": at, "pairs": longs(0)} | changed
        with pytest.raises(ValueError, match="sort_pairs"):
            _native.sort_pairs(*inputs.values(), 1, longs(0), sizes)

    out = [ints(0), ints(0), ints(0, 0), ints(0), ints(0)]
    shapes = runs, routes.members, routes.after, routes.tree_of, routes.node_of
    for index in range(len(shapes)):
        wrong = [each[1:] if k == index else each for k, each in enumerate(shapes)]
        if index == 1:
            wrong[2] = wrong[2][1:]
        with pytest.raises(ValueError, match="route_request"):
            _native.route_request(*wrong, at, longs(0), 1, 0, *out)
    for pairs, walked in ((longs(0), 0), (longs(len(at)), 1), (longs(0), 1)):  # the last one: no room for the run
        with pytest.raises(ValueError, match="route_request"):
            _native.route_request(*shapes, at, pairs, walked, 0, *[each[:-1] for each in out[:3]], *out[3:])

    for pairs, follows in ((longs(len(at)), routes.follows), (longs(0), routes.follows[1:])):
        with pytest.raises(ValueError, match=r"walk|follow_route"):
            _native.follow_route(routes.left, follows, pairs, np.zeros(1, np.uint8), at.copy())
    with pytest.raises(ValueError, match="no such child"):
        _native.follow_route(routes.left + nodes, routes.follows, longs(0), np.zeros(1, np.uint8), at.copy())

    reached = np.zeros((records.trees, ROWS), dtype=np.uint8)
    asked = records.tree[:1], records.node[:1], ints(0, 1), ints(0), ints(-1)
    own = records.sorted_keys, *rules, values, *records.levels, DEPTH
    assert _native.answer_route(*own, reached, *asked, np.zeros(1, np.uint8)) == 1
    for wrong in (
        (records.sorted_keys[1:], *own[1:]),
        (*own[:7], records.levels[0][1:], *own[8:]),
        (*own[:7], records.levels[0] + 10**6, *own[8:]),
    ):
        with pytest.raises(ValueError, match="answer_route"):
            _native.answer_route(*wrong, reached, *asked, np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="no room"):
        _native.answer_route(*own, np.zeros_like(reached), *asked, np.zeros(0, np.uint8))
    with pytest.raises(ValueError, match="shapes"):
        _native.answer_route(*own, reached[:, 1:].copy(), *asked, np.zeros(1, np.uint8))
