"""The server drives a horizontal job over the wire: proposes it, trains, and closes it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, cast

from veilboost.boost.booster import RoundResult
from veilboost.crypto.csprng import Csprng
from veilboost.errors import AgainstPolicy, JobCancelled, JobExists, VeilBoostError
from veilboost.party.commented import commented_toml
from veilboost.party.drive import LAST_NUMBER, RELEASE_SECONDS, Connections, Watch
from veilboost.party.horizontal_settings import HorizontalJob
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Finish, ProposeHorizontal
from veilboost.party.policy import TrainRequest, decide
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.protocols.horizontal.roles import LOST, HorizontalOutcome, ServerContext
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import settle
from veilboost.types import PartyName
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.codec import Catalogue
from veilboost.wire.message import Done, Message
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Transcript


class HorizontalDriver(Connections):
    """One horizontal training job at its server."""

    def __init__(self, settings: PartySettings, job: HorizontalJob, watch: Watch | None = None) -> None:
        self.watch = watch or Watch()
        self.horizontal = job
        self.spec = protocol_named(job.protocol, "horizontal")
        self.config = settle(self.spec, job.training)
        if settings.name != job.server:
            raise AgainstPolicy(f"{settings.name} is not the server of {job.name!r}", f"{job.server} starts the job")
        decide(
            settings.policy,
            TrainRequest(
                peers={name: None for name in job.parties if name != job.server},
                protocol=self.spec,
                role="server",
                table=None,
                columns=(),
                trees=self.config.n_estimators,
                depth=self.config.max_depth,
            ),
        )
        super().__init__(settings, cast(Any, job))  # it looks at parties, their ways, and who drives

    def check(self) -> dict[PartyName, str | None]:
        """Would every party take part? None if so, else its own words. Nothing is read, spent or kept."""
        answers: dict[PartyName, str | None] = {}
        for name in self.others:
            caller = self._caller(name, Csprng().bytes(16), Transcript(self.settings.name), patient=False)
            try:
                Peers({name: caller}).ask({name: ProposeHorizontal(self._text(), dry_run=True)}, Accepted)
                answers[name] = None
            except VeilBoostError as error:
                answers[name] = str(error)
        return answers

    def train(self) -> tuple[RunFolder, HorizontalOutcome]:
        """The whole job. The model is in the run folder of the server and of every participant when it ends."""
        job, runs = self.horizontal, self.settings.runs
        if RunFolder(runs / job.name).status.get("state") == "finished":
            raise JobExists(f"there is a finished run {job.name!r} already")
        run = RunFolder.create(runs, job.name, replace=True)
        run.save_job(self._text())
        session = Csprng().bytes(16)
        run.note(state="proposed", party=self.settings.name, role="server", session=session.hex(), pid=os.getpid())
        folder = None if job.record == "none" else run.path / "transcript"
        transcript = Transcript(self.settings.name, folder, "payload" if job.record == "payload" else "types")
        callers = {name: self._caller(name, session, transcript) for name in self.others}
        try:
            return run, self._train(run, callers)
        except BaseException as error:
            state = "cancelled" if isinstance(error, (JobCancelled, KeyboardInterrupt)) else "failed"
            run.note(state=state, error=str(error) if isinstance(error, VeilBoostError) else type(error).__name__)
            self._release(callers, session, transcript)
            raise
        finally:
            transcript.close()

    def _train(self, run: RunFolder, callers: Mapping[PartyName, Caller]) -> HorizontalOutcome:
        self.watch.stage("asking the parties")
        everyone = Peers(dict[PartyName, Channel](callers))
        told = everyone.ask({name: ProposeHorizontal(self._text(), dry_run=False) for name in callers}, Message)
        run.note(state="training")
        self.watch.stage("training")
        participants = Peers({name: callers[name] for name in self.horizontal.participants})
        introductions = {name: told[name] for name in participants.names}
        threads = self.settings.threads or os.cpu_count() or 1

        def after_round(result: RoundResult) -> None:
            run.add_metric(result)
            self.watch.round(result)
            if run.cancelled:
                raise JobCancelled(f"the job {self.horizontal.name!r} was cancelled")

        context = ServerContext(self.settings.name, participants, introductions, self.config, threads, after_round)
        outcome = self.spec.roles["server"](context).train()
        for name in callers:
            if name not in outcome.dropped:
                with contextlib.suppress(*LOST):  # it has the model; that the job is over it will see by the silence
                    everyone.ask({name: Finish(completed=True)}, Done)
        run.save_part(outcome.part)
        run.note(state="finished", trees=len(outcome.history), dropped=dict(outcome.dropped))
        return outcome

    def _release(self, callers: Mapping[PartyName, Caller], session: bytes, transcript: Transcript) -> None:
        """Tell the parties that are still there that the job stops: other jobs may use their tables."""
        catalogue = Catalogue(CONTROL_MESSAGES)
        helpers = self.horizontal.helpers.values()  # first: participants may wait for their answers
        for name, caller in sorted(callers.items(), key=lambda item: item[0] not in helpers):
            if caller.connected:
                caller.close()  # an answer may be on its way that nobody waits for any more
                last = self.caller(name, session, catalogue, transcript, RELEASE_SECONDS, first_number=LAST_NUMBER)
                with contextlib.suppress(VeilBoostError):
                    Peers({name: last}).ask({name: Finish(completed=False)}, Done)

    def _text(self) -> str:
        return commented_toml(self.horizontal, f"The job {self.horizontal.name}.")

    def _caller(self, name: PartyName, session: bytes, transcript: Transcript, patient: bool = True) -> Caller:
        limits = self.settings.limits
        return self.caller(
            name,
            session,
            Catalogue({*CONTROL_MESSAGES, *self.spec.messages}),
            transcript,
            limits.wait_seconds if patient else limits.connect_seconds,
            self.watch.waiting,
        )
