"""How much memory parties need at once: bytes of what they keep, and of the largest thing they do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from veilboost.crypto.lattice.keys import SPAN_ROWS
from veilboost.crypto.lattice.parameters import DEGREE, POLYNOMIAL_BYTES
from veilboost.plan.ciphertexts import owner_entries, packing_entries
from veilboost.plan.job import PlannedJob, level_polynomials
from veilboost.plan.kernels import level_columns
from veilboost.plan.shape import FIRST_SHARE, tree_shape
from veilboost.plan.spending import HORIZONTAL, mask_chunk
from veilboost.protocols.lattice.active import BYTES_AT_ONCE

PROGRAM = 60e6  # the interpreter and its libraries
_VALUE, _BIN = 4, 1
_TABLE_ROW = 8  # a row's id
_LABEL = 8
_STATE_A = 8 + 8 + 4  # margin, gradient and hessian on the grid, the row's place in its node
_STATE_P = 4 + 4  # the row's place in its node, and where it goes
_GRADIENTS = 44  # while they are made: in float64, scaled, rounded, then on the grid
_NOISE = 40  # while integer noise is added: what was drawn, values on the grid, sums, those within bounds
_KERNEL = 16 * 8  # kernel vectors of a row
_CIPHERTEXT = 512  # of a 2048-bit key
_HALVES = 620  # of a ciphertext taken apart, as two integers


@dataclass(frozen=True)
class Room:
    """What a party keeps throughout, and what it needs beside that where it needs most."""

    kept: float
    work: float

    def __add__(self, other: Room) -> Room:
        """What is kept adds up; works come one after the other."""
        return Room(self.kept + other.kept, max(self.work, other.work))


@dataclass(frozen=True)
class Memory:
    """Of the driver, of the other that needs most, and of all in one process, as in a simulation."""

    here: float
    others: float
    together: float


def memory_of(protocol: str, job: PlannedJob, message: float) -> Memory:
    """`message`: the largest; a party that sends or reads it has its frame beside it."""
    if protocol in HORIZONTAL:
        own, other = _HORIZONTAL[protocol](job)
        others = [other] * job.participants
    else:
        n = float(job.rows)
        columns = _VALUE + _BIN
        pairs = [_VERTICAL[protocol](job, count) for count in job.passive]
        own = Room(n * (_TABLE_ROW + _LABEL + columns * job.features[0] + _STATE_A), n * _GRADIENTS)
        for at, (here, _) in enumerate(pairs):
            own += here if not at or protocol in _FOR_EACH else Room(0.0, here.work)
        others = [
            there + Room(n * (_TABLE_ROW + columns * count + _STATE_P), 0.0)
            for count, (_, there) in zip(job.passive, pairs, strict=True)
        ]
    largest = max(others, key=lambda room: room.kept + room.work)
    # Beside a passive party that multiplies ciphertexts, the active one in the same process still has them.
    beside = message if protocol in _STILL_HELD else 0.0
    return Memory(
        here=PROGRAM + own.kept + own.work + message * max(1, len(job.passive)),
        others=PROGRAM + largest.kept + largest.work + message,
        together=PROGRAM + own.kept + sum(room.kept for room in others) + max(own.work, largest.work + beside),
    )


# --- what a protocol adds, at the active party and at a passive one ----------------------------------------------


def _nothing(job: PlannedJob, passive: int) -> tuple[Room, Room]:
    return Room(0.0, 0.0), Room(0.0, 0.0)


def _ldp(job: PlannedJob, passive: int) -> tuple[Room, Room]:
    n = float(job.rows)
    return Room(0.0, n * (_GRADIENTS + _NOISE)), Room(0.0, 0.0)


def _federboost(job: PlannedJob, passive: int) -> tuple[Room, Room]:
    """All bins are at the active party; they are sent as numbers of two bytes."""
    cells = float(job.rows) * passive
    return Room(cells * _BIN, 0.0), Room(0.0, 2 * cells)


def _masked(job: PlannedJob, passive: int) -> tuple[Room, Room]:
    """A chunk of masks, unless a level has fewer; the answer to it, and what scores are made of."""
    chunk = min(mask_chunk(job.rows), 2 * 4.0 * job.rows * passive * job.bins)
    return Room(0.0, chunk), Room(0.0, 3 * chunk)


def _lattice(job: PlannedJob, passive: int, streams: bool = True) -> tuple[Room, Room]:
    """The widest level: ciphertexts and masks, each as they are made and as they are sent; and of a span the
    ciphertexts as they are multiplied, three families of two residues, with the bin of every cell.

    Where a level streams a message has so many bytes, and the rest of its last span.
    """
    slots = max(1, passive * job.bins)
    here = there = 0.0
    for level in level_polynomials(tree_shape(job.rows, job.depth, FIRST_SHARE), slots, max(1, passive)):
        span = min(1.0, SPAN_ROWS / level.rows)
        ciphertexts = 4 * POLYNOMIAL_BYTES * level.runs
        if streams:
            ciphertexts = min(ciphertexts, BYTES_AT_ONCE + span * ciphertexts / 2)
        masks = POLYNOMIAL_BYTES * level.tiles * min(1.0, ciphertexts / (4 * POLYNOMIAL_BYTES * level.runs))
        loaded = span * (3 * 2 * 8 * DEGREE * level.runs + 4 * passive * level.rows)
        here = max(here, 2 * ciphertexts + masks)
        there = max(there, 2 * ciphertexts + 2 * masks + loaded)
    return Room(0.0, here), Room(0.0, there)


def _paillier(job: PlannedJob, passive: int) -> tuple[Room, Room]:
    """Tables of powers in halves, ciphertexts as bytes and as integers."""
    n = float(job.rows)
    own = _HALVES / 2 * owner_entries(job.rows, job.trees)  # modulo the primes, whose squares are half as long
    other = _HALVES * packing_entries(job.rows, job.trees, job.depth, passive * job.bins)
    return (
        Room(n * _CIPHERTEXT + own, n * 4 * _CIPHERTEXT),
        Room(n * (_CIPHERTEXT + _HALVES) + other, n * 3 * _CIPHERTEXT),
    )


def _elxgb(job: PlannedJob, passive: int) -> tuple[Room, Room]:
    first, later = _paillier(job, passive), _ldp(job, passive)
    return first[0] + later[0], first[1] + later[1]


def _smm1(job: PlannedJob, passive: int) -> tuple[Room, Room]:
    """Kernel vectors while they are made orthogonal; then the masked columns of the whole level, beside the vectors in
    the orders that features need them in."""
    n = float(job.rows)
    masked, _ = level_columns(job.rows, passive, job.bins)
    work = 8 * masked + 5 * _KERNEL * n
    return Room(0.0, max(7 * _KERNEL * n, work)), Room(0.0, work)


def _smm2(job: PlannedJob, passive: int) -> tuple[Room, Room]:
    """The columns of the widest block, whose room is kept for others; kernel vectors while they are made orthogonal."""
    n = float(job.rows)
    _, columns = level_columns(job.rows, passive, job.bins)
    return Room(0.0, 4 * _KERNEL * n), Room(8 * columns, 7 * _KERNEL * n)


def _mal(job: PlannedJob) -> tuple[Room, Room]:
    """The server has everyone's bins, one by one and in couples, and grows the trees."""
    n, columns = float(job.rows), job.features[0]
    own = n / job.participants * (_TABLE_ROW + _LABEL + (_VALUE + _BIN) * columns)
    return Room(n * 4 * columns, n * 40), Room(own, 0.0)


def _secagg(job: PlannedJob) -> tuple[Room, Room]:
    """Participants have their columns in order too, while cuts are looked for."""
    n, columns = float(job.rows) / job.participants, job.features[0]
    return Room(0.0, 0.0), Room(n * (_TABLE_ROW + _LABEL + (2 * _VALUE + _BIN) * columns + _STATE_A), n * _GRADIENTS)


_FOR_EACH = ("federboost",)  # what the active party keeps of every passive one
_VERTICAL: Mapping[str, Callable[[PlannedJob, int], tuple[Room, Room]]] = {
    "plain": _nothing,
    "paillier": _paillier,
    "lattice": _lattice,
    "sealed": partial(_lattice, streams=False),
    "ldp": _ldp,
    "masked": _masked,
    "federboost": _federboost,
    "smm1": _smm1,
    "smm2": _smm2,
    "elxgb": _elxgb,
}
_STILL_HELD = frozenset({"lattice", "sealed"})
_HORIZONTAL: Mapping[str, Callable[[PlannedJob], tuple[Room, Room]]] = {"mal": _mal, "secagg": _secagg}
