"""An alignment, batch after batch: what the active party asks for, and how the others keep step.

A party whose engine reads its table by shard aligns about a million ids at a time, and so do all with it. Among
parties that hold their tables in memory there is one batch, and an alignment is what it is without batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from veilboost.align.api import AlignContext, Alignment, AlignmentSpec, HelperRole, PassiveAligner, alignment_named
from veilboost.align.ids import FEWEST, Batch, BatchedIds, Hashing
from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL
from veilboost.engine.shards import ShardedArray
from veilboost.engine.tables import rows_in_place
from veilboost.errors import EmptyIntersection, MalformedMessage, NothingToResume, RowsDiffer, UnexpectedMessage
from veilboost.party.job import Job
from veilboost.party.messages import Accepted, BeginAlignment, EndAlignment, NextBatch
from veilboost.party.precompute import PREPARED, prepared_hashing
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.types import Int64Array, PartyName
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.message import Done, Message

SALT_BYTES = 16
LOT_ROWS = 1 << 20  # about so many ids are in a party's own process at a time
MOST_BATCHES = 1 << 11  # for all rows that can be numbered with 32 bits
NOTHING = Alignment(np.empty(0, dtype=np.int64))


def batches_for(rows: int) -> int:
    return max(1, -(-rows // LOT_ROWS))


def batches_of(table: PartyTable) -> int:
    return batches_for(table.rows) if isinstance(table.ids, ShardedArray) else 1


def requested_batches(settings: PartySettings) -> int:
    """Into how many batches this party needs ids to be dealt. Of its table only the files' heads are read."""
    source = settings.own_data.parquet
    return 1 if source is None or settings.engine == LOCAL.name else batches_for(rows_in_place(source))


def agreed_batches(own: int, accepted: Mapping[PartyName, Accepted]) -> int:
    """As many as the party that needs most of them asks for."""
    for name, answer in accepted.items():
        if not 1 <= answer.batches <= MOST_BATCHES:
            raise MalformedMessage(f"{name} asks for {answer.batches} batches of ids, which are 1 to {MOST_BATCHES}")
    return max([own, *(answer.batches for answer in accepted.values())])


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
    """The rows of the own table that are common to all, batch after batch, in the common order.

    `callers` reach all who have accepted: parties with tables, and third parties where the way to align needs them.
    Ids that were hashed beforehand serve a `run`. `EmptyIntersection`: there are none in any batch, and no party has
    been told that the alignment ended.
    """
    spec, batches = alignment_named(job.alignment), agreed_batches(batches_of(table), accepted)
    everyone, peers = Peers(callers), Peers({name: callers[name] for name in job.owners if name in callers})
    helpers = Peers({role: callers[name] for role, name in job.helpers.items() if name in callers})
    context = _context(settings, job, table, helpers, run)
    ids: BatchedIds | None = None
    last = total = 0

    def tell(to_peers: Message, to_helpers: Message) -> None:
        everyone.ask({name: to_peers if name in peers.names else to_helpers for name in callers}, Done)

    for number in range(batches):
        which = f" of batch {number + 1} of {batches}" if batches > 1 else ""
        stage(f"preparing ids{which}")  # ELXGB 6.1: hashing, apart from what follows
        ids = ids or _dealt(spec, context, batches, salt)
        if number == 0:
            tell(BeginAlignment(batches, np.frombuffer(salt, dtype=np.uint8)), BeginAlignment(batches))
        else:
            tell(NextBatch(number, last), NextBatch(number, 0))
        batch = ids.batch(number)
        aligner = spec.active(replace(context, ids=batch.ids), peers)
        aligner.prepare()
        stage(f"aligning rows{which}")
        try:
            found = _in_order(spec, aligner.align(), batch)
        except EmptyIntersection:  # in this batch
            found = NOTHING
        last, total = found.rows, total + found.rows
        yield batch.rows_of(found.positions)
    if not total:
        raise EmptyIntersection(f"the {len(peers.names) + 1} parties have no row in common")
    tell(EndAlignment(total), EndAlignment(0))


# --- the others -----------------------------------------------------------------------------------------------------


class _Step:
    """Where an alignment stands: batches come once each and in order."""

    def __init__(self, message: BeginAlignment, least: int = 1) -> None:
        if not least <= message.batches <= MOST_BATCHES:
            raise MalformedMessage(f"ids in {message.batches} batches, where {least} to {MOST_BATCHES} are possible")
        self.batches, self.number = message.batches, 0

    def check_next(self, number: int) -> None:
        if number != self.number + 1 or number >= self.batches:
            raise UnexpectedMessage(f"batch {number} of {self.batches} came after batch {self.number}")

    def check_last(self) -> None:
        if self.number + 1 != self.batches:
            raise UnexpectedMessage(f"the alignment would end after batch {self.number} of {self.batches}")


class PassiveBatches:
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
        self._step = _Step(message, batches_of(table))
        if len(message.salt) not in {0, SALT_BYTES}:
            raise MalformedMessage(f"a salt is not of {SALT_BYTES} bytes")
        self._spec, self._context = alignment_named(job.alignment), context
        self._ids = _dealt(self._spec, context, message.batches, message.salt.tobytes())
        self.total, self.last = 0, message.batches - 1
        self._open(0)

    def handle(self, message: Message) -> Message:
        return self._aligner.handle(message)

    def next(self, message: NextBatch) -> Int64Array:
        """The common rows of the batch that ends, and the next one begins."""
        self._step.check_next(message.number)
        found = self._closed(message.rows)
        self._open(message.number)
        self.total += len(found)
        return found

    def end(self, message: EndAlignment) -> Int64Array:
        """The common rows of the last batch; `total` counts those of all."""
        self._step.check_last()
        found = self._closed(message.rows - self.total)
        if not message.rows:
            raise EmptyIntersection("the parties have no row in common")
        self.total = message.rows
        return found

    def _open(self, number: int) -> None:
        self._batch = self._ids.batch(number)
        self._aligner: PassiveAligner = self._spec.passive(replace(self._context, ids=self._batch.ids))
        self._step.number = number

    def _closed(self, rows: int) -> Int64Array:
        try:
            found = self._aligner.alignment()
        except EmptyIntersection:
            found = NOTHING
        if found.rows != rows:
            raise UnexpectedMessage("the parties found another number of common rows")
        return self._batch.rows_of(_in_order(self._spec, found, self._batch).positions)


class HelperBatches:
    """The alignment at a third party, which is made anew for every batch. `over`: the last one has ended."""

    def __init__(self, make: Callable[[], HelperRole]) -> None:
        self._make, self._side, self.over = make, make(), False
        self._step: _Step | None = None

    def handle(self, party: PartyName, message: Message, drives: bool) -> Message:
        """Answer a party; only who drives the job says where the alignment stands."""
        if not drives or not isinstance(message, BeginAlignment | NextBatch | EndAlignment):
            return self._side.handle(party, message)
        if isinstance(message, BeginAlignment):
            if self._step is not None:
                raise UnexpectedMessage("the alignment has begun already")
            self._step = _Step(message)
        elif self._step is None:
            raise UnexpectedMessage("the alignment has not begun")
        elif isinstance(message, NextBatch):
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


def _dealt(spec: AlignmentSpec, context: AlignContext, batches: int, salt: bytes) -> BatchedIds:
    """A party's ids in batches. Who only compares lists shows batches alone, and none smaller than they must be."""
    if not spec.finds_by_id and batches > batches_for(len(context.ids)):
        raise RowsDiffer("a party asks for batches of more rows than there are here")
    return BatchedIds(context.ids, batches, salt, FEWEST if spec.finds_by_id else 0)


def _in_order(spec: AlignmentSpec, found: Alignment, batch: Batch) -> Alignment:
    return found.by_id(batch.ids) if spec.finds_by_id else found


def kept_rows(run: RunFolder, rows: int) -> Iterator[Int64Array]:
    """The common rows that a run keeps, batch after batch, of a table of so many rows."""
    for number in range(run.batches or 0):
        positions = run.batch(number)
        if len(positions) and (positions.min() < 0 or positions.max() >= rows):
            raise NothingToResume("the table has changed since the job began")
        yield positions
