"""`prealigned`: the parties agreed on rows and order before; salted digests of all ids check that they match."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from veilboost.align.api import ActiveAligner, AlignContext, Alignment, AlignmentSpec, PassiveAligner
from veilboost.align.ids import canonical_ids
from veilboost.errors import EmptyIntersection, MalformedMessage, RowsDiffer, UnexpectedMessage
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.types import UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import ArraySpec, Message, Reveals

Bytes = Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class OrderCheck(Message):
    """Active to passive: the number of rows, and a salted digest of their ids in order, to be confirmed."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows the active party has", "passive"),
        Reveals("a salted digest of all ids in order: a guess of the whole list can be tested", "passive"),
    )
    rows: int
    salt: Bytes
    digest: Bytes


@dataclass(frozen=True)
class OrderConfirmed(Message):
    """Passive to active: the ids match; the digest has another label, so only a party with the ids can make it."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("that the passive party has the same ids in the same order", "active"),
    )
    digest: Bytes


SALT_BYTES = DIGEST_BYTES = 32


def order_digest(ids: Sequence[bytes], salt: bytes, role: str) -> bytes:
    """Each role has its own digest, so that a party cannot send back the one that it received."""
    state = hashlib.blake2b(key=salt, digest_size=DIGEST_BYTES, person=f"vb order {role}".encode())
    # Lengths first, so that no two lists give the same bytes.
    state.update(np.array([len(ids), *map(len, ids)], dtype="<u8").tobytes())
    state.update(b"".join(ids))
    return state.digest()


def checked_bytes(array: UInt8Array, size: int) -> bytes:
    if array.shape != (size,):
        raise MalformedMessage(f"a salt or digest does not have {size} bytes")
    return array.tobytes()


class PrealignedActive(ActiveAligner):
    """Sends every party a check under a separate salt, and accepts only an answer made from the same ids."""

    def __init__(self, context: AlignContext, peers: Peers) -> None:
        super().__init__(context, peers)
        self._ids: list[bytes] | None = None

    def prepare(self) -> None:
        self._ids = canonical_ids(self._context.ids)

    def align(self) -> Alignment:
        if self._ids is None:
            self.prepare()
        ids = self._ids or []
        salts = {name: self._context.random.bytes(SALT_BYTES) for name in self._peers.names}
        checks = {
            name: OrderCheck(
                len(ids),
                np.frombuffer(salt, np.uint8),
                np.frombuffer(order_digest(ids, salt, "active"), np.uint8),
            )
            for name, salt in salts.items()
        }
        for name, answer in self._peers.ask(checks, OrderConfirmed).items():
            expected = order_digest(ids, salts[name], "passive")
            if not hmac.compare_digest(checked_bytes(answer.digest, DIGEST_BYTES), expected):
                raise RowsDiffer(f"{name} has other rows, or the same rows in another order")
        if not ids:  # all parties have none, as just confirmed
            raise EmptyIntersection("there are no rows")
        return Alignment(np.arange(len(ids), dtype=np.int64))


class PrealignedPassive(PassiveAligner):
    """Confirms the order if it is its own, and otherwise refuses without stating the difference."""

    def __init__(self, context: AlignContext) -> None:
        super().__init__(context)
        self._ids = canonical_ids(context.ids)
        self._confirmed = False

    def handle(self, message: Message) -> Message:
        if not isinstance(message, OrderCheck) or self._confirmed:
            raise UnexpectedMessage(f"{message.type_name()} is not expected here")
        salt = checked_bytes(message.salt, SALT_BYTES)
        digest = checked_bytes(message.digest, DIGEST_BYTES)
        if message.rows != len(self._ids):
            raise RowsDiffer("the active party has a different number of rows")
        if not hmac.compare_digest(digest, order_digest(self._ids, salt, "active")):
            raise RowsDiffer("the active party has other rows, or the same rows in another order")
        self._confirmed = True
        return OrderConfirmed(np.frombuffer(order_digest(self._ids, salt, "passive"), np.uint8))

    def alignment(self) -> Alignment:
        if not self._confirmed:
            raise UnexpectedMessage("the order of the rows has not been checked yet")
        if not self._ids:
            raise EmptyIntersection("there are no rows")
        return Alignment(np.arange(len(self._ids), dtype=np.int64))


SPEC = AlignmentSpec(
    name="prealigned",
    summary="no PSI: the parties already agreed on rows and order, which salted digests confirm",
    source="reference",
    finds_by_id=False,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="ids",
                adversary="every passive party",
                status=Status.HEURISTIC,
                why="only a salted digest of the whole list is sent: a party without the list must guess all of it",
            ),
            Protection(
                victim="passive",
                data="ids",
                adversary="the active party",
                status=Status.HEURISTIC,
                why="it sends nothing unless the lists are equal, and refuses without stating how they differ",
            ),
        )
    ),
    outcome=(
        Reveals("all of its rows are common: every other party has the same records", "active"),
        Reveals("all of its rows are common: every other party has the same records", "passive"),
    ),
    messages=(OrderCheck, OrderConfirmed),
    active=PrealignedActive,
    passive=PrealignedPassive,
    helpers={},
)
