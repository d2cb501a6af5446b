"""Row sampling of horizontally partitioned data: by the ids of rows, so that no row depends on who else takes part.

A row is drawn by a pseudo-random function of the job's `random_state`, its id, and the round. Nothing here is secret.
"""

from __future__ import annotations

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.crypto.fingerprint import keyed_digests
from veilboost.types import AnyArray, BoolArray, UInt64Array

_GOLDEN = 0x9E3779B97F4A7C15  # of SplitMix64 (Steele, Lea and Flood 2014), as are the constants of `_mixed`
_FRACTION = 2.0**-53


class RowSampler:
    """Draws the rows of each round from rows with these ids. A number and its digits are the same id."""

    def __init__(self, ids: AnyArray, config: TrainingConfig) -> None:
        self._share = config.subsample
        self.codes: UInt64Array = np.empty(0, dtype=np.uint64)  # of the ids; none if all rows are used
        if self._share < 1.0:
            key = config.random_state.to_bytes(8, "big")
            digests = keyed_digests([str(each).encode() for each in ids.tolist()], key, "blake2b", 8)
            self.codes = digests.view("<u8").reshape(-1)

    def drawn(self, number: int) -> BoolArray | None:
        """Which rows the round uses; None: all."""
        if self._share >= 1.0:
            return None
        step = np.uint64((number + 1) * _GOLDEN % (1 << 64))
        return (_mixed(_mixed(self.codes) + step) >> np.uint64(11)) * _FRACTION < self._share


def _mixed(values: UInt64Array) -> UInt64Array:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
