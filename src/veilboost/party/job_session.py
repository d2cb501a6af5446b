"""One job at a party that answers: proposed, aligned, trained, finished."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from veilboost.align.api import AlignContext, HelperContext, HelperSide, PassiveAligner
from veilboost.align.registry import alignment_named
from veilboost.data.table import PartyTable
from veilboost.errors import AgainstPolicy, JobExists, NothingToResume, UnexpectedMessage, UnreadableSettings
from veilboost.party.booking import Booking, planned
from veilboost.party.declared import read_section
from veilboost.party.identity import PeerIdentity
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    Accepted,
    BeginAlignment,
    Checkpoint,
    EndAlignment,
    Finish,
    Propose,
)
from veilboost.party.policy import EVERY, TrainRequest
from veilboost.party.runs import RunFolder
from veilboost.party.session import PassiveSession
from veilboost.party.settings import JobSettings, PartySettings
from veilboost.protocols.registry import protocol_named
from veilboost.types import PartyName, Role
from veilboost.version import release
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.codec import Catalogue, encode
from veilboost.wire.link import Link
from veilboost.wire.message import Done, Message
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Transcript


def read_job(text: str) -> JobSettings:
    """A job as it travels: TOML."""
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UnreadableSettings("the proposed job is not TOML") from error
    return read_section(JobSettings, values, Path("job.toml"))


def load_allowed(settings: PartySettings) -> PartyTable:
    """The party's table without labels, if the policy allows its columns."""
    if settings.data is None:
        raise UnexpectedMessage("this party has no table")
    table = settings.data.load()
    if EVERY not in settings.policy.columns:
        forbidden = sum(name not in settings.policy.columns for name in table.names)
        if forbidden:
            raise AgainstPolicy(f"the policy forbids {forbidden} of the columns", "list them, or leave them out")
    return table.without_label()


def ways_to_helpers(
    settings: PartySettings,
    job: JobSettings,
    reach: Callable[[PartyName, float], Link],
    session: bytes,
    catalogue: Catalogue,
    transcript: Transcript,
) -> Peers:
    """A party's own ways to the third parties that alignment needs, by their role."""
    channels: dict[str, Channel] = {}
    for name, party in job.parties.items():
        if party.role != "data":
            channels[party.role] = Caller(
                name,
                lambda seconds, name=name: reach(name, seconds),
                session,
                catalogue,
                transcript,
                settings.limits.request_seconds,
            )
    return Peers(channels)


class JobSession:
    """What this party does for one job, request by request."""

    def __init__(
        self,
        settings: PartySettings,
        threads: int,
        reach: Callable[[PartyName, float], Link],
        session: bytes,
        proposal: Propose,
        peer: PeerIdentity,
    ) -> None:
        self.settings = settings
        self.job = read_job(proposal.job)
        self.dry_run = proposal.dry_run
        self.proposer = peer.party
        self.last_heard = time.monotonic()
        self.over = False
        self._text = proposal.job
        self._threads = threads
        self._reach = reach
        self._session = session
        self._run: RunFolder | None = None
        self._transcript = Transcript(settings.name)
        self._table: PartyTable | None = None
        self._aligner: PassiveAligner | None = None
        self._helper: HelperSide | None = None
        self._training: PassiveSession | None = None
        self._alignment = alignment_named(self.job.alignment)
        self._protocol = protocol_named(self.job.protocol.name)
        self._protocol.check(self.job.training)
        self._booking = Booking.of_run(settings, self.job.name, proposal.resume)
        self._check(peer)
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self._alignment.messages, *self._protocol.messages})

    @property
    def role(self) -> str:
        return self.job.parties[self.settings.name].role

    @property
    def uses_table(self) -> bool:
        return self.role == "data"

    def _check(self, peer: PeerIdentity) -> None:
        """The owner's word, before anything is read or sent."""
        job, me = self.job, self.settings.name
        if peer.party != job.active:
            raise AgainstPolicy(
                f"{peer.party} proposes a job that {job.active} would drive", "its active party proposes it"
            )
        if me not in job.parties or me == job.active:
            raise AgainstPolicy(f"{me} has no part to play in this job", "name it under [parties], by its own name")
        data = self.settings.data
        if self.uses_table and data is None:
            raise AgainstPolicy(f"{me} has no table", "give it a helper's role, or a [data] section")
        self._decide(peer)

    def _decide(self, peer: PeerIdentity, rows: int | None = None, reserve: bool = False) -> None:
        """Ask the policy; again when alignment has counted the rows."""
        job, me, data = self.job, self.settings.name, self.settings.data
        policy = self.settings.policy
        reads, columns = self.uses_table, 1 if self._table is None else len(self._table.columns)
        request = TrainRequest(
            peers={n: (peer.fingerprint or None) if n == peer.party else None for n in job.parties if n != me},
            protocol=self._protocol,
            role=Role.PASSIVE,
            table=data.table if data is not None and reads else None,
            columns=tuple((data.features or ()) if data is not None else ()),
            trees=job.training.n_estimators,
            depth=job.training.max_depth,
            rows=rows,
            epsilon=planned(self._protocol, job.training, rows, Role.PASSIVE, policy, columns) if reads else 0.0,
            delta=policy.delta,
        )
        (self._booking.reserve if reserve else self._booking.consider)(request)

    # --- requests ---------------------------------------------------------------------------------------

    def handle(self, peer: PeerIdentity, message: Message, frame: bytes) -> bytes:
        """The frame of the answer; both are written into the transcript."""
        self.last_heard = time.monotonic()
        answer = self._act(peer, message)
        answer_frame = encode(answer)
        self._transcript.record("received", peer.party, message, len(frame), frame)
        self._transcript.record("sent", peer.party, answer, len(answer_frame), answer_frame)
        if self.over:
            self._transcript.close()
        return answer_frame

    def _act(self, peer: PeerIdentity, message: Message) -> Message:
        if self._helper is not None and peer.party != self.proposer:
            return self._helper.handle(peer.party, message)
        if peer.party != self.proposer:
            raise UnexpectedMessage(f"{peer.party} does not drive this job")
        if isinstance(message, Propose):
            return self._accept(peer, message)
        if isinstance(message, BeginAlignment):
            return self._begin_alignment()
        if isinstance(message, EndAlignment):
            return self._end_alignment(peer, message)
        if isinstance(message, Checkpoint):
            return self._checkpoint()
        if isinstance(message, Finish):
            return self._finish(message)
        if self._helper is not None:
            return self._helper.handle(peer.party, message)
        if self._training is not None:
            return self._training.side.handle(message)
        if self._aligner is not None:
            return self._aligner.handle(message)
        raise UnexpectedMessage(f"{message.type_name()} came before its turn")

    def _accept(self, peer: PeerIdentity, message: Propose) -> Accepted:
        if message.dry_run:
            self.over = True
            return Accepted(release(), aligned=False)
        if not self.uses_table:
            helper = self._alignment.helpers[self.role]
            parties = tuple(name for name in self.job.order)
            self._helper = helper(HelperContext(parties))
            return Accepted(release(), aligned=False)
        runs = self.settings.runs
        known = (runs / self.job.name / "status.json").exists()
        if known and RunFolder(runs / self.job.name).status.get("active") != self.job.active:
            raise JobExists(f"{self.settings.name} has a run {self.job.name!r} with another active party")
        if message.resume:
            if not known:
                raise NothingToResume(f"{self.settings.name} has no run {self.job.name!r}")
            self._decide(peer, reserve=True)
            self._run = RunFolder.open(runs, self.job.name)
        else:
            if known and RunFolder(runs / self.job.name).status.get("state") == "finished":
                raise JobExists(f"{self.settings.name} has a finished run {self.job.name!r}")
            if self._run is not None:  # proposed anew in the same session: other rows must not meet the same noise
                self._booking.close(None)
                self._booking = Booking.of_run(self.settings, self.job.name, resume=False)
            self._decide(peer, reserve=True)
            self._run = RunFolder.create(runs, self.job.name, replace=True)
            self._run.save_job(self._text)
        self._run.save_key(self._booking.randomness.key)
        self._run.note(
            state="proposed",
            party=self.settings.name,
            role="passive",
            active=self.job.active,
            session=self._session.hex(),
        )
        if self.job.record != "none":
            record = "payload" if self.job.record == "payload" else "types"
            self._transcript.close()  # of the same session, where another party was lost and the job proposed again
            self._transcript = Transcript(self.settings.name, self._run.path / "transcript", record)
        positions = self._run.alignment if message.resume else None
        if positions is not None:
            self._start_training(positions)
        return Accepted(release(), aligned=positions is not None)

    def _load(self) -> PartyTable:
        if self._table is None:
            self._table = load_allowed(self.settings)
        return self._table

    def _begin_alignment(self) -> Done:
        if self._helper is not None:
            return Done()
        if self._run is None:
            raise UnexpectedMessage("alignment came before the job was accepted")
        self._run.note(state="aligning")
        self._aligner = self._alignment.passive(
            AlignContext(
                party=self.settings.name,
                order=self.job.order,
                ids=self._load().ids,
                helpers=ways_to_helpers(
                    self.settings, self.job, self._reach, self._session, self.catalogue, self._transcript
                ),
                threads=self._threads,
            )
        )
        return Done()

    def _end_alignment(self, peer: PeerIdentity, message: EndAlignment) -> Done:
        if self._helper is not None:
            self.over = True
            return Done()
        if self._aligner is None or self._run is None:
            raise UnexpectedMessage("alignment has not begun")
        alignment = self._aligner.alignment()
        if alignment.rows != message.rows:
            raise UnexpectedMessage("the parties found another number of common rows")
        self._decide(peer, alignment.rows, reserve=True)
        if self._alignment.finds_by_id:
            alignment = alignment.by_id(self._load().ids)
        self._aligner = None
        self._run.save_alignment(alignment.positions)
        self._start_training(alignment.positions)
        return Done()

    def _start_training(self, positions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        table = self._load()
        if len(positions) and (positions.min() < 0 or positions.max() >= table.rows):
            raise NothingToResume("the table has changed since the job began")
        self._training = PassiveSession(
            self._protocol,
            self.settings.name,
            table.take(positions),
            self._threads,
            self.job.training,
            self._booking.randomness,
            self._booking,
        )
        if self._run is not None:
            kept = self._run.load_checkpoint()
            if kept is not None:
                self._training.side.restore(kept.records)
            self._run.note(state="training")

    def _checkpoint(self) -> Done:
        if self._training is None or self._run is None:
            raise UnexpectedMessage("there is nothing to keep yet")
        self._run.save_checkpoint(self._training.part())
        self._transcript.flush()
        return Done()

    def _finish(self, message: Finish) -> Done:
        if self._run is not None:
            if message.completed and self._training is not None and self._training.side.finished:
                self._run.save_part(self._training.part())
                self._run.note(state="finished")
            else:
                self._run.note(state="cancelled" if not message.completed else "failed")
            self._booking.close(self._run)
        self.over = True
        return Done()

    def give_up(self) -> None:
        """Another job takes the table, or the party stops: what was kept stays, what was spent too."""
        self._transcript.close()
        if self.uses_table and not self.dry_run and not self.over:
            self._booking.close(self._run)
        self.over = True
