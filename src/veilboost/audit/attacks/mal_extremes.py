"""`mal`: a participant's lowest and highest values, from the comparer, who knows those of one other participant.

Order-revealing encryption tells the comparer more than an order: where in two values the first difference lies. Whoever
knows one of them has all that stands before it in the other, and on which side of it that one lies. How much of a value
this is depends on the scheme: a bit's place tells most, a byte's little, no place at all nothing but the side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.audit.result import Outcome, share_right
from veilboost.audit.view import Truth, View
from veilboost.crypto.ore.api import derive
from veilboost.crypto.ore.floats import from_ordered, to_ordered
from veilboost.crypto.ore.schemes import scheme_named
from veilboost.protocols.mal.messages import ComparisonKey, EncryptedExtremes
from veilboost.protocols.mal.options import MalOptions
from veilboost.types import Column, Float64Array, PartyName

NAME = "extremes from where they differ"
PROTOCOLS = frozenset({"mal"})
ADVERSARY, VICTIM, DATA = "comparer", "participant", "lowest and highest values"

_SIDES = ("low", "high")  # each has a key of its own, as every column has
_NEAR = 0.1  # of a value: what counts as known
_LEAST, _MOST = to_ordered(-1e300), to_ordered(1e300)
_NARROW = 4.0  # an interval between ends of such a ratio says more than the value that is known


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    sent = {peer: view.received(EncryptedExtremes, peer) for peer in truth.tables}
    known = next((peer for peer, found in sent.items() if found and peer != victim), None)
    keys = view.received(ComparisonKey)
    if known is None or not sent[victim] or not keys:
        return None
    options = MalOptions.from_dict(view.config.options)
    scheme = scheme_named(options.ore, options.ore_bits)
    values, anchors = (_extremes(truth.tables[peer].columns) for peer in (victim, known))
    ours, theirs = sent[victim][-1], sent[known][-1]
    guesses: list[tuple[float, float, float]] = []
    bits: list[int] = []
    for column in np.flatnonzero(ours.present & theirs.present).tolist():
        for side, name in enumerate(_SIDES):
            key = derive(keys[-1].comparison.tobytes(), column, name)
            pair = [each.ciphertexts[column, side].tobytes() for each in (ours, theirs)]
            anchor = float(anchors[column, side])
            order, first = scheme.compare(key, *pair), scheme.first_difference(key, *pair)
            bits.append(first.stop if first.stop - first.start <= 1 else first.start)
            guesses.append((float(values[column, side]), guess_from(anchor, order, first, scheme.bits), anchor))
    true, guess, without = np.array(guesses).reshape(-1, 3).T
    if not len(true):
        return None
    hits, chance = (np.abs(each - true) <= _NEAR * np.abs(true) for each in (guess, without))
    return share_right(
        f"extremes within {_NEAR:.0%}",
        hits,
        float(chance.mean()),
        f"whoever knows one participant's extremes learns {np.mean(bits):.1f} of {scheme.bits} bits of another's by "
        f"{scheme.name}, and comes within {_NEAR:.0%} of {int(hits.sum())} of {len(hits)}",
    )


def guess_from(anchor: float, order: int, first: range, bits: int) -> float:
    """A value above (1), below (-1) or equal to (0) the anchor that first differs from it in one of these bits."""
    if order == 0:
        return anchor
    own = to_ordered(anchor) >> (64 - bits)
    below = bits - first.start  # bits that are not shared
    low = own >> below << below
    high = low + (1 << below) - 1
    half = low + (1 << below - 1)
    if len(first) == 1:  # the bit itself differs
        low, high = (half, high) if order > 0 else (low, half - 1)
    low, high = (max(low, own), high) if order > 0 else (low, min(high, own))
    lowest, highest = (from_ordered(min(max(end << (64 - bits), _LEAST), _MOST)) for end in (low, high))
    small, large = sorted((abs(lowest), abs(highest)))
    narrow = lowest * highest > 0 and large <= _NARROW * small
    return (lowest + highest) / 2 if narrow else anchor


def _extremes(columns: Sequence[Column]) -> Float64Array:
    """(numeric columns, 2): what was encrypted, for those who know it."""
    numeric = [column.values.astype(np.float64) for column in columns if column.categories is None]
    return np.array([(np.nanmin(each), np.nanmax(each)) if np.isfinite(each).any() else (0, 0) for each in numeric])
