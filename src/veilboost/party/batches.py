"""Entity alignment (PSI) batch by batch: the active party drives, and the other parties keep in step.

A party whose engine reads its table by shard aligns about a million ids at a time, and all other parties with it. If
all parties hold their tables in memory, there is one batch.
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
BATCH_ROWS = 1 << 20  # about this many ids are in a party's own process at a time
MOST_BATCHES = 1 << 11  # enough for all rows that 32 bits can number
NOTHING = Alignment(np.empty(0, dtype=np.int64))


def batches_for(rows: int) -> int:
    return max(1, -(-rows // BATCH_ROWS))


def batches_of(table: PartyTable) -> int:
    return batches_for(table.rows) if isinstance(table.ids, ShardedArray) else 1


def known_rows(settings: PartySettings, job: Job, table: PartyTable) -> int | None:
    """The rows of a job before its alignment; None if PSI will find them. A table that is too small stays so."""
    found = alignment_named(job.alignment).finds_by_id and table.rows >= settings.policy.min_rows
    return None if found else table.rows


def requested_batches(settings: PartySettings) -> int:
    """The number of batches into which this party needs ids to be partitioned. Reads only the metadata of its files."""
    source = settings.own_data.parquet
    return 1 if source is None or settings.engine == LOCAL.name else batches_for(rows_in_place(source))


def agreed_batches(own: int, accepted: Mapping[PartyName, Accepted]) -> int:
    """The largest number of batches that any party needs."""
    for name, answer in accepted.items():
        if not 1 <= answer.batches <= MOST_BATCHES:
            raise MalformedMessage(f"{name} requests {answer.batches} batches of ids; 1 to {MOST_BATCHES} are allowed")
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
    """The rows of this party's table that are common to all parties, batch by batch, in the common order.

    `callers` reach all parties that accepted: those with tables, and third parties if the alignment needs them. Ids
    that were hashed beforehand are used for a `run`. Raises `EmptyIntersection` if no batch has common rows; then no
    party has been notified that the alignment ended.
    """
    spec, batches = alignment_named(job.alignment), agreed_batches(batches_of(table), accepted)
    everyone, peers = Peers(callers), Peers({name: callers[name] for name in job.owners if name in callers})
    helpers = Peers({role: callers[name] for role, name in job.helpers.items() if name in callers})
    context = _context(settings, job, table, helpers, run)
    ids: BatchedIds | None = None
    last = total = 0

    def notify(to_peers: Message, to_helpers: Message) -> None:
        everyone.ask({name: to_peers if name in peers.names else to_helpers for name in callers}, Done)

    for number in range(batches):
        which = f" of batch {number + 1} of {batches}" if batches > 1 else ""
        stage(f"preparing ids{which}")  # ELXGB 6.1: hashing, separate from the exchange
        ids = ids or _batched(spec, context, batches, salt)
        if number == 0:
            notify(BeginAlignment(batches, np.frombuffer(salt, dtype=np.uint8)), BeginAlignment(batches))
        else:
            notify(NextBatch(number, last), NextBatch(number, 0))
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
    notify(EndAlignment(total), EndAlignment(0))


# --- the other parties ----------------------------------------------------------------------------------------------


class _Step:
    """The progress of an alignment: every batch comes once, in order."""

    def __init__(self, message: BeginAlignment, least: int = 1) -> None:
        if not least <= message.batches <= MOST_BATCHES:
            raise MalformedMessage(f"the ids are in {message.batches} batches; {least} to {MOST_BATCHES} are allowed")
        self.batches, self.number = message.batches, 0

    def check_next(self, number: int) -> None:
        if number != self.number + 1 or number >= self.batches:
            raise UnexpectedMessage(f"batch {number} of {self.batches} came after batch {self.number}")

    def check_last(self) -> None:
        if self.number + 1 != self.batches:
            raise UnexpectedMessage(f"the alignment would end after batch {self.number} of {self.batches}")


class PassiveBatches:
    """The alignment at a passive party."""

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
            raise MalformedMessage(f"a salt does not have {SALT_BYTES} bytes")
        self._spec, self._context = alignment_named(job.alignment), context
        self._ids = _batched(self._spec, context, message.batches, message.salt.tobytes())
        self.total, self.last = 0, message.batches - 1
        self._open(0)

    def handle(self, message: Message) -> Message:
        return self._aligner.handle(message)

    def next(self, message: NextBatch) -> Int64Array:
        """End the current batch and begin the next. Returns the common rows of the one that ended."""
        self._step.check_next(message.number)
        found = self._closed(message.rows)
        self._open(message.number)
        self.total += len(found)
        return found

    def end(self, message: EndAlignment) -> Int64Array:
        """The common rows of the last batch; `total` counts those of all batches."""
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
            raise UnexpectedMessage("the parties found different numbers of common rows")
        return self._batch.rows_of(_in_order(self._spec, found, self._batch).positions)


class HelperBatches:
    """The alignment at a third party, whose role is created anew for every batch. `over`: the last batch has ended."""

    def __init__(self, make: Callable[[], HelperRole]) -> None:
        self._make, self._role, self.over = make, make(), False
        self._step: _Step | None = None

    def handle(self, party: PartyName, message: Message, drives: bool) -> Message:
        """Answer a party. Only the driver of the job may begin, advance and end the alignment."""
        if not drives or not isinstance(message, BeginAlignment | NextBatch | EndAlignment):
            return self._role.handle(party, message)
        if isinstance(message, BeginAlignment):
            if self._step is not None:
                raise UnexpectedMessage("the alignment has already begun")
            self._step = _Step(message)
        elif self._step is None:
            raise UnexpectedMessage("the alignment has not begun")
        elif isinstance(message, NextBatch):
            self._step.check_next(message.number)
            self._role, self._step.number = self._make(), message.number
        else:
            self._step.check_last()
            self.over = True
        return Done()


# --- shared by all parties ------------------------------------------------------------------------------------------


def _context(
    settings: PartySettings, job: Job, table: PartyTable, helpers: Peers, run: RunFolder | None
) -> AlignContext:
    hashing = Hashing()
    hashes = alignment_named(job.alignment).hashes_ids
    if run is not None and (hashes or (settings.runs / PREPARED).is_dir()):
        hashing = prepared_hashing(settings, job, run)
    return AlignContext(
        settings.name, job.owners, table.ids, helpers, threads=settings.cores, hash=job.id_hash, hashing=hashing
    )


def _batched(spec: AlignmentSpec, context: AlignContext, batches: int, salt: bytes) -> BatchedIds:
    """A party's ids in batches. For an alignment that only compares lists, batches must not be smaller than needed."""
    if not spec.finds_by_id and batches > batches_for(len(context.ids)):
        raise RowsDiffer("a party requests more batches than the rows of this party need")
    return BatchedIds(context.ids, batches, salt, FEWEST if spec.finds_by_id else 0)


def _in_order(spec: AlignmentSpec, found: Alignment, batch: Batch) -> Alignment:
    return found.by_id(batch.ids) if spec.finds_by_id else found


def kept_rows(run: RunFolder, rows: int) -> Iterator[Int64Array]:
    """The common rows that a run stores, batch by batch, for a table of `rows` rows."""
    for number in range(run.batches or 0):
        positions = run.batch(number)
        if len(positions) and (positions.min() < 0 or positions.max() >= rows):
            raise NothingToResume("the table has changed since the job began")
        yield positions
