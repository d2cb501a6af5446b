"""An alignment, lot after lot: what the active party asks for, and how the others keep step.

A party whose engine reads its table by shard aligns about a million ids at a time, and so do all with it. Among
parties that hold their tables in memory there is one lot, and an alignment is what it is without lots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from veilboost.align.api import AlignContext, Alignment, AlignmentSpec, HelperSide, PassiveAligner, alignment_named
from veilboost.align.ids import FEWEST, DealtIds, Hashing, Lot
from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL
from veilboost.engine.shards import ShardedArray
from veilboost.engine.tables import rows_in_place
from veilboost.errors import EmptyIntersection, MalformedMessage, NothingToResume, RowsDiffer, UnexpectedMessage
from veilboost.party.job import Job
from veilboost.party.messages import Accepted, BeginAlignment, EndAlignment, NextLot
from veilboost.party.precompute import PREPARED, prepared_hashing
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.types import Int64Array, PartyName
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.message import Done, Message

SALT_BYTES = 16
LOT_ROWS = 1 << 20  # about so many ids are in a party's own process at a time
MOST_LOTS = 1 << 11  # for all rows that can be numbered with 32 bits
NOTHING = Alignment(np.empty(0, dtype=np.int64))


def lots_for(rows: int) -> int:
    return max(1, -(-rows // LOT_ROWS))


def lots_of(table: PartyTable) -> int:
    return lots_for(table.rows) if isinstance(table.ids, ShardedArray) else 1


def wished_lots(settings: PartySettings) -> int:
    """Into how many lots this party needs ids to be dealt. Of its table only the files' heads are read."""
    source = settings.own_data.parquet
    return 1 if source is None or settings.engine == LOCAL.name else lots_for(rows_in_place(source))


def agreed_lots(own: int, accepted: Mapping[PartyName, Accepted]) -> int:
    """As many as the party that needs most of them asks for."""
    for name, answer in accepted.items():
        if not 1 <= answer.lots <= MOST_LOTS:
            raise MalformedMessage(f"{name} asks for {answer.lots} lots of ids, which are 1 to {MOST_LOTS}")
    return max([own, *(answer.lots for answer in accepted.values())])


# --- the active party -----------------------------------------------------------------------------------------------


def drive_alignment(
    settings: PartySettings,
    job: Job,
    table: PartyTable,
    callers: Mapping[PartyName, Channel],
    accepted: Mapping[PartyName, Accepted],
    salt: bytes,
    run: RunFolder | None = None,
    stage: Callable[[str], None] = lambda stage: None,
) -> Iterator[Int64Array]:
    """The rows of the own table that are common to all, lot after lot, in the common order.

    `callers` reach all who have accepted: parties with tables, and third parties where the way to align needs them.
    Ids that were hashed beforehand serve a `run`. `EmptyIntersection`: there are none in any lot, and no party has been
    told that the alignment ended.
    """
    spec, lots = alignment_named(job.alignment), agreed_lots(lots_of(table), accepted)
    everyone, peers = Peers(callers), Peers({name: callers[name] for name in job.owners if name in callers})
    helpers = Peers({role: callers[name] for role, name in job.helpers.items() if name in callers})
    context = _context(settings, job, table, helpers, run)
    ids: DealtIds | None = None
    last = total = 0

    def tell(to_peers: Message, to_helpers: Message) -> None:
        everyone.ask({name: to_peers if name in peers.names else to_helpers for name in callers}, Done)

    for number in range(lots):
        which = f" of lot {number + 1} of {lots}" if lots > 1 else ""
        stage(f"preparing ids{which}")  # ELXGB 6.1: hashing, apart from what follows
        ids = ids or _dealt(spec, context, lots, salt)
        if number == 0:
            tell(BeginAlignment(lots, np.frombuffer(salt, dtype=np.uint8)), BeginAlignment(lots))
        else:
            tell(NextLot(number, last), NextLot(number, 0))
        lot = ids.lot(number)
        aligner = spec.active(replace(context, ids=lot.ids), peers)
        aligner.prepare()
        stage(f"aligning rows{which}")
        try:
            found = _in_order(spec, aligner.align(), lot)
        except EmptyIntersection:  # in this lot
            found = NOTHING
        last, total = found.rows, total + found.rows
        yield lot.rows_of(found.positions)
    if not total:
        raise EmptyIntersection(f"the {len(peers.names) + 1} parties have no row in common")
    tell(EndAlignment(total), EndAlignment(0))


# --- the others -----------------------------------------------------------------------------------------------------


class _Step:
    """Where an alignment stands: lots come once each and in order."""

    def __init__(self, message: BeginAlignment, least: int = 1) -> None:
        if not least <= message.lots <= MOST_LOTS:
            raise MalformedMessage(f"ids in {message.lots} lots, where {least} to {MOST_LOTS} are possible")
        self.lots, self.number = message.lots, 0

    def check_next(self, number: int) -> None:
        if number != self.number + 1 or number >= self.lots:
            raise UnexpectedMessage(f"lot {number} of {self.lots} came after lot {self.number}")

    def check_last(self) -> None:
        if self.number + 1 != self.lots:
            raise UnexpectedMessage(f"the alignment would end after lot {self.number} of {self.lots}")


class AnsweredLots:
    """The alignment at a party that has a table and answers."""

    def __init__(
        self,
        settings: PartySettings,
        job: Job,
        table: PartyTable,
        helpers: Peers,
        message: BeginAlignment,
        run: RunFolder | None = None,
    ) -> None:
        context = _context(settings, job, table, helpers, run)
        self._step = _Step(message, lots_of(table))
        if len(message.salt) not in {0, SALT_BYTES}:
            raise MalformedMessage(f"a salt is not of {SALT_BYTES} bytes")
        self._spec, self._context = alignment_named(job.alignment), context
        self._ids = _dealt(self._spec, context, message.lots, message.salt.tobytes())
        self.total, self.last = 0, message.lots - 1
        self._open(0)

    def handle(self, message: Message) -> Message:
        return self._aligner.handle(message)

    def next(self, message: NextLot) -> Int64Array:
        """The common rows of the lot that ends, and the next one begins."""
        self._step.check_next(message.number)
        found = self._closed(message.rows)
        self._open(message.number)
        self.total += len(found)
        return found

    def end(self, message: EndAlignment) -> Int64Array:
        """The common rows of the last lot; `total` counts those of all."""
        self._step.check_last()
        found = self._closed(message.rows - self.total)
        if not message.rows:
            raise EmptyIntersection("the parties have no row in common")
        self.total = message.rows
        return found

    def _open(self, number: int) -> None:
        self._lot = self._ids.lot(number)
        self._aligner: PassiveAligner = self._spec.passive(replace(self._context, ids=self._lot.ids))
        self._step.number = number

    def _closed(self, rows: int) -> Int64Array:
        try:
            found = self._aligner.alignment()
        except EmptyIntersection:
            found = NOTHING
        if found.rows != rows:
            raise UnexpectedMessage("the parties found another number of common rows")
        return self._lot.rows_of(_in_order(self._spec, found, self._lot).positions)


class HelpedLots:
    """The alignment at a third party, which is made anew for every lot. `over`: the last one has ended."""

    def __init__(self, make: Callable[[], HelperSide]) -> None:
        self._make, self._side, self.over = make, make(), False
        self._step: _Step | None = None

    def handle(self, party: PartyName, message: Message, drives: bool) -> Message:
        """Answer a party; only who drives the job says where the alignment stands."""
        if not drives or not isinstance(message, BeginAlignment | NextLot | EndAlignment):
            return self._side.handle(party, message)
        if isinstance(message, BeginAlignment):
            if self._step is not None:
                raise UnexpectedMessage("the alignment has begun already")
            self._step = _Step(message)
        elif self._step is None:
            raise UnexpectedMessage("the alignment has not begun")
        elif isinstance(message, NextLot):
            self._step.check_next(message.number)
            self._side, self._step.number = self._make(), message.number
        else:
            self._step.check_last()
            self.over = True
        return Done()


# --- what both do ---------------------------------------------------------------------------------------------------


def _context(
    settings: PartySettings, job: Job, table: PartyTable, helpers: Peers, run: RunFolder | None
) -> AlignContext:
    hashing = Hashing()
    hashes = alignment_named(job.alignment).hashes_ids
    if run is not None and (hashes or (settings.runs / PREPARED).is_dir()):
        hashing = prepared_hashing(settings, job, run)
    return AlignContext(settings.name, job.owners, table.ids, helpers, threads=settings.cores, hashing=hashing)


def _dealt(spec: AlignmentSpec, context: AlignContext, lots: int, salt: bytes) -> DealtIds:
    """A party's ids in lots. Who only compares lists shows lots alone, and none smaller than they must be."""
    if not spec.finds_by_id and lots > lots_for(len(context.ids)):
        raise RowsDiffer("a party asks for lots of more rows than there are here")
    return DealtIds(context.ids, lots, salt, FEWEST if spec.finds_by_id else 0)


def _in_order(spec: AlignmentSpec, found: Alignment, lot: Lot) -> Alignment:
    return found.by_id(lot.ids) if spec.finds_by_id else found


def kept_rows(run: RunFolder, rows: int) -> Iterator[Int64Array]:
    """The common rows that a run keeps, lot after lot, of a table of so many rows."""
    for number in range(run.lots or 0):
        positions = run.lot(number)
        if len(positions) and (positions.min() < 0 or positions.max() >= rows):
            raise NothingToResume("the table has changed since the job began")
        yield positions
