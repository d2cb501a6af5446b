"""Every native kernel against an obvious NumPy twin."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from veilboost import _native
from veilboost.boost.bins import KIND_CODES, NO_SETS, BinLayout, Sets
from veilboost.boost.columns import NO_JOINT_BINS, JointBins
from veilboost.boost.split import left_sums
from veilboost.types import ColumnKind

pytestmark = pytest.mark.fast
KERNELS = {
    np.uint8: ("histogram_u8", "route_u8", "bin_columns_u8"),
    np.uint16: ("histogram_u16", "route_u16", "bin_columns_u16"),
}


def random_nodes(rng, rows, nodes, groups):
    """Disjoint runs of shuffled rows, one of them empty."""
    order = rng.permutation(rows).astype(np.int32)
    edges = np.sort(rng.integers(rows + 1, size=nodes - 1))
    edges = np.concatenate(([0], edges, [rows]))
    edges[1] = edges[0]
    begin, end = edges[:-1].astype(np.int64), edges[1:].astype(np.int64)
    return order, begin, end, rng.integers(groups, size=nodes).astype(np.int32)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(("rows", "largest"), [(1, 2**30), (50, 2**30), (120_000, 2**30), (120_000, 2**20)])
def test_histogram_equals_its_numpy_twin(dtype, threads, rows, largest):
    rng = np.random.default_rng(rows + threads)
    widths = rng.integers(1, 9 if dtype is np.uint8 else 400, size=6)
    offsets = np.concatenate(([0], np.cumsum(widths))).astype(np.int32)
    bins = np.stack([rng.integers(w, size=rows) for w in widths], axis=1).astype(dtype)
    gradients = rng.integers(-largest, largest, size=(2, rows, 2), endpoint=True).astype(np.int32)
    order, begin, end, group = random_nodes(rng, rows, 5, 2)
    out = np.full((5, offsets[-1], 2), 7, dtype=np.int64)
    getattr(_native, KERNELS[dtype][0])(
        bins, offsets, *NO_JOINT_BINS, gradients, order, begin, end, group, out, threads
    )

    expected = np.zeros_like(out)
    for k in range(5):
        own = order[begin[k] : end[k]]
        for f in range(6):
            np.add.at(
                expected[k], offsets[f] + bins[own, f].astype(np.int64), gradients[group[k], own].astype(np.int64)
            )
    np.testing.assert_array_equal(out, expected)

    totals = np.empty((5, 2), dtype=np.int64)
    _native.node_totals(gradients, order, begin, end, group, totals, threads)
    np.testing.assert_array_equal(totals, expected[:, : widths[0]].sum(axis=1))
    smaller, pairs = [2 * pair + (end - begin)[2 * pair : 2 * pair + 2].argmin() for pair in range(2)], slice(4)
    of_smaller = np.empty((2, 2), dtype=np.int64)
    _native.smaller_totals(gradients, order, begin[pairs], end[pairs], group[pairs], of_smaller, threads)
    np.testing.assert_array_equal(of_smaller, totals[smaller])
    with pytest.raises(ValueError, match="smaller_totals"):
        _native.smaller_totals(gradients, order, begin, end, group, of_smaller, threads)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("extreme", [2**20, 2**20 + 1])
def test_sums_at_the_limit_of_a_word_are_exact(dtype, extreme):
    """Up to 2^20, g and h of 2047 rows share 64 bits; a single larger value makes all later rows use 128."""
    rows = 7000
    gradients = np.empty((1, rows, 2), dtype=np.int32)
    gradients[..., 0], gradients[..., 1] = -(2**20), 2**20
    gradients[0, 5000] = extreme, -extreme
    bins = np.zeros((rows, 2), dtype=dtype)
    bins[::3, 1] = 1
    out = np.empty((1, 3, 2), dtype=np.int64)
    order, ends = np.arange(rows, dtype=np.int32), (np.array([0]), np.array([rows]))
    offsets, group = np.array([0, 1, 3], dtype=np.int32), np.zeros(1, dtype=np.int32)
    getattr(_native, KERNELS[dtype][0])(bins, offsets, *NO_JOINT_BINS, gradients, order, *ends, group, out, 1)
    wide = gradients[0].astype(np.int64)
    expected = [wide.sum(axis=0), wide[bins[:, 1] == 0].sum(axis=0), wide[bins[:, 1] == 1].sum(axis=0)]
    np.testing.assert_array_equal(out[0], expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("largest", [2**12, 32767, 32768, 2**30])
def test_groups_of_columns_give_the_same_sums(dtype, threads, largest):
    """65,535 rows with |g|, |h| up to 32767 share 64 bits; with larger values the columns are summed by themselves."""
    rng, rows = np.random.default_rng(threads), 150_000
    widths = np.array([33, 2, 33, 5, 400 if dtype is np.uint16 else 200, 1, 7, 33], dtype=np.int32)
    offsets = np.concatenate(([0], np.cumsum(widths))).astype(np.int32)
    bins = np.stack([rng.integers(w, size=rows) for w in widths], axis=1).astype(dtype)
    bins[:70_000] = 0  # sums that reach the limit
    gradients = np.empty((1, rows, 2), dtype=np.int32)
    gradients[...] = -largest, largest
    gradients[0, 70_000:] = rng.integers(-largest, largest, size=(rows - 70_000, 2), endpoint=True)
    nodes = (np.array([0, 120_000, 149_000]), np.array([120_000, 149_000, rows])), np.zeros(3, dtype=np.int32)
    order, ends, group = np.arange(rows, dtype=np.int32), *nodes
    joint = JointBins(widths, np.ascontiguousarray(bins.T))
    numbers, columns, counts = joint.for_rows(rows)
    assert numbers.shape == (rows, len(counts))
    assert len(counts) < len(widths)
    assert sorted(columns.tolist()) == list(range(len(widths)))
    assert joint.for_rows(100) is NO_JOINT_BINS
    sums = [np.empty((3, offsets[-1], 2), dtype=np.int64) for _ in range(2)]
    kernel = getattr(_native, KERNELS[dtype][0])
    for known, out in zip((NO_JOINT_BINS, (numbers, columns, counts)), sums, strict=True):
        kernel(bins, offsets, *known, gradients, order, *ends, group, out, threads)
    np.testing.assert_array_equal(*sums)
    counted = gradients.copy()
    counted[0, 5] += 1
    kernel(bins, offsets, numbers, columns, counts, counted, order, *ends, group, sums[1], threads)
    assert np.count_nonzero(sums[0] != sums[1]) == 2 * len(widths)
    for wrong in (
        (numbers[1:], columns, counts),
        (numbers, columns[1:], counts),
        (numbers, np.zeros_like(columns), counts),
        (numbers, columns + np.int32(1), counts),
        (numbers[:, 1:].copy(), columns, counts[1:]),
        (numbers[:, :1].copy(), columns, np.array([len(widths)], dtype=np.int32)),
    ):
        with pytest.raises(ValueError, match="histogram"):
            kernel(bins, offsets, *wrong, gradients, order, *ends, group, sums[1], threads)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize(("rows", "threads"), [(200, 1), (200_000, 3)])
def test_routes_and_row_groups(dtype, rows, threads):
    rng = np.random.default_rng(3)
    bins = rng.integers(5, size=(rows, 3)).astype(dtype)
    order, begin, end, _ = random_nodes(rng, rows, 4, 1)
    column = np.array([0, 2, 1, 2], dtype=np.int32)
    table = rng.integers(2, size=(4, 5)).astype(np.uint8)
    expected = np.concatenate([table[k, bins[order[begin[k] : end[k]], column[k]]] for k in range(4)])
    for matrix in (bins, np.asfortranarray(bins)):
        left = np.empty(rows, dtype=np.uint8)
        getattr(_native, KERNELS[dtype][1])(matrix, order, begin, end, column, table, left, threads)
        np.testing.assert_array_equal(left, expected)

    children, starts = np.empty(rows, dtype=np.int32), np.empty(9, dtype=np.int64)
    groups, none = (order, begin, end), np.zeros(4, dtype=np.int32)
    _native.split_rows(*groups, none, [left], [False], children, starts, threads)
    part_of = np.array([2, 0, 2, 0], dtype=np.int32)  # nobody has part 1
    of_0, of_2 = (left[(part_of == number).repeat(end - begin)] for number in (0, 2))
    parts, packed = [of_0, left[:0], np.packbits(of_2)], [False, True, True]
    again, same = np.empty_like(children), np.empty_like(starts)
    _native.split_rows(*groups, part_of, parts, packed, again, same, threads)
    assert again.tobytes() == children.tobytes()
    assert same.tobytes() == starts.tobytes()
    for wrong in ([of_0, of_0, parts[2]], [of_0[1:], left[:0], parts[2]], parts[:2]):
        with pytest.raises(ValueError, match="split_rows"):
            _native.split_rows(*groups, part_of, wrong, packed[: len(wrong)], again, same, threads)
    at = 0
    for k in range(4):
        own = order[begin[k] : end[k]]
        bits = left[at : at + len(own)]
        at += len(own)
        np.testing.assert_array_equal(children[starts[2 * k] : starts[2 * k + 1]], own[bits == 1])
        np.testing.assert_array_equal(children[starts[2 * k + 1] : starts[2 * k + 2]], own[bits == 0])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("times", "most", "threads"), [(200, 40, 1), (50, 900, 1), (3, 120_000, 3)])
def test_nodes_of_any_size_are_split_in_order(packed, times, most, threads):
    """Eight rows are moved together, from the first whole byte of assignments on; nothing else may be written."""
    rng = np.random.default_rng(11)
    for _ in range(times):
        counts = rng.integers(0, most, size=rng.integers(1, 9))
        end = np.cumsum(counts)
        begin, rows = end - counts, rng.permutation(end[-1]).astype(np.int32)
        left = (rng.random(end[-1]) < rng.random()).astype(np.uint8)
        room = np.full(end[-1] + 16, -1, dtype=np.int32)
        starts = np.empty(2 * len(counts) + 1, dtype=np.int64)
        bits = np.packbits(left) if packed else left * rng.integers(1, 256, size=end[-1]).astype(np.uint8)
        part_of = np.zeros(len(counts), dtype=np.int32)
        _native.split_rows(rows, begin, end, part_of, [bits], [packed], room[8:-8], starts, threads)
        nodes = [(rows[b:e], left[b:e] == 1) for b, e in zip(begin, end, strict=True)]
        children = [own[side] for own, is_left in nodes for side in (is_left, ~is_left)]
        np.testing.assert_array_equal(room[8:-8], np.concatenate(children))
        np.testing.assert_array_equal(starts, np.cumsum([0, *map(len, children)]))
        assert (room[:8] == -1).all()
        assert (room[-8:] == -1).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("threads", [1, 2])
def test_bins_count_the_cuts_not_above_a_value(dtype, threads):
    rng = np.random.default_rng(5)
    columns = [rng.normal(size=300_000).astype(np.float32) for _ in range(3)]
    columns[1][::7] = np.nan
    cuts = [np.sort(rng.normal(size=n)).astype(np.float32) for n in (0, 1, 100)]
    columns[2][:100] = cuts[2]  # values on a cut go right of it
    bins = np.empty((300_000, 3), dtype=dtype)
    getattr(_native, KERNELS[dtype][2])(columns, cuts, bins, 0, threads)
    for j in range(3):
        expected = np.searchsorted(cuts[j], columns[j], side="right")
        expected[np.isnan(columns[j])] = len(cuts[j]) + 1
        np.testing.assert_array_equal(bins[:, j], expected)


def slow_gains(
    sums, layout, totals, units, lam, alpha, least, step, allowed=None, cat_threshold=99, ways=None, bounds=None
):
    """Candidate by candidate, from the definition."""

    def soft(g):
        return np.sign(g) * max(abs(g) - alpha, 0.0)

    def weight(g, h):
        w = -soft(g) / (h + lam) if h + lam > 0 else 0.0
        return np.clip(w, -step, step) if step > 0 else w

    def bounded(s, node):
        w = weight(s[0] * units[0], s[1] * units[1])
        return w if bounds is None else min(max(w, bounds[node][0]), bounds[node][1])

    def score(s, node):
        g, h = s[0] * units[0], s[1] * units[1]
        if h + lam <= 0:
            return 0.0
        if step == 0 and bounds is None:
            return soft(g) ** 2 / (h + lam)
        w = bounded(s, node)
        return -(2 * g * w + (h + lam) * w * w + 2 * alpha * abs(w))

    gains = np.full((*sums.shape[:2], 2), -np.inf)
    for node in range(len(sums)):
        for f in range(layout.features):
            if allowed is not None and not allowed[node, f]:
                continue
            low, high = layout.offsets[f], layout.offsets[f + 1]
            values = high - low - layout.missing[f]
            own, absent = sums[node, low : low + values], np.zeros(2, dtype=np.int64)
            if layout.missing[f]:
                absent = sums[node, high - 1]
            order = list(range(values))
            if layout.kind[f] == 2:
                order.sort(key=lambda c: weight(own[c, 0] * units[0], own[c, 1] * units[1]))
            for c in range(values):
                members = [c] if layout.kind[f] == 1 else order[: c + 1]
                for direction in (0, 1):
                    if direction and not absent.any():
                        continue
                    # A set is listed by the categories of the side without missing values; of either without them.
                    sides = [values - c - 1] if direction else [c + 1]
                    if (
                        layout.kind[f] == 2
                        and values > cat_threshold
                        and min(sides if absent.any() else [c + 1, values - c - 1]) >= cat_threshold
                    ):
                        continue
                    left = own[members].sum(axis=0) + direction * absent
                    right = totals[node] - left
                    weights = bounded(left, node), bounded(right, node)
                    if bounds is not None and c < values - 1 and (weights[1] - weights[0]) * ways[f] < 0:
                        continue
                    if all(s[1] > 0 and s[1] * units[1] >= least for s in (left, right)):
                        gains[node, low + c, direction] = (
                            score(left, node) + score(right, node) - score(totals[node], node)
                        )
    return gains


def some(features):
    return np.random.default_rng(3).integers(0, 2, (4, features), dtype=np.uint8)


@pytest.mark.parametrize("alpha", [0.0, 3.0])
@pytest.mark.parametrize("step", [0.0, 0.2])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("allowed", "cat_threshold"), [(None, 99), (some(5), 99), (None, 1), (None, 2), (some(5), 3)])
@pytest.mark.parametrize("monotone", [False, True])
def test_gains_equal_the_definition(alpha, step, threads, allowed, cat_threshold, monotone):
    rng = np.random.default_rng(11)
    kinds = [ColumnKind.NUMERIC, ColumnKind.ONEHOT, ColumnKind.SETS, ColumnKind.NUMERIC, ColumnKind.SETS]
    layout = BinLayout.of([6, 4, 5, 1, 7], [False, True, True, True, False], kinds)
    assert [KIND_CODES[kind] for kind in kinds] == layout.kind.tolist()
    nodes, rows = 4, 60
    sums = np.zeros((nodes, layout.slots, 2), dtype=np.int64)
    totals = np.zeros((nodes, 2), dtype=np.int64)
    for node in range(nodes):
        pairs = np.stack([rng.integers(-900, 900, size=rows), rng.integers(1, 300, size=rows)], axis=1)
        totals[node] = pairs.sum(axis=0)
        for f in range(layout.features):
            slots = rng.integers(layout.offsets[f], layout.offsets[f + 1], size=rows)
            np.add.at(sums[node], slots, pairs)
    gains = np.empty((nodes, layout.slots, 2))
    order = np.empty((nodes, layout.slots), dtype=np.int32)
    units = (1 / 64, 1 / 32)
    handle, best = np.empty(nodes, dtype=np.int32), np.empty(nodes)
    ways = [1, 0, 0, -1, 0]
    bounds = np.array([[-np.inf, np.inf], [-0.1, 0.05], [0.02, np.inf], [-np.inf, -0.01]]) if monotone else None
    _native.split_gains(
        sums,
        layout.offsets,
        layout.missing,
        layout.kind,
        totals,
        np.arange(nodes),
        *units,
        1.5,
        alpha,
        20.0,
        step,
        np.empty((0, 0), dtype=np.uint8) if allowed is None else allowed,
        np.array(ways, dtype=np.int8),
        np.empty((0, 2)) if bounds is None else bounds,
        cat_threshold,
        gains,
        order,
        handle,
        best,
        threads,
    )
    expected = slow_gains(sums, layout, totals, units, 1.5, alpha, 20.0, step, allowed, cat_threshold, ways, bounds)
    np.testing.assert_array_equal(np.isinf(gains), np.isinf(expected))
    assert np.isfinite(expected).sum() > 30
    np.testing.assert_allclose(gains[np.isfinite(gains)], expected[np.isfinite(expected)], rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(handle, gains.reshape(nodes, -1).argmax(axis=1))
    np.testing.assert_array_equal(best, gains.reshape(nodes, -1).max(axis=1))
    start, end = layout.offsets[2], layout.offsets[3] - 1
    assert (allowed is not None and not allowed[0, 2]) or sorted(order[0, start:end].tolist()) == [*range(end - start)]


@pytest.mark.parametrize("alpha", [0.0, 3.0])
@pytest.mark.parametrize("step", [0.0, 0.2])
def test_leaf_weights_are_those_of_numpy(alpha, step):
    totals = np.random.default_rng(29).integers(-500, 500, size=(300, 2))
    totals[:4] = [[0, 5], [3, 0], [-3, 0], [64, -96]]  # zeros of both signs, and a denominator of 0
    weights = np.empty(len(totals))
    _native.leaf_weights(totals, 1 / 64, 1 / 64, 1.5, alpha, step, weights)
    g, denominator = totals[:, 0] / 64, totals[:, 1] / 64 + 1.5
    shrunk = np.sign(g) * np.maximum(np.abs(g) - alpha, 0.0)
    expected = np.divide(-shrunk, denominator, out=np.zeros_like(g), where=denominator > 0)
    expected = np.clip(expected, -step, step) if step else expected
    assert weights.tobytes() == expected.tobytes()


def test_a_split_sends_the_bins_of_its_handle_left():
    kinds = [ColumnKind.NUMERIC, ColumnKind.ONEHOT, ColumnKind.SETS, ColumnKind.NUMERIC]
    layout = BinLayout.of([3, 2, 4, 1], [True, False, True, False], kinds)
    handles = np.arange(2 * layout.slots, dtype=np.int32)
    feature, place, direction = layout.locate(handles)
    got = [np.empty(len(handles), dtype=dtype) for dtype in (np.int32, np.int32, np.bool_)]
    left = np.full((len(handles), layout.widest), 7, dtype=np.uint8)
    _native.splits_of(handles, layout.offsets, layout.missing, layout.kind, *NO_SETS, *got, left)
    with_missing = layout.missing[feature] == 1
    np.testing.assert_array_equal(got, [feature, place, with_missing & (direction == 1)])
    numbers, kind = np.arange(layout.widest), layout.kind[feature][:, None]
    expected = np.where(kind == 0, numbers <= place[:, None], (kind == 1) & (numbers == place[:, None]))
    expected[with_missing, layout.widths[feature[with_missing]] - 1] = direction[with_missing]
    np.testing.assert_array_equal(left, expected)
    for wrong in (-1, 2 * layout.slots):
        with pytest.raises(ValueError, match="no such candidate"):
            _native.splits_of(
                np.full_like(handles, wrong), layout.offsets, layout.missing, layout.kind, *NO_SETS, *got, left
            )


def test_left_sums_add_the_bins_of_a_handle():
    kinds = [ColumnKind.NUMERIC, ColumnKind.ONEHOT, ColumnKind.SETS]
    layout = BinLayout.of([4, 3, 2], [True, True, False], kinds)
    sums = np.random.default_rng(7).integers(-(2**40), 2**40, size=(3, layout.slots, 2))
    handles = np.arange(2 * layout.slots, dtype=np.int32)
    nodes = handles.astype(np.int64) % 3
    left, bins = np.empty((len(handles), 2), dtype=np.int64), np.empty(len(handles), dtype=np.int64)
    _native.left_sums(sums, layout.offsets, layout.missing, layout.kind, nodes, handles, *NO_SETS, left, bins)
    for k, (f, place, direction) in enumerate(zip(*layout.locate(handles), strict=True)):
        first = layout.offsets[f]
        slots = [range(first, first + place + 1), [first + place], []][layout.kind[f]]
        slots = [*slots, *([layout.offsets[f + 1] - 1] if direction and layout.missing[f] else [])]
        np.testing.assert_array_equal(left[k], sums[nodes[k], slots].sum(axis=0))
        assert bins[k] == len(slots)
    with pytest.raises(ValueError, match="no such node"):
        _native.left_sums(sums, layout.offsets, layout.missing, layout.kind, nodes + 1, handles, *NO_SETS, left, bins)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_on_the_grid_are_those_of_numpy(weighted, threads):
    rng = np.random.default_rng(23)
    margin = np.concatenate((rng.normal(size=50_000) * 4, [0.0, -0.0, 40.0, -40.0, 800.0, -800.0]))
    y, weight = (rng.random(len(margin)) < 0.5).astype(np.float64), rng.random(len(margin)) * 9
    g, h = np.empty_like(margin), np.empty_like(margin)
    _native.logistic_gradients(margin, y, g, h, threads)
    p = 1.0 / (1.0 + np.exp(-np.clip(margin, -700.0, 700.0)))
    np.testing.assert_allclose(g, p - y, rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(h, np.maximum(p * (1.0 - p), 1e-16), rtol=1e-13, atol=1e-16)

    twin = np.rint(np.stack((p - y, np.maximum(p * (1.0 - p), 1e-16)), axis=1) * (2.0**20, 2.0**22))
    pairs = np.empty((2, len(margin), 2), dtype=np.int32)
    both = np.stack((g, -g)), np.stack((h, h))
    used = weight if weighted else weight[:0]
    assert _native.fixed_pairs(*both, used, 2.0**20, 2.0**22, 2.0**30, pairs, threads)
    expected = np.rint(twin * weight[:, None]) if weighted else twin
    np.testing.assert_array_equal(pairs[0], expected)
    np.testing.assert_array_equal(pairs[1], expected * (-1, 1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1025.0, -1025.0])
@pytest.mark.parametrize("at", [0, 700, 59_999])
def test_values_beyond_the_limit_are_refused(bad, at):
    g, h, pairs = np.zeros((1, 60_000)), np.zeros((1, 60_000)), np.empty((1, 60_000, 2), dtype=np.int32)
    for values in (g, h):
        values[0, at] = bad
        assert not _native.fixed_pairs(g, h, np.empty(0), 1.0, 1.0, 1024.0, pairs, 2)
        values[0, at] = 0.0
    assert _native.fixed_pairs(g, h, np.empty(0), 1.0, 1.0, 1024.0, pairs, 2)


@pytest.mark.parametrize(("rows", "threads"), [(80, 1), (200_000, 3)])
def test_leaves_are_added_to_the_margins_of_their_rows(rows, threads):
    rng = np.random.default_rng(13)
    order, begin, end, group = random_nodes(rng, rows, 6, 2)
    margin = rng.normal(size=(2, rows))
    weight = rng.normal(size=6).astype(np.float32)
    expected = margin.copy()
    for k in range(6):
        expected[group[k], order[begin[k] : end[k]]] += np.float64(weight[k])
    _native.add_to_rows(order, begin, end, group, weight, margin, threads)
    np.testing.assert_array_equal(margin, expected)


def test_a_sibling_is_what_its_parent_has_left():
    rng = np.random.default_rng(17)
    last = rng.integers(100, size=(3, 5, 2))
    built = rng.integers(100, size=(2, 5, 2))
    every = np.zeros((4, 5, 2), dtype=np.int64)
    _native.complete_sums(built, np.array([1, 2]), last, np.array([0, 3]), np.array([2, 0]), every)
    np.testing.assert_array_equal(every, np.stack([last[2] - built[0], built[0], built[1], last[0] - built[1]]))
    with pytest.raises(ValueError, match="no such node"):
        _native.complete_sums(built, np.array([1, 4]), last, np.array([0, 3]), np.array([2, 0]), every)


def test_values_of_chosen_nodes_are_taken_and_put_back():
    rng = np.random.default_rng(19)
    counts = np.array([3, 0, 5, 2])
    chosen = np.array([True, True, False, True])
    whole = rng.integers(256, size=10).astype(np.uint8)
    part = np.empty(5, dtype=np.uint8)
    _native.take_nodes(counts, chosen, whole, part)
    np.testing.assert_array_equal(part, whole[np.repeat(chosen, counts)])
    back = np.zeros(10, dtype=np.uint8)
    _native.put_nodes(counts, chosen, part, back)
    np.testing.assert_array_equal(back, np.where(np.repeat(chosen, counts), whole, 0))
    for wrong in (np.empty(4, dtype=np.uint8), np.empty(0, dtype=np.uint8)):
        with pytest.raises(ValueError, match="shapes"):
            _native.take_nodes(counts, chosen, whole, wrong)
        with pytest.raises(ValueError, match="shapes"):
            _native.put_nodes(counts, chosen, wrong, back)
        with pytest.raises(ValueError, match="shapes"):
            _native.take_nodes(counts, chosen, wrong, part)


def test_children_are_numbered_tree_by_tree():
    group, position = np.array([0, 0, 1, 1, 1], dtype=np.int32), np.array([0, 2, 4])
    sizes, children = np.array([3, 7], dtype=np.int32), np.empty(6, dtype=np.int32)
    _native.number_children(group, position, sizes, children)
    assert children.tolist() == [3, 4, 7, 8, 9, 10]
    assert sizes.tolist() == [5, 11]
    for wrong, match in ((np.array([0, 2, 5]), "no such node"), (position[:2], "shapes")):
        with pytest.raises(ValueError, match=match):
            _native.number_children(group, wrong, sizes, children)


@pytest.mark.parametrize("derives", [True, False])
@pytest.mark.parametrize("least_rows", [1, 4])
def test_a_level_is_planned_as_by_its_definition(derives, least_rows):
    rng = np.random.default_rng(least_rows)
    pairs, unit, weight = 200, 1 / 8, 3.0
    counts = rng.integers(0, 9, size=2 * pairs)
    above, position = rng.integers(-99, 99, size=(300, 2)), np.sort(rng.permutation(300)[:pairs])
    smaller = np.empty(pairs, dtype=np.int64)
    _native.smaller_siblings(counts, smaller)
    left, right = counts[0::2], counts[1::2]
    np.testing.assert_array_equal(smaller, np.arange(0, 2 * pairs, 2) + (right < left))
    known = rng.integers(-99, 99, size=(pairs, 2))
    totals, plan = np.empty((2 * pairs, 2), dtype=np.int64), np.empty((4, 2 * pairs), dtype=np.int64)
    sizes = _native.plan_level(counts, known, above, position, unit, weight, least_rows, derives, totals, plan)
    found = [plan[row, :size].tolist() for row, size in enumerate((*sizes, sizes[-1]))]
    np.testing.assert_array_equal(totals[smaller], known)
    np.testing.assert_array_equal(totals[smaller ^ 1], above[position] - known)
    may_split = (counts >= 2) & (np.minimum(left, right).repeat(2) >= least_rows) & (totals[:, 1] * unit >= 2 * weight)
    build, derived = np.flatnonzero(may_split), may_split[smaller ^ 1] & derives
    if derives:
        build = smaller[may_split[smaller] | derived]
    expected = np.flatnonzero(may_split), build, (smaller ^ 1)[derived], position[derived]
    assert found == [each.tolist() for each in expected]
    assert len(found[0]) > 20

    named = np.sort(rng.permutation(2 * pairs)[:300]).astype(np.int32)
    nodes = np.empty((2, 2 * pairs), dtype=np.int64)
    least_summed = 3 if derives else 0
    sizes = _native.nodes_ahead(counts, named, least_rows, least_summed, nodes)
    ahead, known_then = (nodes[row, :size] for row, size in enumerate(sizes))
    wanted = np.isin(np.arange(2 * pairs), named) & (counts >= 2) & (np.minimum(left, right).repeat(2) >= least_rows)
    summed = np.where(counts[smaller] < least_summed, smaller ^ 1, smaller)
    np.testing.assert_array_equal(
        ahead, summed[wanted[smaller] | wanted[smaller ^ 1]] if derives else np.flatnonzero(wanted)
    )
    np.testing.assert_array_equal(known_then, np.union1d(ahead, ahead ^ 1) if derives else ahead)
    with pytest.raises(ValueError, match="no such node"):
        _native.nodes_ahead(counts, named + np.int32(2 * pairs), least_rows, least_summed, nodes)
    with pytest.raises(ValueError, match="no such node"):
        _native.plan_level(counts, known, above, position + 300, unit, weight, least_rows, derives, totals, plan)


@pytest.mark.parametrize("either", [True, False])
def test_children_ahead_are_those_with_enough_hessian_by_any_tied_candidate(either):
    rng = np.random.default_rng(17)
    unit, least, nodes = 1 / 8, 2.0, 300
    totals = rng.integers(0, 64, size=(2 * nodes, 2))
    at, position = np.sort(rng.permutation(500)[:nodes]), np.sort(rng.permutation(2 * nodes)[:nodes]).astype(np.int32)
    ties = rng.integers(1, 4, size=nodes)
    starts = np.concatenate(([0], np.cumsum(ties))).astype(np.int32)
    parents = totals[position, 1].repeat(ties)
    left = np.stack((rng.integers(-9, 9, size=len(parents)), rng.integers(0, parents + 1)), axis=1)
    may_split = np.zeros((500, 2), dtype=np.bool_)
    _native.children_ahead(at, position, totals, starts, left, unit, least, either, may_split)
    each = np.stack((left[:, 1], parents - left[:, 1]), axis=1) * unit >= least
    expected = np.stack([each[low:high].any(axis=0) for low, high in itertools.pairwise(starts)])
    if either:
        expected |= expected[:, ::-1] | (totals[position, 1] * unit >= 2 * least)[:, None]
    np.testing.assert_array_equal(may_split[at], expected)
    assert 20 < expected.sum() < 2 * nodes - 20
    assert not np.delete(may_split, at, axis=0).any()
    for wrong in ((at + 500, position, starts), (at, position + 2 * nodes, starts), (at, position, starts + 1)):
        with pytest.raises(ValueError, match="shapes"):
            _native.children_ahead(*wrong[:2], totals, wrong[2], left, unit, least, either, may_split)


def test_values_increase_below_a_limit():
    for values, limit in (([], 0), ([0], 1), ([0, 3, 4], 5)):
        assert _native.increasing_below(np.array(values, dtype=np.int32), limit)
    for values, limit in (([0], 0), ([-1, 2], 5), ([0, 3, 5], 5), ([0, 3, 3], 5), ([2, 1, 3], 5), ([-(2**31)], 5)):
        assert not _native.increasing_below(np.array(values, dtype=np.int32), limit)


LENGTHS, NODES, FEW_ROWS, NUMBERS, LISTS, CANDIDATES = range(1, 7)


@pytest.mark.parametrize(
    ("refusal", "change"),
    [
        (0, {}),
        (0, {"siblings": False, "position": [0, 3], "node": [5, 8]}),
        (LENGTHS, {"position": [], "tree": [], "node": []}),
        (LENGTHS, {"tree": [20]}),
        (LENGTHS, {"node": [5, 6, 7]}),
        (NODES, {"position": [1, 4]}),
        (NODES, {"position": [-1, 1]}),
        (NODES, {"position": [1, 1]}),
        (NODES, {"position": [1, 0]}),
        (FEW_ROWS, {"position": [1, 2]}),
        (FEW_ROWS, {"position": [1, 3]}),  # its sibling has few
        (NUMBERS, {"tree": [20, 20]}),
        (NUMBERS, {"tree": [-20, 20]}),
        (NUMBERS, {"node": [5, 5]}),
        (NUMBERS, {"node": [5, -6]}),
        (LISTS, {"starts": [0, 1]}),
        (LISTS, {"starts": [1, 2, 3]}),
        (LISTS, {"starts": [0, 1, 2]}),
        (LISTS, {"starts": [0, 4, 3]}),
        (LISTS, {"starts": []}),
        (LISTS, {"set_starts": [0, 1, 3]}),
        (LISTS, {"set_starts": [0, 2, 1, 3]}),
        (LISTS, {"set_bins": 4}),
        (CANDIDATES, {"starts": [0, 0, 3]}),  # no candidate for the first
        (CANDIDATES, {"handles": [8, 40, 9]}),
        (CANDIDATES, {"handles": [8, -1, 9]}),
    ],
)
def test_refused_requests_to_split(refusal, change):
    request = {
        "position": [0, 1],
        "tree": [20, 21],
        "node": [5, 6],
        "starts": [0, 1, 3],
        "handles": [8, 39, 9],
        "set_starts": [0, 1, 1, 3],
        "set_bins": 3,
        "counts": np.array([9, 7, 2, 30]),
        "numbers": [5, 6, 7, 8],
        "group": [0, 1, 1, 1],
        "first_tree": 20,
        "siblings": True,
        "min_node_rows": 3,
        "candidates": 40,
    } | change
    arrays = {name: np.array(value, dtype=np.int32) for name, value in request.items() if isinstance(value, list)}
    assert _native.refused_splits(*(request | arrays).values()) == refusal


def test_the_best_offer_is_the_first_owners_on_a_tie():
    gains = [np.array([1.0, -np.inf, 2.0, 5.0, 0.4]), np.array([1.0, -np.inf, 3.0, 4.0, 0.3])]
    handles = [np.arange(5, dtype=np.int32), np.arange(10, 15, dtype=np.int32)]
    found = [np.empty(5, dtype=dtype) for dtype in (np.int64, np.int32, np.float64, np.int32)]
    count = _native.best_offers(gains, handles, np.array([0, 2, 4, 6, 8]), 1e-6, 0.5, *found)
    assert [each[:count].tolist() for each in found] == [[0, 4, 6], [0, 1, 0], [1.0, 3.0, 5.0], [0, 12, 3]]
    with pytest.raises(ValueError, match="shapes"):
        _native.best_offers(gains[:1], handles, np.array([0, 2, 4, 6, 8]), 1e-6, 0.5, *found)


def test_sets_of_categories():
    kinds = [ColumnKind.NUMERIC, ColumnKind.SETS, ColumnKind.ONEHOT]
    layout = BinLayout.of([2, 4, 2], [False, True, False], kinds)  # slots: 0 1, 2 3 4 5 (6 missing), 7 8
    parts = layout.offsets, layout.missing, layout.kind
    order = np.array([[9, 9, 3, 0, 1, 2, 9, 9, 9], [9, 9, 0, 2, 1, 3, 9, 9, 9]], dtype=np.int32)
    nodes, handles = np.array([0, 0, 1, 1]), np.array([2 * 3 + 1, 2 * 1, 2 * 4, 2 * 8], dtype=np.int32)
    starts, bins = np.empty(5, dtype=np.int32), np.empty(20, dtype=np.int32)
    assert _native.left_sets(order, nodes, handles, *parts, starts, bins) == 5
    assert (starts.tolist(), bins[:5].tolist()) == ([0, 2, 2, 5, 5], [0, 3, 0, 1, 2])
    sets = Sets(starts, bins[:5])
    assert _native.sets_fit(handles, *parts, *sets)
    assert _native.sets_fit(handles, *parts, *NO_SETS)
    for wrong in (-1, 3, 4):  # no bin, named twice, the bin of missing values
        assert not _native.sets_fit(handles, *parts, starts, np.array([wrong, 3, 0, 1, 2], dtype=np.int32))
    sums = np.arange(36).reshape(2, 9, 2)
    left, count = left_sums(sums, layout, nodes, handles, sets)
    slots = [[2, 5, 6], [0, 1], [2, 3, 4], [8]]
    assert count.tolist() == [3, 2, 3, 1]
    assert left.tolist() == [sums[node, own].sum(axis=0).tolist() for node, own in zip(nodes, slots, strict=True)]
    got = [np.empty(4, dtype=dtype) for dtype in (np.int32, np.int32, np.bool_)]
    table = np.empty((4, layout.widest), dtype=np.uint8)
    _native.splits_of(handles, *parts, *sets, *got, table)
    assert table.tolist() == [[1, 0, 0, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 0, 0, 0]]
    with pytest.raises(ValueError, match="one set for each"):
        _native.splits_of(handles, *parts, starts[:4], sets.bins, *got, table)
    with pytest.raises(ValueError, match="no such bin"):
        _native.splits_of(handles, *parts, starts, sets.bins + np.int32(5), *got, table)
    with pytest.raises(ValueError, match="no such node"):
        _native.left_sets(order, nodes + 1, handles, *parts, starts, bins)
    with pytest.raises(ValueError, match="shapes"):
        _native.left_sets(order, nodes, handles, *parts, starts, bins[:4])
