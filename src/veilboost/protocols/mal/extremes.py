"""From a participant's lowest and highest values to the buckets of all (MAL Alg. 1).

Extremes are encrypted for the comparer and sealed for the other participants; buckets follow from those of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from veilboost.boost.bins import equal_width
from veilboost.boost.columns import category_cuts
from veilboost.crypto.csprng import JobRandomness, Pool
from veilboost.crypto.ore.api import SEALED_BYTES, OreKeys, read_value, seal_value, to_ordered
from veilboost.crypto.ore.schemes import scheme_named
from veilboost.errors import ImpossibleParameter, MalformedMessage
from veilboost.protocols.horizontal.schema import Schema
from veilboost.protocols.mal.messages import EncryptedExtremes, GlobalExtremes
from veilboost.protocols.mal.options import MalOptions
from veilboost.types import Column, Float32Array, Float64Array, PartyName

SIDES = ("low", "high")  # each has keys of its own, as every column has


class Extremes:
    """The extremes of numeric columns; NaN where a column holds no value."""

    def __init__(self, columns: Sequence[Column], options: MalOptions) -> None:
        self._options = options
        self._scheme = scheme_named(options.ore, options.ore_bits)
        self.values = np.full((len(columns), 2), np.nan)
        for at, column in enumerate(columns):
            present = column.values[~np.isnan(column.values)]
            if len(present):
                self.values[at] = float(present.min()), float(present.max())
        self._present = ~np.isnan(self.values[:, 0])
        if bool((np.abs(self.values[self._present]) > options.largest).any()):
            raise ImpossibleParameter(
                "a value is outside the range that the participants agreed on (largest)",
                "look for a wrong value, or agree on a larger range",
            )

    def encrypted(
        self, keys: OreKeys, randomness: JobRandomness, participants: tuple[PartyName, ...]
    ) -> EncryptedExtremes:
        """The same ciphertexts whenever they are asked for, whoever takes part."""
        count = len(self.values)
        ciphertexts = np.zeros((count, 2, self._scheme.size), dtype=np.uint8)
        sealed = np.zeros((count, 2, SEALED_BYTES), dtype=np.uint8)
        random = Pool(randomness.for_request("mal", "extremes", keys.master, self.values.tobytes()))
        for at in np.flatnonzero(self._present).tolist():
            for side, value in enumerate(self.values[at].tolist()):
                own = keys.for_purpose(at, SIDES[side])
                ciphertexts[at, side] = _as_array(self._scheme.encrypt(own, self._ordered(value), random))
                sealed[at, side] = _as_array(seal_value(own, value, random))
        return EncryptedExtremes(ciphertexts, sealed, self._present.astype(np.uint8), participants)

    def within(self, keys: OreKeys, answer: GlobalExtremes) -> Float64Array:
        """The extremes of all, (columns, 2): checked against the own ones, which they must enclose.

        The comparer cannot make up a value, for it cannot seal one. It can only give back another participant's, and if
        that is not the extreme, the one whose value lies beyond it sees so here.
        """
        shape = (*self.values.shape, SEALED_BYTES)
        if answer.values.shape != shape or answer.present.shape != self._present.shape:
            raise MalformedMessage("the comparer answered for other columns")
        found = np.full(self.values.shape, np.nan)
        for at in np.flatnonzero(answer.present).tolist():
            for side in range(2):
                sealed = answer.values[at, side].tobytes()
                found[at, side] = read_value(keys.for_purpose(at, SIDES[side]), sealed)
        for at in np.flatnonzero(self._present | (answer.present != 0)).tolist():
            self._check(found[at].tolist(), self.values[at].tolist() if self._present[at] else None)
        return found

    def _check(self, found: list[float], own: list[float] | None) -> None:
        inconsistent = MalformedMessage(
            "the comparer's answer contradicts this participant's own values",
            "do not train on this: ask whoever runs the comparer",
        )
        if any(math.isnan(value) for value in found):
            raise inconsistent
        low, high = (self._ordered(value) for value in found)
        if low > high or (own is not None and (self._ordered(own[0]) < low or self._ordered(own[1]) > high)):
            raise inconsistent
        if max(abs(value) for value in found) > self._options.largest:
            raise ImpossibleParameter(
                "an extreme of another participant is outside the range that all agreed on (largest)",
                "ask the participants for wrong values, or agree on a larger range",
            )

    def _ordered(self, value: float) -> int:
        return to_ordered(value) >> (64 - self._options.ore_bits)


def numeric_columns(schema: Schema) -> list[int]:
    """Those that have a lowest and a highest value; categories have one bucket each instead."""
    return [at for at, info in enumerate(schema.columns) if info.categories is None]


def cuts_of(schema: Schema, low: Float64Array, high: Float64Array, buckets: int) -> Sequence[Float32Array]:
    """Cuts of all columns; a numeric column without any value (its low is NaN) has none."""
    cuts: list[Float32Array] = []
    place = 0
    for info in schema.columns:
        if info.categories is not None:
            cuts.append(category_cuts(len(info.categories or ())))
            continue
        known = not np.isnan(low[place])
        cuts.append(
            equal_width(float(low[place]), float(high[place]), buckets) if known else np.empty(0, dtype=np.float32)
        )
        place += 1
    return cuts


def _as_array(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(content, np.uint8)
