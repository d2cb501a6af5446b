"""Room for the large arrays of a stream of messages."""

from __future__ import annotations

import mmap

import numpy as np

from veilboost.types import UInt8Array


def own_pages(size: int) -> UInt8Array:
    """Bytes, all 0, in pages of their own: these go back to the system with the array.

    What malloc gives may stay behind as holes, and a process that sends thousands of messages of slightly different
    sizes grows by them.
    """
    return np.frombuffer(mmap.mmap(-1, max(1, size), access=mmap.ACCESS_COPY), dtype=np.uint8)[:size]
