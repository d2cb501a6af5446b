"""Columns taken two at a time, where every round sums all rows: half the additions, to the same sums."""

from __future__ import annotations

import numpy as np

from veilboost import _native
from veilboost.boost.columns import ColumnBlock
from veilboost.types import AnyArray, Int32Array, Int64Array

MOST_CELLS = 1 << 10  # of a couple: all couples' words together should stay in the first cache
MOST_BITS = 22  # of gradients: with more, words overflow after so few rows that nothing is won


class Couples:
    """Which two columns go together, and every row's cell in each couple."""

    def __init__(self, block: ColumnBlock, bins: AnyArray) -> None:
        widths: list[int] = block.layout.widths.tolist()
        self._slots = block.layout.slots
        found: list[tuple[int, int]] = []
        cells: list[AnyArray] = []
        at = 0
        while at < len(widths):
            together = at + 1 < len(widths) and widths[at] * widths[at + 1] <= MOST_CELLS
            own = bins[:, at].astype(np.uint16)
            if (own >= widths[at]).any() or (together and (bins[:, at + 1] >= widths[at + 1]).any()):
                raise IndexError("a row lies in a bin that its column has not")
            cells.append(own * np.uint16(widths[at + 1]) + bins[:, at + 1] if together else own)
            found.append((widths[at], widths[at + 1] if together else 0))
            at += 2 if together else 1
        self._cells = np.stack(cells, axis=1).astype(np.uint16)
        self._widths = np.array(found, dtype=np.int32)

    def sums(self, gradients: Int32Array, bits: int, threads: int) -> Int64Array:
        """Sums of (g, h) per tree and slot, (trees, slots, 2), of values that are not negative and fit these bits."""
        out = np.empty((len(gradients), self._slots, 2), dtype=np.int64)
        for tree, pairs in enumerate(gradients):
            _native.couple_sums(self._cells, self._widths, pairs, bits, out[tree], threads)
        return out
