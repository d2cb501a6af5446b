"""`hmac_csp`: PSI over ids hashed under a common key; a computing service (CSP) without the key intersects the hashes.

The active party drives. Each party calls the authority, which makes the key, and the CSP directly.
"""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from veilboost.align.api import (
    COMMON_ROWS,
    ActiveAligner,
    AlignContext,
    Alignment,
    AlignmentSpec,
    HelperContext,
    HelperRole,
    PassiveAligner,
)
from veilboost.align.ids import DIGEST_BYTES, SortedDigests, contains, find, strictly_sorted
from veilboost.crypto.fingerprint import KEY_BYTES, keyed_digest
from veilboost.errors import (
    EmptyIntersection,
    FalseIntersection,
    MalformedMessage,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.types import Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import ArraySpec, Done, Message, Reveals

Digests = Annotated[UInt8Array, ArraySpec("uint8", 2)]
Bytes = Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class PrepareHashes(Message):
    """Active to passive: get the key and hash your ids with this hash."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()
    hash: str


@dataclass(frozen=True)
class KeyRequest(Message):
    """Active or passive to authority: request the key."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("which parties align rows, and when", "authority"),)


@dataclass(frozen=True)
class AlignmentKey(Message):
    """Authority to active or passive: the key of this alignment."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the key of the hash: with it the digests of any party can be tested for ids", "active"),
        Reveals("the key of the hash: with it the digests of any party can be tested for ids", "passive"),
    )
    key: Bytes


@dataclass(frozen=True)
class SubmitHashes(Message):
    """Active to passive: send your hashed ids to the CSP."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class HashedRows(Message):
    """Active or passive to CSP: the digests of the party's ids, sorted."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows each party has", "csp"),
        Reveals("which digests each party has: how many rows any two or more parties share, but not who", "csp"),
    )
    digests: Digests


@dataclass(frozen=True)
class CommonRequest(Message):
    """Active or passive to CSP: request the digests that all parties sent."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class CommonHashes(Message):
    """CSP to active or passive: the digests that all parties sent, sorted."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which of its rows all parties have in common", "active"),
        Reveals("which of its rows all parties have in common", "passive"),
    )
    digests: Digests


@dataclass(frozen=True)
class ConfirmCommon(Message):
    """Active to passive: get the common digests from the CSP and report a digest of them."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class CommonConfirmed(Message):
    """Passive to active: how many rows are common, and a keyed digest of the CSP's answer."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("whether the CSP sent both the same digests", "active"),)
    rows: int
    check: Bytes


# --- a party's own work: hash and sort its ids, send them to the CSP, look up the common ones -----------------------


def key_in(message: AlignmentKey) -> bytes:
    """The key that the authority sent. Raises unless it has the right length."""
    if message.key.shape != (KEY_BYTES,):
        raise MalformedMessage(f"the key does not have {KEY_BYTES} bytes")
    return message.key.tobytes()


@dataclass(frozen=True)
class HashedIds:
    """A party's digests, and the key under which they were computed."""

    key: bytes
    sorted: SortedDigests

    @classmethod
    def prepare(cls, context: AlignContext, name: str) -> HashedIds:
        """Get the key and hash the ids. The hashing may have been done offline."""
        helpers = context.helpers
        absent = [role for role in ("authority", "csp") if role not in helpers.names]
        if absent:
            raise UnsupportedCombination(f"hmac_csp needs a channel to {' and '.join(absent)}", "name it in the job")
        hashed = context.hashing.begin(context.ids)
        key = key_in(helpers.ask({"authority": KeyRequest()}, AlignmentKey)["authority"])
        return cls(key, hashed(key, name))

    def submit(self, helpers: Peers) -> None:
        """ELXGB Alg. 4, line 2."""
        helpers.ask({"csp": HashedRows(self.sorted.digests)}, Done)

    def common(self, helpers: Peers) -> tuple[Int64Array, bytes]:
        """The CSP's answer: positions of the common rows in the order of digests, and a keyed digest to compare.

        ELXGB Alg. 4, lines 9 to 11. The order of digests is the common order, the same at every party.
        """
        digests = helpers.ask({"csp": CommonRequest()}, CommonHashes)["csp"].digests
        if digests.shape[1] != DIGEST_BYTES or not strictly_sorted(digests):
            raise MalformedMessage("the CSP's digests are not sorted, repeat, or have the wrong length")
        places = find(self.sorted.digests, digests)
        unknown = int((places < 0).sum())
        if unknown:
            raise FalseIntersection(f"the CSP returned {unknown} digests that this party never sent")
        return self.sorted.rows[places], keyed_digest(self.key, digests.tobytes())


class HmacActive(ActiveAligner):
    """Requests the other parties to hash, send and fetch; in the end all must have received the same digests."""

    def __init__(self, context: AlignContext, peers: Peers) -> None:
        super().__init__(context, peers)
        self._hashed: HashedIds | None = None

    def prepare(self) -> None:
        self._prepared()

    def align(self) -> Alignment:
        own, helpers, names = self._prepared(), self._context.helpers, self._peers.names
        pending = self._peers.send({name: SubmitHashes() for name in names})
        own.submit(helpers)
        self._peers.collect(pending, Done)
        # Every party's list is at the CSP now, so every party may fetch the common digests.
        pending = self._peers.send({name: ConfirmCommon() for name in names})
        positions, check = own.common(helpers)
        for name, answer in self._peers.collect(pending, CommonConfirmed).items():
            if answer.rows != len(positions) or not hmac.compare_digest(answer.check.tobytes(), check):
                raise FalseIntersection(f"the CSP sent {name} other common rows")
        if not len(positions):
            raise EmptyIntersection(f"the {len(names) + 1} parties have no row in common")
        return Alignment(positions)

    def _prepared(self) -> HashedIds:
        if self._hashed is None:
            chosen = self._context.hash
            pending = self._peers.send({name: PrepareHashes(chosen) for name in self._peers.names})
            self._hashed = HashedIds.prepare(self._context, chosen)
            self._peers.collect(pending, Done)
        return self._hashed


class HmacPassive(PassiveAligner):
    """Hashes, sends to the CSP and fetches from it on request, once each and in this order."""

    def __init__(self, context: AlignContext) -> None:
        super().__init__(context)
        self._hashed: HashedIds | None = None
        self._submitted = False

    def handle(self, message: Message) -> Message:
        hashed, helpers = self._hashed, self._context.helpers
        if isinstance(message, PrepareHashes) and hashed is None:
            if message.hash != self._context.hash:
                raise UnexpectedMessage(f"ids are to be hashed with {self._context.hash}, as the job says")
            self._hashed = HashedIds.prepare(self._context, message.hash)
            return Done()
        if isinstance(message, SubmitHashes) and hashed is not None and not self._submitted:
            hashed.submit(helpers)
            self._submitted = True
            return Done()
        if isinstance(message, ConfirmCommon) and hashed is not None and self._submitted and self._positions is None:
            self._positions, check = hashed.common(helpers)
            return CommonConfirmed(len(self._positions), np.frombuffer(check, np.uint8))
        raise UnexpectedMessage(f"{message.type_name()} is not expected at this point of the alignment")


class Authority(HelperRole):
    """One key for one alignment. ELXGB 6.1, key distribution: ssk goes to all participants, never to the CSP.

    If the parties received a key before the job, it is that key; otherwise it is a new one.
    """

    def __init__(self, context: HelperContext) -> None:
        self._context = context
        self._key: bytes | None = None
        self._lock = threading.Lock()  # parties ask at the same time and must all get the same key

    def handle(self, party: PartyName, message: Message) -> Message:
        if not isinstance(message, KeyRequest):
            raise UnexpectedMessage(f"{message.type_name()} is not a request for a key")
        if party not in self._context.parties:
            raise UnexpectedMessage("the key is only for the parties of this alignment")
        with self._lock:
            if self._key is None:
                self._key = self._context.take_key() or self._context.random.bytes(KEY_BYTES)
            return AlignmentKey(np.frombuffer(self._key, np.uint8))


class Csp(HelperRole):
    """Receives one list of digests from each party, then returns to each the digests that all parties sent."""

    def __init__(self, context: HelperContext) -> None:
        self._parties = context.parties
        self._most_rows = context.most_rows
        self._lists: dict[PartyName, UInt8Array] = {}
        self._common: UInt8Array | None = None

    def handle(self, party: PartyName, message: Message) -> Message:
        if party not in self._parties:
            raise UnexpectedMessage("only the parties of this alignment are served")
        if isinstance(message, HashedRows):
            return self._take(party, message.digests)
        if isinstance(message, CommonRequest):
            return CommonHashes(self._intersection())
        raise UnexpectedMessage(f"{message.type_name()} is not a request to the CSP")

    def _take(self, party: PartyName, digests: UInt8Array) -> Done:
        if party in self._lists:
            # A second list would let a party test for other parties' rows by trial.
            raise UnexpectedMessage("this party has sent its digests already")
        if digests.shape[1] != DIGEST_BYTES or len(digests) > self._most_rows:
            raise MalformedMessage(f"digests do not have {DIGEST_BYTES} bytes, or are too many")
        if not strictly_sorted(digests):
            raise MalformedMessage("digests are not sorted, or repeat")
        self._lists[party] = digests
        return Done()

    def _intersection(self) -> UInt8Array:
        waiting = len(self._parties) - len(self._lists)
        if waiting:
            raise UnexpectedMessage(f"{waiting} of {len(self._parties)} parties have not sent their digests yet")
        if self._common is None:
            shortest, *others = sorted(self._lists.values(), key=len)  # line 4
            for other in others:  # lines 5 to 8, all val_j at once
                shortest = shortest[contains(other, shortest)]
            self._common = shortest
        return self._common


def _protections(victim: str) -> tuple[Protection, ...]:
    return (
        Protection(
            victim=victim,
            data="ids",
            adversary="the CSP alone",
            status=Status.SOUND,
            why="without the key digests are random to it, if the hash is a pseudorandom function and the CSP follows "
            "the protocol",
        ),
        Protection(
            victim=victim,
            data="ids",
            adversary="the other parties",
            status=Status.SOUND,
            why="they learn none of its ids but the common ones, if the CSP follows the protocol and keeps the digests "
            "to itself",
        ),
        Protection(
            victim=victim,
            data="ids",
            adversary="the CSP together with a party or the authority",
            status=Status.BROKEN,
            why="the key is the same for all: with key and digests every id that can be guessed is found",
        ),
    )


SPEC = AlignmentSpec(
    name="hmac_csp",
    summary="PSI over keyed hashes: an authority issues the key, a computing service without it intersects the hashes",
    source="ELXGB, section 6.1 and Algorithm 4",
    finds_by_id=True,
    statement=Statement((*_protections("active"), *_protections("passive"))),
    outcome=(*COMMON_ROWS, Reveals("how many rows are common", "csp")),
    messages=(
        PrepareHashes,
        KeyRequest,
        AlignmentKey,
        SubmitHashes,
        HashedRows,
        CommonRequest,
        CommonHashes,
        ConfirmCommon,
        CommonConfirmed,
        Done,
    ),
    active=HmacActive,
    passive=HmacPassive,
    helpers={"authority": Authority, "csp": Csp},
    hashes_ids=True,
)
