"""Each kernel against a twin in NumPy, and the noise against its law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from veilboost import _native

pytestmark = pytest.mark.fast

KEY = bytes(range(32))
TAIL, AREA, PLACES = 3.442619855899, 9.91256303526217e-3, 2.0**24


def key_stream(key: bytes, nonce: tuple[int, int, int], words: int) -> np.ndarray:
    """ChaCha20 by another library; the kernel hands out eight blocks at a time, word 0 of all eight first."""
    count = b"".join(number.to_bytes(4, "little") for number in (0, *nonce))
    batches = -(-words // 128)
    stream = Cipher(algorithms.ChaCha20(key, count), mode=None).encryptor().update(bytes(512 * batches))
    return np.frombuffer(stream, dtype="<u4").reshape(batches, 8, 16).transpose(0, 2, 1).reshape(-1)[:words]


def ziggurat_tables():
    inside, width, height = np.zeros(128, dtype=np.int64), np.zeros(128, dtype=np.float32), np.zeros(128)
    edge = above = TAIL
    base = AREA / math.exp(-0.5 * edge * edge)
    inside[0], width[0], width[127] = int(edge / base * PLACES), base / PLACES, edge / PLACES
    height[0], height[127] = 1.0, math.exp(-0.5 * edge * edge)
    for layer in range(126, 0, -1):
        edge = math.sqrt(-2.0 * math.log(AREA / edge + math.exp(-0.5 * edge * edge)))
        inside[layer + 1] = int(edge / above * PLACES)
        above = edge
        height[layer], width[layer] = math.exp(-0.5 * edge * edge), edge / PLACES
    return inside, width, height


def twin_normals(key: bytes, nonce: tuple[int, int], count: int) -> np.ndarray:
    inside, width, height = ziggurat_tables()
    words = key_stream(key, (*nonce, 0), count)
    spare = iter(key_stream(key, (*nonce, 1), 4 * count + 1024).tolist())

    def uniform():
        return (next(spare) + 0.5) * 2.0**-32

    def settled(word):
        while True:
            layer, sign = word & 127, -1.0 if word & 128 else 1.0
            x = np.float32(word >> 8) * width[layer]
            if word >> 8 < inside[layer]:
                return np.float32(sign) * x
            if layer == 0:
                while True:
                    beyond, other = -math.log(uniform()) / TAIL, -math.log(uniform())
                    if 2 * other > beyond * beyond:
                        return np.float32(sign) * np.float32(TAIL + beyond)
            if height[layer] + uniform() * (height[layer - 1] - height[layer]) < math.exp(-0.5 * float(x) ** 2):
                return np.float32(sign) * x
            word = next(spare)

    return np.array([settled(word) for word in words.tolist()], dtype=np.float32)


def as_key(key: bytes) -> np.ndarray:
    return np.frombuffer(key, dtype=np.uint8)


def some_node(rows: int, candidates: int, wide: bool, seed: int = 0):
    rng = np.random.default_rng(seed)
    bins = rng.integers(12, size=(rows + 20, 4)).astype(np.uint16 if wide else np.uint8)
    chosen = np.sort(rng.choice(rows + 20, size=rows, replace=False)).astype(np.int32)
    column = rng.integers(4, size=candidates).astype(np.int32)
    left = rng.integers(2, size=(candidates, 12)).astype(np.uint8)
    members = np.stack([left[c][bins[chosen, column[c]]] for c in range(candidates)])
    return bins, chosen, column, left, members


@pytest.mark.parametrize("count", [1, 127, 128, 129, 6000])
def test_normals_equal_their_twin(count):
    out = np.empty((3, count), dtype=np.float32)
    _native.normals(as_key(KEY), out)
    for stream in range(3):
        np.testing.assert_array_equal(out[stream], twin_normals(KEY, (stream, 0), count))


def test_normals_are_normal():
    out = np.empty((8, 250_000), dtype=np.float32)
    _native.normals(as_key(KEY), out)
    x = out.astype(np.float64).ravel()
    # Moments of two million draws: each tolerance is five standard errors.
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs((x**power).mean() - moment) < 5 * math.sqrt(spread / len(x)), power
    for bound in (0.5, 1.0, 2.0, 3.0, 3.6, 4.2):
        expected = math.erfc(bound / math.sqrt(2))
        assert abs((np.abs(x) > bound).mean() - expected) < 5 * math.sqrt(expected / len(x)), bound


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("vectors", [1, 3])
def test_masks_equal_their_twin(wide, vectors):
    bins, rows, column, left, members = some_node(300, 5, wide)
    left[4] = 0  # nobody goes left
    members[4] = 0
    scales = np.random.default_rng(1).random((5, 3)).astype(np.float32)
    masks = np.empty((5, vectors, 300), dtype=np.float32)
    kernel = _native.make_masks_u16 if wide else _native.make_masks_u8
    kernel(bins, rows, column, left, scales, as_key(KEY), 7, masks, 2)
    for c in range(5):
        active = np.flatnonzero(members[c])
        for w in range(vectors):
            normal = twin_normals(KEY, (7 + c, w), 300)
            expected = scales[c, 2] * normal
            expected[active] = scales[c, 0] * normal[active] - scales[c, 1] * np.roll(normal[active], 1)
            np.testing.assert_array_equal(masks[c, w], expected)


def test_masks_do_not_depend_on_threads_or_on_where_a_run_starts():
    bins, rows, column, left, _ = some_node(50_000, 12, wide=False)
    scales = np.ones((12, 3), dtype=np.float32)
    runs = []
    for threads, parts in ((1, [slice(0, 12)]), (2, [slice(0, 12)]), (1, [slice(0, 5), slice(5, 12)])):
        masks = np.empty((12, 1, 50_000), dtype=np.float32)
        for part in parts:
            _native.make_masks_u8(
                bins, rows, column[part], left[part], scales[part], as_key(KEY), part.start, masks[part], threads
            )
        runs.append(masks)
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rows", [3, 512, 1300])
def test_added_masks_and_left_sums_equal_their_twins(rows, wide):
    bins, chosen, column, left, members = some_node(rows, 4, wide=wide, seed=rows)
    left_sums = _native.left_sums_u16 if wide else _native.left_sums_u8
    rng = np.random.default_rng(rows)
    masks = rng.normal(size=(4, 3, rows)).astype(np.float32)
    values, by = rng.normal(size=(2, rows)), rng.normal(size=(4, 2, 3))
    noised, grams = np.empty((4, 2, rows), dtype=np.float32), np.empty((4, 3, 3))
    _native.add_masks(masks, values, by, noised, grams, 2)
    exact = masks.astype(np.float64)
    np.testing.assert_allclose(noised, values + np.einsum("ckw,cwn->ckn", by, exact), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(grams, np.einsum("cvn,cwn->cvw", exact, exact), rtol=1e-12, atol=1e-9)
    sums = np.empty((4, 2))
    left_sums(bins, chosen, column, left, noised, sums, 2)
    np.testing.assert_allclose(sums, np.einsum("ckn,cn->ck", noised.astype(np.float64), members), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_number_shows_wherever_it_stands(bad):
    bins, chosen, column, left, members = some_node(100, 1, wide=False)
    for at in (int(members[0].argmax()), int(members[0].argmin())):
        noised = np.zeros((1, 1, 100), dtype=np.float32)
        noised[0, 0, at] = bad
        sums = np.empty((1, 1))
        _native.left_sums_u8(bins, chosen, column, left, noised, sums, 1)
        assert not np.isfinite(sums[0, 0])


def test_shapes_that_do_not_fit_are_refused():
    bins, rows, column, left, _ = some_node(10, 2, wide=False)
    scales, masks = np.ones((2, 3), dtype=np.float32), np.empty((2, 1, 10), dtype=np.float32)
    good = [bins, rows, column, left, scales, as_key(KEY), 0, masks, 1]
    for at, wrong in (
        (1, rows[:-1]),
        (1, rows + np.int32(1000)),
        (2, column - np.int32(9)),
        (3, left[:1]),
        (4, scales[:1]),
        (5, as_key(KEY)[:31]),
    ):
        with pytest.raises(ValueError):
            _native.make_masks_u8(*[wrong if k == at else argument for k, argument in enumerate(good)])
