"""A party's own work in `ecdh`: its secret, its ids as blinded points, and the blinding of others' points."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.align.api import AlignContext
from veilboost.align.ids import canonical_ids, distinct, sort_order
from veilboost.crypto.curve import SCALAR_BYTES, check_points, hash_to_points, multiply
from veilboost.errors import MalformedMessage
from veilboost.types import Int64Array, UInt8Array


@dataclass(frozen=True)
class BlindedIds:
    """A secret that serves one alignment, the party's points under it, sorted, and the row behind each."""

    secret: bytes
    points: UInt8Array
    rows: Int64Array
    threads: int

    @classmethod
    def prepare(cls, context: AlignContext) -> BlindedIds:
        """Hash and blind. Needs no other party."""
        texts = canonical_ids(context.ids)
        secret = context.random.bytes(SCALAR_BYTES)
        points = multiply(hash_to_points(texts, context.threads), secret, context.threads)
        order = sort_order(points)
        return cls(secret, points[order], order, context.threads)

    def blind(self, points: UInt8Array) -> UInt8Array:
        """Others' points under this secret too, in the order in which they came."""
        return multiply(points, self.secret, self.threads)


def check_set(points: UInt8Array, most_rows: int) -> None:
    """Refuse what cannot be a set of blinded ids."""
    check_points(points)
    if len(points) > most_rows:
        raise MalformedMessage(f"there are more than {most_rows} points")
    if not distinct(points):
        raise MalformedMessage("a point repeats")
