"""Arrays in pages of their own: writable, of the size asked for, and gone with their last holder."""

from __future__ import annotations

import gc
import mmap
import sys

import numpy as np
import pytest

from veilboost.wire.message import own_pages


@pytest.mark.parametrize("size", [0, 1, mmap.PAGESIZE, 3 * mmap.PAGESIZE + 5])
def test_there_are_as_many_bytes_as_asked_for_and_they_can_be_written(size: int) -> None:
    room = own_pages(size)
    assert room.shape == (size,)
    assert not room.any()
    room[:] = 7
    assert np.count_nonzero(room == 7) == size


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads process information of Linux")
def test_pages_are_the_process_own_and_go_back_to_the_system() -> None:
    size = 64 << 20
    before = _own_memory()
    room = own_pages(size)
    room[:] = 1
    assert _own_memory() - before > 0.9 * size
    view = room[: size // 2]
    del room
    gc.collect()
    assert _own_memory() - before > 0.9 * size  # a view still holds them
    del view
    gc.collect()
    assert _own_memory() - before < 0.1 * size


def _own_memory() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon:"))
