"""One horizontal job at a party that answers: a participant with rows, or a helper without."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from veilboost.errors import AgainstPolicy, JobExists, UnexpectedMessage
from veilboost.party.booking import Booking
from veilboost.party.horizontal_settings import read_horizontal_job
from veilboost.party.identity import PeerIdentity
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Finish, ProposeHorizontal
from veilboost.party.policy import EVERY, TrainRequest
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.privacy.ledger import worst_epsilon
from veilboost.protocols.horizontal import HelperContext, HelperSide, ParticipantContext, ParticipantSide
from veilboost.protocols.horizontal_registry import horizontal_named
from veilboost.types import PartyName
from veilboost.version import release
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.codec import Catalogue, encode
from veilboost.wire.link import Link
from veilboost.wire.message import Done, Message
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Transcript


class HorizontalSession:
    """What this party does for one job, request by request."""

    def __init__(
        self,
        settings: PartySettings,
        threads: int,
        reach: Callable[[PartyName, float], Link],
        session: bytes,
        proposal: ProposeHorizontal,
        peer: PeerIdentity,
    ) -> None:
        self.settings = settings
        self.job = read_horizontal_job(proposal.job)
        self.dry_run = proposal.dry_run
        self.proposer = peer.party
        self.last_heard = time.monotonic()
        self.over = False
        self._text, self._threads, self._reach, self._session = proposal.job, threads, reach, session
        self._spec = horizontal_named(self.job.protocol)
        self._config = self._spec.completed(self.job.training)
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self._spec.messages})
        self._transcript = Transcript(settings.name)
        self._lock = threading.Lock()  # several participants ask one helper at a time
        self._callers: list[Caller] = []
        self._run: RunFolder | None = None
        self._participant: ParticipantSide | None = None
        self._helper: HelperSide | None = None
        self._booking = Booking.of_run(settings, self.job.name, resume=False)
        self._check(peer)

    @property
    def role(self) -> str:
        return self.job.parties[self.settings.name].role

    @property
    def uses_table(self) -> bool:
        return self.role == "participant"

    def _check(self, peer: PeerIdentity) -> None:
        """The owner's word, before anything is read or sent."""
        me = self.settings.name
        if peer.party != self.job.server:
            raise AgainstPolicy(
                f"{peer.party} proposes a job that {self.job.server} would drive", "its server proposes"
            )
        if me not in self.job.parties or me == self.job.server:
            raise AgainstPolicy(f"{me} has no part to play in this job", "name it under [parties], by its own name")
        if self.uses_table and self.settings.data is None:
            raise AgainstPolicy(f"{me} has no table", "give it a helper's role, or a [data] section")
        self._booking.consider(self._request(peer, None))

    def _request(self, peer: PeerIdentity, rows: int | None, columns: int | None = None) -> TrainRequest:
        job, me, data, policy = self.job, self.settings.name, self.settings.data, self.settings.policy
        known = len(data.features or ()) if data is not None else 0
        events = ()
        if self.uses_table and self._spec.plan is not None:
            events = self._spec.plan(self._config, columns or known or 1)
        return TrainRequest(
            peers={n: (peer.fingerprint or None) if n == peer.party else None for n in job.parties if n != me},
            protocol=cast(Any, self._spec),  # the policy looks at its name and its statement
            role=self.role,
            table=data.table if data is not None and self.uses_table else None,
            columns=tuple((data.features or ()) if data is not None and self.uses_table else ()),
            trees=self._config.n_estimators,
            depth=self._config.max_depth,
            rows=rows,
            epsilon=worst_epsilon(events, policy.delta),
            delta=policy.delta,
        )

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
        if peer.party == self.proposer and isinstance(message, ProposeHorizontal):
            return self._accept(peer, message)
        if peer.party == self.proposer and isinstance(message, Finish):
            return self._finish(message)
        if self._helper is not None:
            with self._lock:
                return self._helper.handle(peer.party, message)
        if self._participant is not None and peer.party == self.proposer:
            return self._participant.handle(message)
        raise UnexpectedMessage(f"{peer.party} does not drive this job, or {message.type_name()} came before its turn")

    def _accept(self, peer: PeerIdentity, message: ProposeHorizontal) -> Accepted:
        if message.dry_run:
            self.over = True
        elif not self.uses_table:
            helpers = self.job.helpers
            self._helper = self._spec.helpers[self.role](
                HelperContext(self.job.server, self.job.participants, helpers, self._ways(), self._config)
            )
        elif self._participant is None:
            self._participant = self._begin(peer)
        return Accepted(release(), aligned=False)

    def _begin(self, peer: PeerIdentity) -> ParticipantSide:
        """Read the table, ask the policy with all that is known now, and take part."""
        data, policy, runs = self.settings.data, self.settings.policy, self.settings.runs
        if data is None:
            raise UnexpectedMessage("this party has no table")
        if RunFolder(runs / self.job.name).status.get("state") == "finished":
            raise JobExists(f"{self.settings.name} has a finished run {self.job.name!r}")
        table = data.load()
        forbidden = 0 if EVERY in policy.columns else sum(name not in policy.columns for name in table.names)
        if forbidden:
            raise AgainstPolicy(f"the policy forbids {forbidden} of the columns", "list them, or leave them out")
        self._booking.reserve(self._request(peer, table.rows, len(table.columns)))
        self._run = RunFolder.create(runs, self.job.name, replace=True)
        self._run.save_job(self._text)
        self._run.save_key(self._booking.randomness.key)
        self._run.note(
            state="training",
            party=self.settings.name,
            role="participant",
            active=self.job.server,
            rows=table.rows,
            session=self._session.hex(),
        )
        if self.job.record != "none":
            record = "payload" if self.job.record == "payload" else "types"
            self._transcript = Transcript(self.settings.name, self._run.path / "transcript", record)
        return self._spec.participant(
            ParticipantContext(
                party=self.settings.name,
                table=replace(table, weight=None) if data.weight is None else table,
                helpers=self._ways(),
                threads=self._threads,
                agreed=self._config,
                randomness=self._booking.randomness,
                account=self._booking,
            )
        )

    def _ways(self) -> Peers:
        """This party's own ways to the helpers, by their role."""
        channels: dict[str, Channel] = {}
        for role, name in self.job.helpers.items():
            if name != self.settings.name:
                caller = Caller(
                    name,
                    lambda seconds, name=name: self._reach(name, seconds),
                    self._session,
                    self.catalogue,
                    self._transcript,
                    self.settings.limits.request_seconds,
                )
                self._callers.append(caller)
                channels[role] = caller
        return Peers(channels)

    def _finish(self, message: Finish) -> Done:
        if self._run is not None and self._participant is not None:
            part = self._participant.part
            if message.completed and part is not None:
                self._run.save_part(part)
                self._run.note(state="finished")
            else:
                self._run.note(state="cancelled" if not message.completed else "failed")
            self._booking.close(self._run)
        self._close_callers()
        self.over = True
        return Done()

    def give_up(self) -> None:
        """Another job takes the table, or the party stops: what was spent stays spent."""
        self._transcript.close()
        self._close_callers()
        if self._run is not None and not self.over:
            self._booking.close(self._run)
        self.over = True

    def _close_callers(self) -> None:
        for caller in self._callers:
            caller.close()
