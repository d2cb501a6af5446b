"""Columns in a new order for every round, so that a position says nothing about which column stands there.

Only columns of the same shape (bins, missing values, kind) change places: the shape is visible in any order, and so
the layout that the active party knows stays true.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.crypto.csprng import Csprng
from veilboost.types import Int32Array


@dataclass(frozen=True)
class ColumnShuffle:
    """Column f of `layout` is shown in the place of column `place[f]`."""

    layout: BinLayout
    place: Int32Array

    @staticmethod
    def none(layout: BinLayout) -> ColumnShuffle:
        """Every column in its own place."""
        return ColumnShuffle(layout, np.arange(layout.features, dtype=np.int32))

    @staticmethod
    def draw(layout: BinLayout, randomness: Csprng) -> ColumnShuffle:
        """A uniform order of each group of columns that look alike."""
        alike: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        for column, shape in enumerate(zip(layout.widths, layout.missing, layout.kind, strict=True)):
            alike[int(shape[0]), int(shape[1]), int(shape[2])].append(column)
        # Sorting by 64 random bits is uniform but for equal draws, of chance below columns^2 / 2^65.
        keys = np.frombuffer(randomness.bytes(8 * layout.features), dtype=np.uint64)
        place = np.empty(layout.features, dtype=np.int32)
        for columns in alike.values():
            order = np.array(columns, dtype=np.int32)
            place[order] = order[np.argsort(keys[order], kind="stable")]
        return ColumnShuffle(layout, place)

    @cached_property
    def starts(self) -> Int32Array:
        """The first slot of each column in what is shown."""
        return self.layout.offsets[:-1][self.place]

    @cached_property
    def slots(self) -> Int32Array:
        """The slot of its owner that stands at each slot shown."""
        shown = np.empty(self.layout.slots, dtype=np.int32)
        own = np.arange(self.layout.slots, dtype=np.int32)
        column = np.repeat(np.arange(self.layout.features), self.layout.widths)
        shown[own - self.layout.offsets[column] + self.starts[column]] = own
        return shown

    def own_handles(self, handles: Int32Array) -> Int32Array:
        """Handles of what was shown, as their owner numbers them."""
        return (2 * self.slots[handles >> 1] + (handles & 1)).astype(np.int32)
