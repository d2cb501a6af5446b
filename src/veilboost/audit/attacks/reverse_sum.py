"""Reverse sum: gradients that are powers of two, so that a bin's sum spells the rows in it (Weng et al. 2020).

An active party that follows the protocol but not its labels chooses them; under encryption nobody can see it. What it
takes is a dishonest party, so this is no attack on an honest run: `audit.experiments` runs it.
"""

from __future__ import annotations

import numpy as np

from veilboost.boost.layout import BinLayout
from veilboost.types import Float64Array, Int32Array, Int64Array


def chosen_gradients(number: int, rows: int, bits: int) -> tuple[Float64Array, Float64Array]:
    """g and h of one round: of `2 bits` rows, half in either, each row another power of two; zero elsewhere."""
    g, h = np.zeros(rows), np.zeros(rows)
    for values, batch in ((g, batch_of(number, 0, rows, bits)), (h, batch_of(number, 1, rows, bits))):
        values[batch] = 2.0 ** np.arange(len(batch))
    return g, h


def batch_of(number: int, channel: int, rows: int, bits: int) -> Int64Array:
    """The rows that a round spells in g (channel 0) or h (channel 1)."""
    first = (2 * number + channel) * bits
    return np.arange(min(first, rows), min(first + bits, rows))


def spelled(sums: Int64Array, layout: BinLayout, count: int) -> Int32Array:
    """The bin (rows of the batch, columns) of each row, from one channel of the root's sums (slots); -1 for none.

    Values were scaled to the grid by a power of two, which a column's total tells: it is that of all rows, 2^count - 1.
    """
    bins = np.full((count, layout.features), -1, dtype=np.int32)
    for column in range(layout.features):
        own = sums[layout.offsets[column] : layout.offsets[column + 1]]
        unit = int(own.sum()) // (2**count - 1) if count else 0
        if unit <= 0:
            continue
        for place, value in enumerate((own // unit).tolist()):
            inside = [row for row in range(count) if value >> row & 1]
            bins[inside, column] = place
    return bins
