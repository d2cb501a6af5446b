"""What kernels accept as arrays: `native/arrays.h` reads NumPy arrays that fit, and nanobind handles all others."""

from __future__ import annotations

import numpy as np
import pytest

from veilboost import _native

pytestmark = pytest.mark.fast
COUNTS = np.array([5, 3, 2, 2, 1, 9], dtype=np.int64)


class Subclass(np.ndarray):
    """An array of another class."""


def smaller(counts, out=None):
    out = np.full(len(counts) // 2, -1, dtype=np.int64) if out is None else out
    _native.smaller_siblings(counts, out)
    return out.tolist()


@pytest.mark.parametrize(
    "counts",
    [
        COUNTS,
        COUNTS.astype(np.longlong),
        COUNTS.astype(np.int32),
        COUNTS.repeat(2)[::2],
        COUNTS.view(Subclass),
        np.frombuffer(COUNTS.tobytes(), dtype=np.int64),
    ],
    ids=["as it is", "longlong", "narrower", "strided", "subclass", "read-only"],
)
def test_inputs_are_read_or_converted(counts):
    assert smaller(counts) == [1, 2, 4]


@pytest.mark.parametrize("counts", [COUNTS.reshape(2, 3), COUNTS.astype(">i8"), COUNTS.tolist(), None])
def test_other_objects_are_refused(counts):
    with pytest.raises(TypeError):
        _native.smaller_siblings(counts, np.empty(3, dtype=np.int64))


def test_outputs_are_written_in_place_or_refused():
    wide = np.full(6, -1, dtype=np.int64)
    assert smaller(COUNTS, wide[1:4]) == [1, 2, 4]
    assert wide.tolist() == [-1, 1, 2, 4, -1, -1]
    fixed = np.zeros(3, dtype=np.int64)
    fixed.flags.writeable = False
    for wrong in (fixed, np.zeros((3, 1), dtype=np.int64)):
        with pytest.raises(TypeError):
            _native.smaller_siblings(COUNTS, wrong)


def test_every_kind_of_number_is_told_apart():
    """A kernel gets the numbers that an array holds, not its bytes taken for numbers of another type."""
    rows, ends = np.arange(4, dtype=np.int32), (np.array([0]), np.array([4]))
    group, weight, margin = np.zeros(1, dtype=np.int32), np.array([2.0], dtype=np.float32), np.zeros((1, 4))
    for dtype in (np.float32, np.float64, np.float16, np.int64):
        _native.add_to_rows(rows, *ends, group, weight.astype(dtype), margin, 1)
    assert margin.tolist() == [[8.0] * 4]
    for dtype in (np.int64, np.uint32, np.int16):
        _native.add_to_rows(rows.astype(dtype), *ends, group, weight, margin, 1)
    assert margin.tolist() == [[14.0] * 4]
