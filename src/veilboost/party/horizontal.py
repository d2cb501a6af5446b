"""A horizontal job: the server drives it; participants with rows, and helpers, answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from veilboost import __version__, logs
from veilboost.boost.booster import Progress, RoundResult, Watcher
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.data.table import PartyTable, drawn_rows
from veilboost.durable import keeping
from veilboost.engine.tables import table_digest
from veilboost.errors import (
    AgainstPolicy,
    MalformedMessage,
    PeerRefused,
    PeerUnreachable,
    StaleSession,
    UnexpectedMessage,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.model.share import MembershipChange, ModelShare, SplitRecords, TrainingOutcome
from veilboost.party.approvals import save_approval
from veilboost.party.booking import Booking, training_request
from veilboost.party.checkpoints import StoredCheckpoint, agreed
from veilboost.party.checks import Checks, check_space
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.hub import own_identity, revoked_at
from veilboost.party.identity import Identity, PeerIdentity, Revoked, check_peer, check_signed, sign
from veilboost.party.job import Job
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    Accepted,
    Checked,
    Checkpoint,
    CheckpointStored,
    Finish,
    Propose,
    Rejoin,
    Restore,
)
from veilboost.party.policy import Policy, decide
from veilboost.party.runs import RunFolder
from veilboost.party.session import TrainingSession
from veilboost.party.settings import PartySettings, load_allowed, training_table
from veilboost.privacy.event import Account, MemoryAccount
from veilboost.protocols.horizontal.full_model import TrainedModel, from_message, skeleton_of, to_message
from veilboost.protocols.horizontal.roles import (
    LOST,
    HelperContext,
    HelperRole,
    Keeper,
    ParticipantContext,
    ParticipantRole,
    ParticipantState,
    Returned,
    ServerContext,
    ServerRole,
)
from veilboost.protocols.validation import settle
from veilboost.types import PartyName
from veilboost.wire.channel import Channel, Peers, Pending, Reply
from veilboost.wire.message import Catalogue, Done, Message, decode, encode
from veilboost.wire.rpc import Caller

_LOG = logs.EventLogger(__name__)
# How long a round waits for a lost participant that may be back; and the pauses between two looks, which double.
LOOK_SECONDS, FIRST_PAUSE, LONGEST_PAUSE = 2.0, 1.0, 60.0


class HorizontalCoordinator(Coordinator):
    """A job at its server, which has no table."""

    def __init__(self, settings: PartySettings, job: Job, watch: Watch | None = None) -> None:
        if settings.name != job.driver:
            raise AgainstPolicy(f"{settings.name} is not the server of {job.name!r}", f"{job.driver} starts the job")
        self._config = settle(job.spec, job.training)
        super().__init__(settings, job, watch)

    def _ask_policy(self) -> None:
        request = training_request(self.settings, self.job, self._config, dict.fromkeys(self.job.others))
        decide(self.settings.policy, request)

    def _read(self) -> int:
        return 0

    def _settle(self) -> None:
        pass

    def _reserve(self, resume: bool) -> None:
        pass

    def _match(
        self, callers: Mapping[PartyName, Caller], answers: Mapping[PartyName, Checked], ready: bool
    ) -> dict[PartyName, VeilBoostError | None]:
        """Compare the introductions of all participants, as the server does when it trains."""
        if not ready or len(answers) < len(self.others):
            return {}
        catalogue, owners = Catalogue(self.spec.messages), self.job.owners
        introductions = {name: decode(answers[name].introduction.tobytes(), catalogue) for name in owners}
        differing = self._role(Peers({name: callers[name] for name in owners}), introductions).check()
        return {name: differing.get(name) for name in owners}

    def _role(
        self,
        participants: Peers,
        introductions: Mapping[PartyName, Message],
        watcher: Watcher | None = None,
        keeper: Keeper | None = None,
        dropped: Mapping[PartyName, str] | None = None,
        changed: Callable[[MembershipChange], None] | None = None,
    ) -> ServerRole:
        names = [name for name in self.job.owners if name in introductions]
        return self.spec.roles[self.spec.driver](
            ServerContext(
                self.settings.name,
                participants,
                {name: introductions[name] for name in names},
                self._config,
                self.settings.cores,
                watcher,
                keeper,
                dropped or {},
                changed,
            )
        )

    def _train(self, run: RunFolder, callers: Mapping[PartyName, Caller], resume: bool) -> TrainingOutcome:
        while True:
            try:
                return self._attempt(run, callers, resume)
            except StaleSession:  # a party was restarted, and does not know the session
                if not self._begun:
                    raise
                resume = True

    def _attempt(self, run: RunFolder, callers: Mapping[PartyName, Caller], resume: bool) -> TrainingOutcome:
        self.watch.stage("asking the parties")
        everyone, found = Peers(dict[PartyName, Channel](callers)), None
        owners, dropped = self.job.owners, dict[PartyName, str]()
        proposal = Propose(self.job.text(), dry_run=False, resume=resume)
        answers = self._propose(callers, proposal, Message, None if resume else dropped)
        self._check_present(dropped)
        if resume:
            accepted = {name: _accepted(name, answers[name]) for name in owners}
            kept = run.checkpoints.kept()
            if run.status.get("closing"):  # all trees are there: participants may have finished already
                share = run.load_share()
                everyone.ask(dict.fromkeys(owners, to_message(share)), Done)
                return TrainingOutcome(share, kept[0].history if kept else [], metric=run.status.get("metric"))
            found = agreed(self.job.driver, kept, accepted)
            answers = everyone.ask(dict.fromkeys(owners, Rejoin()), Message)
        else:
            self._begin_run(run)
        run.note(state="training")
        self.watch.total(self._config.n_estimators)
        self.watch.stage("training")
        participants = Peers({name: callers[name] for name in owners if name not in dropped})
        keeper = _Keeper(run, participants, found, callers, self.job)

        def changed(change: MembershipChange) -> None:
            run.note(membership=[vars(each) for each in (*run.membership, change)])
            _LOG.warning(f"participant_{change.event}", str(change))

        def after_round(result: RoundResult) -> None:
            self._after_round(run, result)

        return self._role(participants, answers, after_round, keeper, dropped, changed).train()

    def _check_present(self, dropped: Mapping[PartyName, str]) -> None:
        """Refuse to start without more participants than the protocol can do without."""
        everyone = len(self.job.owners)
        present, least = everyone - len(dropped), self.spec.least_participants(self._config, everyone)
        if present < least:
            raise PeerUnreachable(
                f"{present} of {everyone} participants can be reached, and the job needs {least}: "
                f"{'; '.join(dropped.values())}",
                "start their daemons, or check the network, and train again",
            )

    def _finish(self, callers: Mapping[PartyName, Caller], outcome: TrainingOutcome) -> None:
        skeleton = skeleton_of(outcome.share)
        finish = Finish(True, len(skeleton.trees), skeleton.digest(outcome.share.party))
        for name, caller in callers.items():
            if name in outcome.dropped:
                continue
            peer = Peers({name: caller})
            try:
                peer.ask({name: finish}, Done)
            except StaleSession:  # it was restarted, and may not have stored the model
                with contextlib.suppress(*LOST, PeerRefused):
                    peer.ask({name: Propose(self.job.text(), dry_run=False, resume=True)}, Accepted)
                    if name in self.job.owners:
                        peer.ask({name: to_message(outcome.share)}, Done)
                    peer.ask({name: finish}, Done)
            except LOST:  # it has the model, and its idle timeout ends the job
                pass


def _accepted(name: PartyName, answer: Message) -> Accepted:
    if not isinstance(answer, Accepted):
        raise UnexpectedMessage(f"{name} answered {answer.type_name()} where {Accepted.type_name()} was expected")
    return answer


class _Keeper:
    """Checkpoints at the server and at all participants after every round."""

    def __init__(
        self,
        run: RunFolder,
        participants: Peers,
        found: StoredCheckpoint | None,
        callers: Mapping[PartyName, Caller],
        job: Job,
    ) -> None:
        self._run, self._participants, self._found = run, participants, found
        self._callers, self._job = callers, job
        self._stored: dict[PartyName, Pending] = {}
        self._looks: dict[PartyName, tuple[float, float]] = {}  # at lost participants: when the next is due, the pause

    def resumed(self) -> tuple[ModelShare, Sequence[RoundResult]] | None:
        return None if self._found is None else (self._found.share(), self._found.history)

    def restore(self) -> None:
        if self._found is not None:
            requests = {name: Restore(self._found.trees, digest) for name, digest in self._found.peers.items()}
            self._participants.ask(requests, Done)

    def store(self, trees: int) -> None:
        requests = dict.fromkeys(self._participants.names, Checkpoint(trees))
        self._stored = dict(self._participants.hold(requests, CheckpointStored))

    def keep(self, share: ModelShare, history: Sequence[RoundResult]) -> None:
        present = {name: wait for name, wait in self._stored.items() if name not in self._participants.away}
        stored = self._participants.collect(present, CheckpointStored)
        digests = {name: answer.digest for name, answer in stored.items()}
        trees = list(skeleton_of(share).trees)
        progress = Progress(trees, np.empty((skeleton_of(share).trees_per_round, 0)), list(history))
        with keeping("a checkpoint cannot be written"):
            # Nobody asks a server for its digest, so the key of that is thrown away.
            self._run.checkpoints.save(share, len(trees), JobRandomness(), digests, progress)

    def readmit(self, party: PartyName) -> Returned | None:
        self._stored.pop(party, None)
        due, pause = self._looks.get(party, (0.0, FIRST_PAUSE))
        if time.monotonic() < due:
            return None
        caller = self._callers[party]
        peer = Peers({party: caller})
        try:
            with caller.within(LOOK_SECONDS):  # the others wait
                proposal = Propose(self._job.text(), dry_run=False, resume=True)
                accepted = _accepted(party, peer.ask({party: proposal}, Message)[party])
            introduction = peer.ask({party: Rejoin()}, Message)[party]
        except LOST:
            self._looks[party] = time.monotonic() + pause, min(2 * pause, LONGEST_PAUSE)
            return None
        self._looks.pop(party, None)
        if len(accepted.trees) != len(accepted.digests):
            raise MalformedMessage(f"{party} does not name one digest for each of its checkpoints")
        kept = sorted(zip(accepted.trees.tolist(), accepted.digests, strict=True))
        if not kept:
            return Returned(introduction, 0, None)
        return Returned(introduction, kept[-1][0], Restore(*kept[-1]))


class HorizontalSession(TrainingSession):
    """A participant with rows, or a helper of the protocol."""

    def _open(self) -> None:
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self.spec.messages})
        self._lock = threading.Lock()  # several participants call one helper concurrently
        self._participant: ParticipantRole | None = None
        self._model: ModelShare | None = None  # received from a server that resumed a job whose trees are complete
        self._helper: HelperRole | None = None

    def _checked_config(self) -> TrainingConfig:
        return settle(self.spec, self.job.training)

    def _act(self, peer: PeerIdentity, message: Message) -> Reply:
        if peer.party == self.proposer and isinstance(message, Propose):
            return self._accept(peer, message)
        if peer.party == self.proposer and isinstance(message, Finish):
            return self._finish(message)
        if self._helper is not None:
            with self._lock:
                return self._helper.handle(peer.party, message)
        if self._run is not None and peer.party == self.proposer:
            if isinstance(message, Rejoin):
                return self._rejoin(peer, self._run)
            if self._participant is not None:
                return self._train(self._participant, self._run, message)
            if isinstance(message, TrainedModel) and not self._new:
                return self._take_model(message)
        raise UnexpectedMessage(f"{peer.party} does not drive this job, or {message.type_name()} came too early")

    def _accept(self, peer: PeerIdentity, message: Propose) -> Message:
        """A participant answers with its introduction: what the server must know about its columns."""
        if self._is_dry(message):
            self.over = True
            return self._checked(peer)
        if self.uses_table:
            if message.resume:
                return self._accept_resumed(peer)
            if self._participant is None:
                self._participant = self._begin(peer)
            return self._participant.introduce()
        if message.resume and self._helper is not None:
            self._helper.close()
            self._helper = None
        if self._helper is None:
            self._open_helper_run()
            self._helper = self.spec.roles[self.role](
                HelperContext(
                    self.job.driver,
                    self.job.owners,
                    self.job.helpers,
                    self._helpers(self.job),
                    self._config,
                    wait_seconds=self.settings.limits.wait_seconds,
                )
            )
        return Accepted(__version__, aligned=False)

    def _accept_resumed(self, peer: PeerIdentity) -> Accepted:
        """A participant answers with its checkpoints; it joins when the server has found the common one."""
        if self._new and self._run is not None:
            self._begin_new(self._run)
        self._participant = None
        kept = self._reopen(peer).checkpoints.kept()
        trees = np.array([each.trees for each in kept], dtype=np.int32)
        return Accepted(__version__, aligned=False, trees=trees, digests=tuple(each.digest for each in kept))

    def _begin(self, peer: PeerIdentity) -> ParticipantRole:
        """Join a new job. What an earlier attempt left is removed when all parties have accepted."""
        self._check_run()
        self._require_approval(peer)
        if self._run is not None:  # resumed before in the same session: another job must not get the same noise
            self._booking.close(None)
            self._booking = Booking.of_run(self.settings, self.job.name, resume=False, driver=self.job.driver)
        try:
            participant = self._enter(peer)
        except VeilBoostError:  # the owner finds the reason in the run's status
            self._open_run(state="failed")
            raise
        self._open_run(state="proposed")
        self._new = True
        return participant

    def _rejoin(self, peer: PeerIdentity, run: RunFolder) -> Message:
        if self._participant is not None or self._new:
            raise UnexpectedMessage("the participant has already joined the job")
        if self._finished:
            self._refuse_finished()
        participant = self._enter(peer)
        run.settle_table(self._booking.job, self._table)
        run.note(state="training", rows=self._rows)
        self._participant = participant
        return participant.introduce()

    def _enter(self, peer: PeerIdentity) -> ParticipantRole:
        """Read the table, and ask the policy with everything that is known now."""
        table = self._load()
        participant, _ = self._introduced(table, self._booking)
        self._check_memory(table.rows, len(table.columns))
        check_space(self.settings.runs, table.rows)
        self._decide(peer, table.rows, reserve=True)
        self._table = table_digest(table, self._booking.table_key)
        return participant

    def _train(self, participant: ParticipantRole, run: RunFolder, message: Message) -> Reply:
        if self._new:
            self._begin_new(run)
        if isinstance(message, Checkpoint):
            return self._checkpoint(participant, run, message.trees)
        if isinstance(message, Restore):
            return self._restore(participant, run, message)
        return participant.handle(message)

    def _begin_new(self, run: RunFolder) -> None:
        """All parties have accepted a new job."""
        approval = self._use_approval()
        self._begin_run(run, self._booking.randomness.key, state="training", rows=self._rows)
        save_approval(run.path, approval)
        run.settle_table(self._booking.job, self._table)
        self._new = False

    def _checkpoint(self, participant: ParticipantRole, run: RunFolder, trees: int) -> CheckpointStored:
        state, share = participant.state(trees), ModelShare(self.settings.name, (), SplitRecords.of({}), None)
        progress, randomness = Progress([], state.margin, []), self._booking.randomness
        with keeping("a checkpoint cannot be written"):
            digest = run.checkpoints.save(share, trees, randomness, progress=progress, state=state.digest)
            self._transcript.flush()
        return CheckpointStored(digest)

    def _restore(self, participant: ParticipantRole, run: RunFolder, message: Restore) -> Done:
        found = run.checkpoints.find(message.trees, message.digest)
        participant.restore(message.trees, ParticipantState(found.progress()[0].margin, found.state))
        return Done()

    def _take_model(self, message: TrainedModel) -> Done:
        """The server stopped after it had the model and before this participant had it, or noted that it has it."""
        if not self._finished:
            self._model = from_message(message)
        return Done()

    def _load(self) -> PartyTable:
        table = training_table(self.settings, load_allowed(self.settings))
        if table.constraints:
            raise UnsupportedCombination(
                "this party's [data] sets constraints, and all parties of a horizontal job need the same",
                "remove them from [data], and set them under [training] of the job at the server",
            )
        self._width, self._rows = len(table.columns), table.rows
        return table

    def _introduced(self, table: PartyTable, account: Account) -> tuple[ParticipantRole, Message]:
        """The role of a participant, and its introduction, which needs labels that fit the job."""
        share, random_state = self.job.validation, self._config.random_state
        identity, policy, revoked = own_identity(self.settings), self.settings.policy, revoked_at(self.settings)
        role: ParticipantRole = self.spec.roles["participant"](
            ParticipantContext(
                party=self.settings.name,
                participants=self.job.owners,
                table=table,
                helpers=self._helpers(self.job),
                config=self._config,
                threads=self.settings.cores,
                randomness=self._booking.randomness,
                account=account,
                held_out=drawn_rows(table.ids, share, random_state) if share else None,
                signer=CertificateSigner(identity, policy, revoked, self._session),
                attempt=Csprng().bytes(16),
                session=self._session,
            )
        )
        return role, role.introduce()

    def _check_columns(self, peer: PeerIdentity) -> tuple[Sequence[str], int]:
        table, label = self._load(), self.settings.own_data.label
        self._decide(peer, table.rows)
        return (*table.names, *([] if label is None else [label])), table.rows

    def _check_table(self, peer: PeerIdentity, checks: Checks) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if checks.passes("table", lambda: found.update(table=self._load())):
            table: PartyTable = found.pop("table")
            checks.passes("policy", lambda: self._decide(peer, table.rows))
            checks.passes("run", lambda: self._check_memory(table.rows, len(table.columns)))
            checks.passes("label", lambda: found.update(told=self._introduced(table, MemoryAccount())[1]))
        return {"introduction": np.frombuffer(encode(found["told"]), np.uint8)} if "told" in found else {}

    def _finished_share(self, trees: int) -> ModelShare | None:
        return self._model if self._participant is None else self._participant.share

    def _finish(self, message: Finish) -> Done:
        if self._run is not None and self._participant is not None and self._participant.report:
            self._run.note(report=dict(self._participant.report))
        answer, share = super()._finish(message), self._finished_share(message.trees)
        if message.completed and share is not None and share.skeleton is not None:
            self._metrics.rounds.inc(len(share.skeleton.trees) // share.skeleton.trees_per_round)
        return answer

    def give_up(self) -> None:
        if self._helper is not None:
            self._helper.close()
        super().give_up()


SIGNED = "word of a participant"  # the purpose of these signatures


class CertificateSigner:
    """Signs for one party within one session, and verifies what other parties signed within it.

    Certificates are checked as for connections: issued by the authority, for the named party, not expired, not revoked,
    and admitted by the owner's policy, with its fingerprint if that is pinned.
    """

    def __init__(self, identity: Identity, policy: Policy, revoked: Revoked, session: bytes) -> None:
        self._identity, self._policy, self._revoked, self._session = identity, policy, revoked, session

    def sign(self, content: bytes) -> str:
        return sign(self._identity, SIGNED, self._session + content)

    def check(self, party: PartyName, content: bytes, evidence: str) -> None:
        peer = check_signed(evidence, party, SIGNED, self._session + content, self._identity.ca)
        check_peer(peer, self._policy, self._revoked)
