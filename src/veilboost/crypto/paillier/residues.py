"""Random m-th residues modulo m^2 from tables, for a few microseconds per factor instead of an exponentiation.

The table has a row of powers for each of several bases; a residue is the product of one entry of each row, taken at
random. This is the fixed-base idea of Damgard, Jurik and Nielsen (2010), but exponents are as long as the group's
order plus `MARGIN` bits, so that residues are uniform and not only assumed to look so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.halves import Halves, halve
from veilboost.crypto.paillier.integers import big, power

MARGIN = 64
MOST_WINDOW = 10  # a row of 1024 powers: about 90 MB in all for the owner of a 2048-bit key
_TABLE_COST = 8  # an entry of the table costs as much as so many multiplications of a draw
_CHUNK = 1024


class ResidueTable:
    """Draws products of powers of the bases; `window` bits of exponent for each."""

    def __init__(self, root: int, bases: Sequence[int], window: int) -> None:
        self._square = root * root
        self._window = window
        self._rows: list[Halves] = []
        for base in bases:
            row = [big(1)]
            for _ in range((1 << window) - 1):
                row.append(row[-1] * base % self._square)
            self._rows.append(halve(row, root))

    def draw(self, count: int, randomness: Csprng) -> Iterator[tuple[int, int]]:
        """So many independent residues, in two halves (see `halves`)."""
        for done in range(0, count, _CHUNK):
            yield from self._draw_chunk(min(_CHUNK, count - done), randomness)

    def _draw_chunk(self, count: int, randomness: Csprng) -> Iterator[tuple[int, int]]:
        # Row after row for the whole chunk: a row stays in the processor's cache, the table does not.
        square = self._square
        drawn = np.frombuffer(randomness.bytes(2 * count * len(self._rows)), dtype="<u2")
        digits = (drawn & ((1 << self._window) - 1)).reshape(len(self._rows), count)
        xs, ts = [big(1)] * count, [big(0)] * count
        for row, places in zip(self._rows, digits, strict=True):
            factors, addends = row.x, row.t
            at: list[int] = places.tolist()
            xs = [x * factors[k] % square for x, k in zip(xs, at, strict=True)]
            ts = [t + addends[k] for t, k in zip(ts, at, strict=True)]
        return zip(xs, ts, strict=True)


def window_for(bits: int, draws: int, most: int = MOST_WINDOW) -> int:
    """The window that makes the table and `draws` draws of `bits` bits cheapest together."""
    return min(
        range(1, most + 1),
        key=lambda window: -(-bits // window) * (draws + (_TABLE_COST << window)),
    )


def ladder(base: int, bits: int, window: int, modulus: int) -> list[int]:
    """base^(2^(window * k)): bases whose digits are those of one exponent of at least `bits` bits."""
    bases = [base]
    for _ in range(-(-bits // window) - 1):
        bases.append(power(bases[-1], big(1) << window, modulus))
    return bases
