"""Kernel vectors mask and do not disturb, whatever the columns and gradients are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.crypto.csprng import Csprng
from veilboost.protocols.smm1.active import MaskedNode
from veilboost.protocols.smm1.passive import SplitColumns
from veilboost.protocols.smm2.messages import Smm2Options
from veilboost.protocols.smm2.passive import Buffer, bin_sums, blocks_of_node, secure_kernel
from veilboost.protocols.vertical.smm import (
    _DRAWN,
    UNIT,
    KernelOptions,
    check_kernel,
    chunked_bin_sums,
    chunked_product,
    draw_mask,
    gaussian,
    hidden_rows,
    masked,
    null_vectors,
    rounded,
    rounding_error,
)

pytestmark = pytest.mark.fast
seeds = st.integers(0, 2**32 - 1)
quickly = settings(max_examples=60, deadline=None)


def source(seed: int) -> Csprng:
    return Csprng(seed.to_bytes(8, "big"))


def gradients(rng: np.random.Generator, rows: int, kind: str) -> np.ndarray:
    """Pairs on the grid: general, of two labels, of one label but for one row, with equal hessians or zero weights."""
    label = rng.integers(2, size=rows) if kind != "one apart" else np.arange(rows) == rng.integers(rows)
    pairs = rng.integers(-(2**20), 2**20, size=(rows, 2)).astype(np.int32)
    pairs[:, 1] = np.abs(pairs[:, 1]) + 1
    if kind != "general":
        pairs = np.where(label[:, None], [500_000, 260_000], [-548_576, 250_000]).astype(np.int32)
    if kind == "equal hessians":
        pairs[:, 1] = 2**20
    if kind == "one gradient":
        pairs[:, 0] = 0
        pairs[rng.integers(rows), 0] = 77
    return pairs


kinds = st.sampled_from(["general", "two labels", "one apart", "equal hessians", "one gradient"])


@quickly
@given(seeds, st.integers(4, 80), st.integers(0, 12), st.integers(1, 6))
def test_null_vectors_are_orthonormal_and_orthogonal_to_dependent_columns_too(seed, rows, width, count):
    rng = np.random.default_rng(seed)
    width, count = min(width, rows // 3), min(count, rows // 3)
    columns = rng.integers(2, size=(rows, width)).astype(np.float64)
    if width > 2:
        columns[:, 0], columns[:, 1] = columns[:, 2], 0.0  # a duplicate and a constant
    kernel = null_vectors(columns, count, source(seed))
    assert kernel.shape == (rows, count)
    assert np.abs(kernel.T @ kernel - np.eye(count)).max() < 1e-13
    assert np.abs(columns.T @ kernel).max(initial=0.0) < 1e-12


def test_nearly_dependent_columns_are_left_all_the_same():
    rng = np.random.default_rng(0)
    first = rng.normal(size=300)
    columns = np.stack((first, first + 1e-6 * rng.normal(size=300)), axis=1)
    apart = columns[:, 1] - columns[:, 0]
    kernel = null_vectors(columns, 5, source(1))
    assert np.abs(apart / np.linalg.norm(apart) @ kernel).max() < 1e-8


def test_a_null_space_that_is_too_small_is_an_error():
    with pytest.raises(ArithmeticError):
        null_vectors(np.random.default_rng(0).normal(size=(10, 7)), 4, source(0))


@quickly
@given(seeds, st.integers(2, 12), st.integers(1, 4))
def test_hidden_rows_are_those_with_something_beside_the_diagonal(seed, rows, count):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(rows, min(count, rows - 1)))
    data[rng.random(rows) < 0.3] = 0.0
    if rng.random() < 0.3:  # a vector that is one row's alone
        data[:, 0], data[0] = 0.0, 0.0
        data[0, 0] = 1.0
    basis, weight, _ = np.linalg.svd(data, full_matrices=False)
    kernel = basis[:, weight > 1e-9]
    if not kernel.shape[1]:
        return
    projector = kernel @ kernel.T
    beside = np.abs(projector - np.diag(np.diag(projector))).max(axis=1)
    assert np.array_equal(hidden_rows(kernel), beside > 1e-8)


@quickly
@given(seeds, st.integers(2, 700), kinds, st.booleans())
def test_smm1_sums_are_exact_and_no_row_is_bare(seed, rows, kind, rotate):
    rng = np.random.default_rng(seed)
    pairs = gradients(rng, rows, kind)
    options = KernelOptions(rotate=rotate)
    node = MaskedNode.make(pairs, options, source(seed))
    bins = rng.integers(6, size=(rows, 3)).astype(np.uint8)
    columns = SplitColumns(bins, np.array([12, 0, 6], dtype=np.int32))
    answers = []
    for kernel in node.kernels:
        check_kernel(kernel)
        answers.append(np.empty((columns.width, rows)))
        columns.mask_into(draw_mask(kernel, options, 6, source(seed + 1)), answers[-1])
    found = node.sums(answers)
    last = np.append(np.diff(columns.slots // 6) > 0, True)
    feature_at = {0: 1, 1: 2, 2: 0}  # by place
    for slot, sums in zip(columns.slots[~last].tolist(), found, strict=True):
        inside = bins[:, feature_at[slot // 6]] == slot % 6
        assert np.array_equal(sums, pairs[inside].astype(np.int64).sum(axis=0))


@quickly
@given(
    seeds, st.integers(2, 300), st.integers(1, 5), st.sampled_from([2, 5, 40]), st.sampled_from(["random", "nested"])
)
def test_smm2_sums_are_exact_and_no_row_is_bare(seed, rows, features, width, decoys):
    rng = np.random.default_rng(seed)
    bins = rng.integers(width, size=(rows, features)).astype(np.uint8)
    if features > 1:
        bins[:, 1] = bins[:, 0]  # a feature that says the same as another
    pairs = gradients(rng, rows, "general")
    totals = pairs.astype(np.int64).sum(axis=0)
    options = Smm2Options(decoys=decoys)
    left, buffer = [], Buffer()
    for block in blocks_of_node(0, bins, options.columns(rows)):
        assert len(block.cuts) == 1 or block.width <= options.columns(rows)
        for part, kernel in secure_kernel(block, options, source(seed), buffer):
            assert kernel.shape == (rows, options.count(rows, 2))
            if rows > 2:
                check_kernel(kernel)
            mask = draw_mask(kernel, options, 6, source(seed + 1))
            left += part.left_sums(masked(mask, pairs.astype(np.float64)), totals)
    counts = [np.bincount(bins[:, f]) for f in range(features)]
    sums = bin_sums(counts, [width * f for f in range(features + 1)], left, totals)
    for f in range(features):
        for b in range(width):
            assert np.array_equal(sums[width * f + b], pairs[bins[:, f] == b].astype(np.int64).sum(axis=0))
    # Every cut between bins with rows was asked for once.
    asked = [(cut.feature, at) for cut, _ in left for at in cut.bins.tolist()]
    assert len(asked) == len(set(asked)) == sum(max(np.count_nonzero(count) - 1, 0) for count in counts)


@quickly
@given(seeds, st.integers(1, 3000))
def test_sums_in_chunks_are_sums(seed, rows):
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(4, rows)), rng.normal(size=(rows, 2))
    assert np.allclose(chunked_product(left, right), left @ right, rtol=0, atol=1e-10)
    bins = rng.integers(3, size=(rows, 2)) + np.array([0, 3])
    expected = [right[bins[:, b // 3] == b].sum(axis=0) for b in range(6)]
    assert np.allclose(chunked_bin_sums(bins, 6, right), expected, rtol=0, atol=1e-10)


@quickly
@given(seeds, st.integers(3, 3000), st.integers(1, 40))
def test_the_error_stays_within_its_bound(seed, rows, count):
    rng = np.random.default_rng(seed)
    pairs = gradients(rng, rows, "general").astype(np.float64)
    kernel = null_vectors(pairs, min(count, rows - 2), source(seed))
    inside = rng.integers(2, size=rows)
    answer = inside - kernel @ (kernel.T @ inside)
    off = np.abs(chunked_product(answer[None], pairs)[0] - inside @ pairs)
    assert (off <= rounding_error(rows, float(np.linalg.norm(pairs)), kernel.shape[1])).all()


def test_the_bound_is_a_multiple_of_the_unit_and_holds_a_million_rows_of_the_default_scale():
    assert rounding_error(100, 10.0, 4) == pytest.approx(UNIT * 100 * (6 * 3 + 2 * 416 + 288))
    assert rounding_error(10**6, 2.0**20 * 10**3, 16) < 0.5
    assert rounding_error(10**6, 2.0**30 * 10**3, 16) > 0.5


def test_sums_between_the_points_of_the_grid_are_refused():
    from veilboost.errors import MalformedMessage

    assert rounded(np.array([3.0000001, -2.0])).tolist() == [3, -2]
    for wrong in (0.4, np.nan, np.inf, 1e300):
        with pytest.raises(MalformedMessage, match="grid"):
            rounded(np.array([1.0, wrong]))


def test_what_the_last_block_left_is_not_in_the_next():
    buffer = Buffer()
    buffer.zeros(6, 5)[:] = 7.0
    assert not buffer.zeros(4, 5).any()
    assert not buffer.zeros(7, 9).any()
    bins = np.arange(40, dtype=np.uint8)[:, None] % 8
    (block,) = blocks_of_node(0, bins, 20)
    buffer.zeros(40, 99)[:] = np.nan
    options = Smm2Options()
    (_, after), (_, fresh) = (secure_kernel(block, options, source(3), each)[0] for each in (buffer, Buffer()))
    assert np.array_equal(after, fresh)


@pytest.mark.parametrize("size", [1, _DRAWN - 1, _DRAWN + 1, 2 * _DRAWN + 7])
def test_normal_values_are_normal_however_many_are_drawn(size):
    values = gaussian(source(5), size, 1).ravel()
    assert values.shape == (size,)
    assert np.isfinite(values).all()
    assert len(np.unique(values)) == size
    if size > 1:
        assert abs(values.mean()) < 6 / np.sqrt(size)
        assert abs(values.var() - 1) < 9 / np.sqrt(size)
