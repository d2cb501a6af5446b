"""Masks lie in the null space of their splitting vectors and have the published covariance; candidates are complete."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost import _native
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.rows import RowGroups
from veilboost.boost.split import candidates_from_sums
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import Scale
from veilboost.protocols.masked.parameters import Noise, left_of, rows_left
from veilboost.protocols.masked.passive import noisy_gains
from veilboost.types import Column

pytestmark = pytest.mark.fast


def noise_of(sigma1: float, sigma2: float, vectors: int = 1) -> Noise:
    options = {"sigma1": sigma1, "sigma2": sigma2, "noise_vectors": vectors}
    return Noise.of(TrainingConfig(options=options, categories="ordinal"), 1000, 10)


def masks_of(member: np.ndarray, noise: Noise, key: bytes, streams: int) -> np.ndarray:
    """Noise vectors for one splitting vector, shape (streams, W, rows)."""
    bins = member.astype(np.uint8)[:, None]
    out = np.empty((streams, noise.vectors, len(member)), dtype=np.float32)
    _native.make_masks_u8(
        np.ascontiguousarray(bins),
        np.arange(len(member), dtype=np.int32),
        np.zeros(streams, dtype=np.int32),
        np.tile(np.array([0, 1], dtype=np.uint8), (streams, 1)),
        noise.factors(np.full(streams, member.sum()), len(member)),
        np.frombuffer(key, dtype=np.uint8),
        0,
        out,
        1,
    )
    return out


members = st.lists(st.integers(0, 1), min_size=4, max_size=200).map(np.array).filter(lambda m: 3 <= m.sum() < len(m))


@given(member=members, key=st.binary(min_size=32, max_size=32), sigma1=st.floats(1e-3, 1e3))
@settings(max_examples=50, deadline=None)
def test_without_disturbing_noise_a_mask_vanishes_in_sums(member, key, sigma1):
    """m'u = 0 and m'v = 0: with sigma2 = 0 nothing is left of a mask in a candidate's sum but rounding."""
    noise = Noise.of(TrainingConfig(options={"sigma1": sigma1, "sigma2": 1e-30}, categories="ordinal"), 1000, 10)
    masks = masks_of(member, noise, key, 2)
    assert np.abs(masks).max() > 0
    sums = masks.astype(np.float64) @ member
    assert np.abs(sums).max() <= 1e-6 * sigma1 * len(member)


@given(member=members, key=st.binary(min_size=32, max_size=32), sigma2=st.floats(1e-3, 1e3))
@settings(max_examples=20, deadline=None)
def test_sums_keep_the_disturbing_noise_alone(member, key, sigma2):
    """Var(m'b) = n_A sigma2^2, whatever sigma1 is."""
    sums = masks_of(member, noise_of(3 * sigma2, sigma2), key, 4000)[:, 0].astype(np.float64) @ member
    scaled = sums / (np.sqrt(member.sum()) * sigma2)
    assert abs(scaled.mean()) < 5.5 / np.sqrt(4000)
    assert abs(scaled.var() - 1) < 5.5 * np.sqrt(2 / 4000)


@given(
    member=st.lists(st.integers(0, 1), min_size=4, max_size=12).map(np.array).filter(lambda m: 3 <= m.sum() < len(m)),
    key=st.binary(min_size=32, max_size=32),
    ratio=st.floats(0.01, 20.0),
)
@settings(max_examples=20, deadline=None)
def test_the_covariance_of_a_mask_is_the_published_one(member, key, ratio):
    """Eqs. (12) and (13), C = 1."""
    sigma1 = np.sqrt(ratio)
    expected = np.eye(len(member)) * (2 * ratio + 1)
    active = np.flatnonzero(member)
    for here, after in zip(active, np.roll(active, -1), strict=True):
        expected[here, after] -= ratio
        expected[after, here] -= ratio
    drawn = masks_of(member, noise_of(sigma1, 1.0), key, 20_000)[:, 0].astype(np.float64)
    # An empirical covariance is off by about (2 ratio + 1) / sqrt(draws); up to 144 entries are compared.
    assert np.abs(drawn.T @ drawn / len(drawn) - expected).max() < 6.5 * (2 * ratio + 1) * np.sqrt(2 / 20_000)


@given(
    n_active=st.integers(3, 400),
    others=st.integers(1, 400),
    eps=st.floats(0.1, 10),
    scale=st.sampled_from(["adaptive", "worst"]),
    budget=st.sampled_from(["release", "composed"]),
)
@settings(max_examples=50, deadline=None)
def test_noise_keeps_theorem_2_for_every_candidate(n_active, others, eps, scale, budget):
    from veilboost.protocols.masked.theorems import energy_of

    options = {"eps_ap": eps, "scale": scale, "budget": budget, "delta_pp": 1e-4}
    noise = Noise.of(TrainingConfig(options=options, categories="ordinal", n_estimators=5, max_depth=3), 1000, 10)
    sigma2 = float(noise.sigma2([n_active], n_active + others)[0])
    spent = energy_of(n_active, others, noise.mu, np.sqrt(noise.ratio) * sigma2, sigma2)
    assert spent <= noise.energy * (1 + 1e-9)
    if scale == "adaptive":
        assert spent >= noise.energy * (1 - 1e-9)


@given(
    n_active=st.integers(3, 60),
    others=st.integers(1, 60),
    eps=st.floats(0.1, 300),
    eps_pp=st.floats(0.8, 8),
    c=st.floats(0.01, 100),
)
@settings(max_examples=50, deadline=None)
def test_a_budget_of_one_entry_is_spent_by_the_entry_that_is_hidden_least(n_active, others, eps, eps_pp, c):
    """By the covariance itself: the largest v' Sigma^-1 v with one entry of v changed by mu."""
    options = {"eps_ap": eps, "eps_pp": eps_pp, "budget": "entry", "delta_pp": 1e-4, "c": c}
    noise = Noise.of(TrainingConfig(options=options, categories="ordinal"), 1000, 10)
    own, before, alone = (float(x) for x in noise.factors([n_active], n_active + others)[0])
    block = np.zeros((n_active, n_active))
    for at in range(n_active):  # own * e_k - before * e_(k-1) around a circle
        block[at, at] += own**2 + before**2
        block[at, at - 1] -= own * before
        block[at - 1, at] -= own * before
    inverse = np.linalg.inv(c * block)
    largest = noise.mu**2 * max(float(inverse.diagonal().max()), 1.0 / (c * alone**2))
    assert largest == pytest.approx(noise.energy, rel=1e-2)  # factors are float32, and the block can be near singular


@given(n_active=st.integers(3, 5_000), others=st.integers(1, 5_000), c=st.floats(0.01, 100))
@settings(max_examples=30, deadline=None)
def test_with_a_budget_only_masks_depend_on_c(n_active, others, c):
    """Longer coefficients go with smaller masks; what is left in sums is the same."""
    for budget in ("release", "entry", "label"):
        one, other = (
            Noise.of(
                TrainingConfig(n_estimators=100, options={"budget": budget, "c": length}, categories="ordinal"),
                1000,
                10,
            )
            for length in (1.0, c)
        )
        left = [float(noise.left_in_sums([n_active], n_active + others)[0]) for noise in (one, other)]
        assert left[1] == pytest.approx(left[0], rel=1e-9)
        masks = [float(noise.sigma2([n_active], n_active + others)[0]) for noise in (one, other)]
        assert masks[1] == pytest.approx(masks[0] / np.sqrt(c), rel=1e-9)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_candidates_are_those_of_plain_each_splitting_vector_once(data):
    """Left-out duplicates change nothing: the best gain and the first handle that reaches it are plain's."""
    rows = data.draw(st.integers(4, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    columns = []
    for k in range(3):
        if k == 2:
            codes = rng.integers(-1, 4, size=rows).astype(np.int32)
            columns.append(Column("c", codes, ("a", "b", "d", "e")))
        else:
            values = rng.integers(4, size=rows).astype(np.float32)
            values[rng.random(rows) < 0.3] = np.nan
            columns.append(Column(f"n{k}", values))
    config = TrainingConfig(max_bin=4, categories=data.draw(st.sampled_from(["onehot", "ordinal"])), min_child_weight=0)
    block = ColumnBlock.build(columns, rows, config)
    node = np.sort(rng.choice(rows, size=data.draw(st.integers(2, rows)), replace=False)).astype(np.int32)
    groups = RowGroups.root(node, 1)
    bins = block.level_bins(groups, RowGroups.root(node[:0], 1))
    gradients = np.stack((rng.integers(-50, 50, size=rows), rng.integers(1, 20, size=rows)), axis=1).astype(np.int32)
    sums = block.histogram(bins, gradients[None], groups)
    totals = gradients[node].astype(np.int64).sum(axis=0)[None]
    plain = candidates_from_sums(sums, block.layout, totals, Scale(0, 0), config)
    counts = block.histogram(bins, np.ones((1, rows, 2), dtype=np.int32), groups)[:, :, 0]
    active = rows_left(counts, block.layout).reshape(-1)
    handles = np.flatnonzero((active > 0) & (active < len(node))).astype(np.int32)
    left = np.stack([left_of(sums[:, :, kind], block.layout).reshape(-1) for kind in (0, 1)], axis=1)
    splits = block.splits_of(handles)
    seen = set()
    for k, handle in enumerate(handles.tolist()):
        member = splits.left[k][bins.bins[0][node, splits.feature[k]]]
        assert member.sum() == active[handle]
        np.testing.assert_array_equal(member @ gradients[node], left[handle])
        vector = (int(splits.feature[k]), member.tobytes())
        assert vector not in seen
        seen.add(vector)
    if not len(handles):
        assert plain.best_gain[0] == -np.inf
        return
    gains = noisy_gains(left[handles].astype(np.float64), totals[0].astype(np.float64), config)
    assert gains.max() == plain.best_gain[0]
    if np.isfinite(gains.max()):
        assert handles[gains.argmax()] == plain.best_handle[0]
