"""The work of `paillier` counted: tables of powers, encryptions, additions, and packages that go back."""

from __future__ import annotations

import math

from veilboost.crypto.paillier.integers import MARGIN, window_for
from veilboost.protocols.cost import SIDES, Cost, Needs, PlannedJob, Room, Shape, Units
from veilboost.protocols.paillier.options import PaillierOptions

_KEY_BITS = PaillierOptions().key_bits
_OWNER, _OTHER = _KEY_BITS // 2 + MARGIN, _KEY_BITS + MARGIN  # bits of an exponent: modulo a prime's square, modulo n^2
_MOST_WINDOW, _INDEPENDENT = 8, 32  # of the masks that make packages anew
_POWER, _ENTRY, _HALF = 1.2, 2.2, 0.7  # multiplications for a bit of an exponent, an entry, a factor in halves
_GRADIENT_BITS = 21  # with its sign
_CIPHERTEXT = 512  # bytes, of a 2048-bit key
_HALVES = 620  # of a ciphertext taken apart, as two integers


def tree_units(job: PlannedJob, columns: int, shape: Shape, first: bool) -> Units:
    """Of one tree.

    factors
        Entries of the table that encryptions are products of.
    added
        Additions of ciphertexts: those that have the same labels in several columns are added once for all of them.
    multiplied
        Multiplications modulo n^2 that pack sums and make packages anew; in the first tree also those that make the
        table for it.
    packages
        Ciphertexts that go back and are decrypted.
    """
    slots = columns * job.bins
    pair, capacity = _pair(job.rows)
    packages = float(sum(math.ceil(built * slots / capacity) for built in shape.built))
    bases, entries = _packing_table(job.rows, job.trees, len(shape.nodes), slots)
    table = (1 + _INDEPENDENT) * _POWER * _OTHER + entries * _ENTRY
    return {
        "factors": 2.0 * job.rows * _digits(_OWNER, owner_window(job.rows, job.trees)),
        "added": sum(
            built * _added(total / built, columns, job.bins)
            for built, total in zip(shape.built, shape.built_rows, strict=True)
        ),
        "multiplied": sum(shape.built) * slots * pair + packages * bases * _HALF + (table if first else 0.0),
        "packages": packages,
    }


def job_units(job: PlannedJob) -> Units:
    """Entries of the table that the owner of the key encrypts with."""
    window = owner_window(job.rows, job.trees)
    return {"entries": 2.0 * _digits(_OWNER, window) * 2**window}


# Beside what is done with ciphertexts nothing else counts.
COST = Cost(
    here=("rows", "factors", "packages"),
    there=("rows", "added", "multiplied"),
    answered=(*SIDES, "packages"),
    scale=100,
    reach=40,
    most_trees=2,
    far=(2, 6, 2, 8, 1),
    once_here=("start", "entries"),
    once_there=("start",),
    tree_units=tree_units,
    job_units=job_units,
    for_each=("packages",),
)


def memory(job: PlannedJob, columns: int) -> Needs:
    """Tables of powers in halves, ciphertexts as bytes and as integers."""
    n = float(job.rows)
    own = _HALVES / 2 * job_units(job)["entries"]  # modulo the primes, whose squares are half as long
    other = _HALVES * _packing_table(job.rows, job.trees, job.depth, columns * job.bins)[1]
    return Needs(
        here=Room(n * _CIPHERTEXT + own, n * 4 * _CIPHERTEXT),
        there=Room(n * (_CIPHERTEXT + _HALVES) + other, n * 3 * _CIPHERTEXT),
    )


def owner_window(rows: int, trees: int) -> int:
    return window_for(_OWNER, rows * trees)


def _packing_table(rows: int, trees: int, depth: int, slots: int) -> tuple[int, float]:
    """Bases and entries of the table that makes packages anew."""
    window = window_for(_OTHER, 2 ** (depth - 1) * slots * trees // _pair(rows)[1], _MOST_WINDOW)
    bases = _digits(_OTHER, window) + _INDEPENDENT
    return bases, float(bases * 2**window)


def _pair(rows: int) -> tuple[int, int]:
    """Bits of a sum of pairs, and how many go into a package."""
    bits = 2 * (_GRADIENT_BITS + math.ceil(math.log2(rows)))
    return bits, (_KEY_BITS - 1) // bits


def _digits(bits: int, window: int) -> int:
    return -(-bits // window)


def _added(items: float, features: int, bins: int) -> float:
    """As `sums_by_label` halves the columns again and again, and at each half merges what agrees in all of it."""
    if not features:
        return 0.0
    codes = float(bins) ** min(features, 12)
    merged = codes * -math.expm1(items * math.log1p(-1 / codes)) if codes < 1e9 else items
    half = features // 2
    below = _added(merged, half, bins) + _added(merged, features - half, bins) if features > 1 else 0.0
    return items - merged + below
