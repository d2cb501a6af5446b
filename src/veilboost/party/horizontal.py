"""A horizontal job: the server drives it; participants with rows, and helpers, answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from veilboost import __version__
from veilboost.boost.booster import Watcher
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable, drawn_rows
from veilboost.errors import AgainstPolicy, NothingToResume, UnexpectedMessage, VeilBoostError
from veilboost.model.share import ModelShare, Skeleton, TrainingOutcome
from veilboost.party.booking import training_request
from veilboost.party.checks import Checks, check_space
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.hub import own_identity, revoked_at
from veilboost.party.identity import Identity, PeerIdentity, Revoked, check_peer, check_signed, sign
from veilboost.party.job import Job
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Checked, Finish, Propose
from veilboost.party.policy import Policy, decide
from veilboost.party.runs import RunFolder
from veilboost.party.session import TrainingSession
from veilboost.party.settings import PartySettings, load_allowed
from veilboost.privacy.event import Account, MemoryAccount
from veilboost.protocols.horizontal.roles import (
    LOST,
    HelperContext,
    HelperRole,
    ParticipantContext,
    ParticipantRole,
    ServerContext,
    ServerRole,
)
from veilboost.protocols.validation import settle
from veilboost.types import PartyName
from veilboost.wire.channel import Channel, Peers, Reply
from veilboost.wire.message import Catalogue, Done, Message, decode, encode
from veilboost.wire.rpc import Caller


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
        if resume:
            raise NothingToResume(
                "horizontal jobs have no checkpoints", "run train without --resume: training starts at the first round"
            )

    def _match(
        self, callers: Mapping[PartyName, Caller], answers: Mapping[PartyName, Checked], ready: bool
    ) -> dict[PartyName, VeilBoostError | None]:
        """Compare the introductions of all participants, as the server does when it trains."""
        if not ready or len(answers) < len(self.others):
            return {}
        catalogue, owners = Catalogue(self.spec.messages), self.job.owners
        introductions = {name: decode(answers[name].introduction.tobytes(), catalogue) for name in owners}
        differing = self._role(callers, introductions).check()
        return {name: differing.get(name) for name in owners}

    def _role(
        self,
        callers: Mapping[PartyName, Caller],
        introductions: Mapping[PartyName, Message],
        watcher: Watcher | None = None,
    ) -> ServerRole:
        names = self.job.owners
        return self.spec.roles[self.spec.driver](
            ServerContext(
                self.settings.name,
                Peers({name: callers[name] for name in names}),
                {name: introductions[name] for name in names},
                self._config,
                self.settings.cores,
                watcher,
            )
        )

    def _train(self, run: RunFolder, callers: Mapping[PartyName, Caller], resume: bool) -> TrainingOutcome:
        self.watch.stage("asking the parties")
        everyone = Peers(dict[PartyName, Channel](callers))
        proposal = Propose(self.job.text(), dry_run=False, resume=False)
        introductions = everyone.ask(dict.fromkeys(callers, proposal), Message)
        self._begin_run(run)
        run.note(state="training")
        self.watch.total(self._config.n_estimators)
        self.watch.stage("training")
        return self._role(callers, introductions, lambda result: self._after_round(run, result)).train()

    def _finish(self, callers: Mapping[PartyName, Caller], outcome: TrainingOutcome) -> None:
        skeleton = cast(Skeleton, outcome.share.skeleton)
        finish = Finish(True, len(skeleton.trees), skeleton.digest(outcome.share.party))
        for name, caller in callers.items():
            if name not in outcome.dropped:
                with contextlib.suppress(*LOST):  # it has the model, and its idle timeout ends the job
                    Peers({name: caller}).ask({name: finish}, Done)


class HorizontalSession(TrainingSession):
    """A participant with rows, or a helper of the protocol."""

    def _check_place(self, peer: PeerIdentity) -> None:
        if self._proposal.resume:  # the key of an earlier run must not be used for other messages
            raise NothingToResume(
                "horizontal jobs have no checkpoints",
                "run train without --resume: training starts at the first round",
                public=True,
            )
        super()._check_place(peer)

    def _open(self) -> None:
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self.spec.messages})
        self._lock = threading.Lock()  # several participants call one helper concurrently
        self._participant: ParticipantRole | None = None
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
        if self._participant is not None and peer.party == self.proposer:
            return self._participant.handle(message)
        raise UnexpectedMessage(f"{peer.party} does not drive this job, or {message.type_name()} came too early")

    def _accept(self, peer: PeerIdentity, message: Propose) -> Message:
        """A participant answers with its introduction: what the server must know about its columns."""
        if self._is_dry(message):
            self.over = True
            return self._checked(peer)
        if self.uses_table:
            if self._participant is None:
                self._participant = self._begin(peer)
            return self._participant.introduce()
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

    def _begin(self, peer: PeerIdentity) -> ParticipantRole:
        """Read the table, ask the policy with everything that is known now, and join the job."""
        self._check_run()
        try:
            table = self._load()
            participant, _ = self._introduced(table, self._booking)
        except VeilBoostError:  # the owner finds the reason in the run's status
            self._open_run(state="failed")
            raise
        self._check_memory(table.rows, len(table.columns))
        check_space(self.settings.runs, table.rows)
        self._decide(peer, table.rows, reserve=True)
        self._begin_run(self._open_run(), None, state="training", rows=table.rows)
        return participant

    def _load(self) -> PartyTable:
        table = load_allowed(self.settings)
        self._width, self._rows = len(table.columns), table.rows
        return table

    def _introduced(self, table: PartyTable, account: Account) -> tuple[ParticipantRole, Message]:
        """The role of a participant, and its introduction, which needs labels that fit the job."""
        share, random_state = self.job.validation, self._config.random_state
        identity, policy, revoked = own_identity(self.settings), self.settings.policy, revoked_at(self.settings)
        role: ParticipantRole = self.spec.roles["participant"](
            ParticipantContext(
                party=self.settings.name,
                table=table,
                helpers=self._helpers(self.job),
                config=self._config,
                threads=self.settings.cores,
                randomness=self._booking.randomness,
                account=account,
                held_out=drawn_rows(table.ids, share, random_state) if share else None,
                signer=CertificateSigner(identity, policy, revoked, self._session),
            )
        )
        return role, role.introduce()

    def _check_table(self, peer: PeerIdentity, checks: Checks) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if checks.passes("table", lambda: found.update(table=self._load())):
            table: PartyTable = found.pop("table")
            checks.passes("policy", lambda: self._decide(peer, table.rows))
            checks.passes("run", lambda: self._check_memory(table.rows, len(table.columns)))
            checks.passes("label", lambda: found.update(told=self._introduced(table, MemoryAccount())[1]))
        return {"introduction": np.frombuffer(encode(found["told"]), np.uint8)} if "told" in found else {}

    def _finished_share(self, trees: int) -> ModelShare | None:
        return None if self._participant is None else self._participant.share

    def _finish(self, message: Finish) -> Done:
        answer = super()._finish(message)
        share = None if self._participant is None else self._participant.share
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
