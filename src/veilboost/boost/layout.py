"""Where a party's bins lie in a histogram. A slot is one bin of one feature; features lie end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilboost.types import ColumnKind, Int32Array, UInt8Array

KIND_CODES = {ColumnKind.NUMERIC: 0, ColumnKind.ONEHOT: 1, ColumnKind.SETS: 2}


@dataclass(frozen=True)
class BinLayout:
    """Feature f has slots offsets[f] .. offsets[f+1]; the last of them holds missing values where missing[f] is 1.

    A candidate split of a feature is its *handle* 2 * slot + direction: what slot means is told in
    `native/split.cpp`, direction 1 sends missing values left. Handles therefore sort by column, cut, direction.
    """

    offsets: Int32Array
    missing: UInt8Array
    kind: UInt8Array

    @staticmethod
    def of(value_bins: Sequence[int], missing: Sequence[bool], kinds: Sequence[ColumnKind]) -> BinLayout:
        has_missing = np.asarray(missing, dtype=np.uint8)
        widths = np.asarray(value_bins, dtype=np.int32) + has_missing
        offsets = np.zeros(len(widths) + 1, dtype=np.int32)
        np.cumsum(widths, out=offsets[1:])
        return BinLayout(offsets, has_missing, np.asarray([KIND_CODES[kind] for kind in kinds], dtype=np.uint8))

    @property
    def features(self) -> int:
        return len(self.missing)

    @property
    def slots(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def has_missing(self) -> bool:
        return bool(self.missing.any())

    @cached_property
    def has_categories(self) -> bool:
        return bool(self.kind.any())

    @cached_property
    def has_sets(self) -> bool:
        return bool((self.kind == KIND_CODES[ColumnKind.SETS]).any())

    @cached_property
    def widths(self) -> Int32Array:
        """How many slots each feature has."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def widest(self) -> int:
        """The largest number of slots of a feature."""
        return int(self.widths.max(initial=0))

    def subset(self, features: Int32Array) -> BinLayout:
        widths = self.widths[features]
        offsets = np.zeros(len(features) + 1, dtype=np.int32)
        np.cumsum(widths, out=offsets[1:])
        return BinLayout(offsets, self.missing[features], self.kind[features])

    def locate(self, handles: Int32Array) -> tuple[Int32Array, Int32Array, Int32Array]:
        """Handles as (feature, bin within the feature, direction of missing values)."""
        slot = handles >> 1
        feature = self.offsets.searchsorted(slot, side="right").astype(np.int32) - np.int32(1)
        return feature, slot - self.offsets[feature], handles & 1
