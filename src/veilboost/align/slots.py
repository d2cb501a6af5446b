"""Entity alignment that lasts as long as a deployment: pairwise Diffie-Hellman PSI, kept up to date by its changes.

A passive party numbers its rows by slots and sends their ids as points of an elliptic curve under its own secret. The
active party blinds them too and keeps them as an index. To look up ids of its own, it sends them as points under its
secret and gets them back under both: the same id is the same point. An id is looked up once. When the passive
party's table changes, it sends only the points of new slots and the numbers of removed ones. Both secrets belong to one
deployment. The active party keeps a limited number of looked-up ids; those that were not used for the longest time are
looked up again.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from veilboost.align.ids import DIGEST_BYTES, canonical_ids, find, sort_order
from veilboost.crypto.csprng import JobRandomness
from veilboost.crypto.curve import POINT_BYTES, SCALAR_BYTES, check_points, hash_to_points, multiply
from veilboost.crypto.fingerprint import HASHES, KEY_BYTES, keyed_digests
from veilboost.errors import MalformedMessage
from veilboost.types import AnyArray, Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import ArraySpec, Message, Reveals

Points = Annotated[UInt8Array, ArraySpec("uint8", 2)]
AT_ONCE = 1 << 20  # points in a message
UNKNOWN = -1  # the slot of an id that the passive party does not have
_MOST_KNOWN = 1 << 20  # looked-up ids that the active party keeps, or as many as the largest index has
_KEPT = 16  # bytes of a point under both secrets: two of them are equal with probability 2^-128


@dataclass(frozen=True)
class IndexRequest(Message):
    """Active to passive: send what was added to your index after these slots, and removed after this generation."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()
    slots: int
    generation: int


@dataclass(frozen=True)
class IndexPart(Message):
    """Passive to active: the points of the next slots, of `total` slots, and the slots that were removed.

    The order of new slots is that of their points, which hides the order of the rows.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows the passive party has, and how many it adds when", "active"),
        Reveals("which rows the passive party removes when", "active", given=("removed",)),
    )
    generation: int
    total: int
    points: Points
    removed: Annotated[Int32Array, ArraySpec("int32", 1)]


@dataclass(frozen=True)
class LookUp(Message):
    """Active to passive: ids as points under the secret of the active party. Blind them too."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many ids are looked up for the first time, when", "passive"),
    )
    points: Points


@dataclass(frozen=True)
class LookedUp(Message):
    """Passive to active: the same points in the same order, under both secrets."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which of the ids that it looks up the passive party knows", "active"),
    )
    points: Points


SLOT_MESSAGES: tuple[type[Message], ...] = (IndexRequest, IndexPart, LookUp, LookedUp)


class _Blinding:
    """The secrets of one party in one deployment, from its key."""

    def __init__(self, key: bytes, threads: int) -> None:
        randomness = JobRandomness(key)
        self._secret = randomness.for_request("secret of points").bytes(SCALAR_BYTES)
        self._digest_key = randomness.for_request("key of digests of ids").bytes(KEY_BYTES)
        self._threads = threads

    def digests(self, texts: Sequence[bytes]) -> UInt8Array:
        """Digests under a key of its own, by which the party finds ids again."""
        return keyed_digests(texts, self._digest_key, HASHES[0], DIGEST_BYTES)

    def points(self, texts: Sequence[bytes]) -> UInt8Array:
        return self.blind(hash_to_points(texts, self._threads))

    def blind(self, points: UInt8Array) -> UInt8Array:
        return multiply(points, self._secret, self._threads)


@dataclass(frozen=True)
class SlotTable:
    """The slots of a passive party: digest and point of the id, and the generation that removed it (0: none did)."""

    digests: UInt8Array
    points: UInt8Array
    removed: Int32Array
    generation: int = 0

    @staticmethod
    def of(state: Mapping[str, AnyArray] | None) -> SlotTable:
        """The table whose fields were stored as arrays; without them, an empty one."""
        if state is not None:
            return SlotTable(state["digests"], state["points"], state["removed"], int(state["generation"]))
        none = np.empty((0, DIGEST_BYTES), np.uint8), np.empty((0, POINT_BYTES), np.uint8), np.empty(0, np.int32)
        return SlotTable(*none)

    def part(self, request: IndexRequest) -> IndexPart:
        if not 0 <= request.slots <= len(self.removed) or not 0 <= request.generation <= self.generation:
            raise MalformedMessage("a request for an index has slots or a generation that do not exist")
        removed = np.flatnonzero(self.removed > request.generation).astype(np.int32)
        points = self.points[request.slots : request.slots + AT_ONCE]
        return IndexPart(self.generation, len(self.removed), points, removed)


class SlotOwner:
    """The passive party's side of one deployment."""

    def __init__(self, key: bytes, threads: int = 1) -> None:
        self._blinding = _Blinding(key, threads)

    def updated(self, old: SlotTable, ids: AnyArray) -> tuple[SlotTable, Int64Array]:
        """The slots for the ids of the table, and the row of each slot, -1 if it has none any more.

        Ids that come and go change the generation; an id that comes back gets a new slot.
        """
        texts = canonical_ids(ids)
        digests = self._blinding.digests(texts)
        order = sort_order(digests)
        present = np.flatnonzero(old.removed == 0)
        at = find(digests[order], old.digests[present])
        rows = np.full(len(old.removed), UNKNOWN, dtype=np.int64)
        rows[present] = np.where(at >= 0, order[at], UNKNOWN)
        new = np.flatnonzero(~np.isin(np.arange(len(texts)), rows))
        gone = present[rows[present] < 0]
        if not len(new) and not len(gone):
            return old, rows
        generation = old.generation + 1
        points = self._blinding.points([texts[row] for row in new.tolist()])
        order = sort_order(points)
        removed = old.removed.copy()
        removed[gone] = generation
        table = SlotTable(
            np.concatenate((old.digests, digests[new][order])),
            np.concatenate((old.points, points[order])),
            np.concatenate((removed, np.zeros(len(new), np.int32))),
            generation,
        )
        return table, np.concatenate((rows, new[order]))

    def looked_up(self, request: LookUp) -> LookedUp:
        check_points(request.points)
        return LookedUp(self._blinding.blind(request.points))


class SlotDirectory:
    """The active party's indexes of all passive parties, and the ids that it has looked up."""

    def __init__(self, key: bytes, parties: Sequence[PartyName], most_rows: int, threads: int = 1) -> None:
        self._blinding, self._most_rows = _Blinding(key, threads), most_rows
        self.parties = tuple(parties)
        self.generations = dict.fromkeys(self.parties, 0)
        self._points = {name: np.empty((0, _KEPT), np.uint8) for name in self.parties}  # by slot
        self._slots: dict[PartyName, dict[bytes, int]] = {name: {} for name in self.parties}
        self._known: dict[bytes, bytes] = {}  # the digest of an id: its points under both secrets, party by party

    @property
    def looked_up(self) -> int:
        return len(self._known)

    def rows(self, party: PartyName) -> int:
        """How many rows a party has now."""
        return len(self._slots[party])

    def refresh(self, peers: Peers, *names: PartyName) -> None:
        """Fetch what changed in the indexes of these parties."""
        for name in names:
            slots, since = self._points[name], self.generations[name]
            while True:
                request = IndexRequest(len(slots), since)
                part = peers.ask({name: request}, IndexPart)[name]
                check_points(part.points)
                # Every part but the last is full: a party cannot send few points in many parts.
                if part.total > self._most_rows or len(part.points) != min(part.total - len(slots), AT_ONCE):
                    raise MalformedMessage(f"{name} sent an index of another size than it said, or of too many rows")
                slots = np.concatenate((slots, self._blinding.blind(part.points)[:, :_KEPT]))
                if len(part.removed) and (part.removed.min() < 0 or part.removed.max() >= part.total):
                    raise MalformedMessage(f"{name} removed a row that does not exist")
                if len(slots) == part.total:
                    break
            self._take(name, slots, part)

    def _take(self, name: PartyName, slots: UInt8Array, last: IndexPart) -> None:
        index, first = self._slots[name], len(self._points[name])
        for slot in last.removed.tolist():
            if slot < first and index.get(key := slots[slot].tobytes()) == slot:
                del index[key]
        gone = set(last.removed.tolist())
        for slot, key in enumerate(_split(slots[first:]), first):
            if slot not in gone:
                index[key] = slot
        self._points[name], self.generations[name] = slots, last.generation

    def keys(self, texts: Sequence[bytes]) -> list[bytes]:
        """The keys by which ids in canonical form are found."""
        return _split(self._blinding.digests(texts))

    def look_up(self, ids: Mapping[bytes, bytes], peers: Peers) -> None:
        """Look up those of these ids, in canonical form by key, that are not kept, at all parties at once."""
        new = [key for key in ids if key not in self._known]
        for low in range(0, len(new), AT_ONCE):
            some = new[low : low + AT_ONCE]
            points = self._blinding.points([ids[key] for key in some])
            answers = peers.ask({name: LookUp(points) for name in self.parties}, LookedUp)
            for name, answer in answers.items():
                check_points(answer.points)
                if len(answer.points) != len(some):
                    raise MalformedMessage(f"{name} looked up another number of ids")
            both = np.concatenate([answers[name].points[:, :_KEPT] for name in self.parties], axis=1)
            self._known.update(zip(some, _split(both), strict=True))
        self._forget(ids)

    def _forget(self, used: Mapping[bytes, bytes]) -> None:
        """Keep a limited number of ids: those in use now, and those that were used last."""
        for key in used:
            self._known[key] = self._known.pop(key)  # moves it to the end
        most = max(_MOST_KNOWN, len(used), *(len(points) for points in self._points.values()))
        if len(self._known) > most:
            kept = max(most - most // 8, len(used))  # so that this is rare
            self._known = dict(itertools.islice(self._known.items(), len(self._known) - kept, None))

    def slots(self, keys: Collection[bytes]) -> Mapping[PartyName, Int32Array]:
        """The slots of ids that were looked up, at each party; `UNKNOWN` where it does not have them."""
        return {
            name: np.array(
                [self._slots[name].get(self._known[key][low : low + _KEPT], UNKNOWN) for key in keys], dtype=np.int32
            )
            for name, low in zip(self.parties, range(0, _KEPT * len(self.parties), _KEPT), strict=True)
        }

    def state(self) -> dict[str, AnyArray]:
        """What to store; `restore` reads it."""
        width = _KEPT * len(self.parties)
        state: dict[str, AnyArray] = {
            "ids": np.frombuffer(b"".join(self._known), np.uint8).reshape(-1, DIGEST_BYTES),
            "both": np.frombuffer(b"".join(self._known.values()), np.uint8).reshape(-1, width),
        }
        for name in self.parties:
            state[f"points {name}"] = self._points[name]
            state[f"slots {name}"] = np.array(sorted(self._slots[name].values()), dtype=np.int32)
            state[f"generation {name}"] = np.array(self.generations[name])
        return state

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        self._known = dict(zip(_split(state["ids"]), _split(state["both"]), strict=True))
        for name in self.parties:
            self._points[name], present = state[f"points {name}"], state[f"slots {name}"]
            self._slots[name] = dict(zip(_split(self._points[name][present]), present.tolist(), strict=True))
            self.generations[name] = int(state[f"generation {name}"])


def _split(rows: UInt8Array) -> list[bytes]:
    """Each row as bytes."""
    content, width = np.ascontiguousarray(rows).tobytes(), rows.shape[1]
    return [content[at : at + width] for at in range(0, len(content), width)]
