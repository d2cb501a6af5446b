"""Sides: which way rows go, a 0 or 1 (left) for each row of some nodes, node after node.

They cross in pieces of packed bits, so that nobody need hold or send those of all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from veilboost.errors import MalformedMessage
from veilboost.types import UInt8Array

Sides: TypeAlias = UInt8Array
SIDES_AT_ONCE = 1 << 21  # rows of a piece, which is 256 kB; whole bytes, so that pieces can be put together


def pieces(left: Sides) -> Iterator[UInt8Array]:
    """Packed pieces; an empty one where there are no rows."""
    for first in range(0, max(len(left), 1), SIDES_AT_ONCE):
        yield np.packbits(left[first : first + SIDES_AT_ONCE])


class SidesHeard:
    """Sides of so many rows, as far as they have been told. Never changes: a refused message leaves no trace."""

    def __init__(self, rows: int, pieces: int = 0, packed: tuple[UInt8Array, ...] = ()) -> None:
        self.rows, self.pieces, self._packed = rows, pieces, packed

    def plus(self, piece: UInt8Array) -> SidesHeard:
        """With one piece more, of `SIDES_AT_ONCE` rows or all that are left."""
        self.rows_of(piece)
        return SidesHeard(self.rows, self.pieces + 1, (*self._packed, piece))

    @property
    def complete(self) -> bool:
        return self.pieces * SIDES_AT_ONCE >= self.rows

    def whole(self) -> Sides:
        """All of them. Raises `MalformedMessage` where some were not told."""
        if not self.complete:
            raise MalformedMessage("the left/right bits of some rows were not told")
        if not self.rows:
            return np.empty(0, dtype=np.uint8)
        return np.unpackbits(np.concatenate(self._packed), count=self.rows)

    def rows_of(self, piece: UInt8Array) -> int:
        """How many rows the next piece is of; it must have their bits."""
        rows = min(max(self.rows - self.pieces * SIDES_AT_ONCE, 0), SIDES_AT_ONCE)
        if len(piece) != (rows + 7) // 8:
            raise MalformedMessage("there are left/right bits for another number of rows")
        return rows
