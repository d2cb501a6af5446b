"""The server drives a horizontal job."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from veilboost.errors import AgainstPolicy, NothingToResume
from veilboost.model.part import TrainingOutcome
from veilboost.party.booking import training_request
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.job import Job
from veilboost.party.messages import Finish, Propose
from veilboost.party.policy import decide
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.protocols.horizontal.roles import LOST, ServerContext, ServerSide
from veilboost.protocols.validation import settle
from veilboost.types import PartyName
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.message import Done, Message
from veilboost.wire.rpc import Caller


class HorizontalCoordinator(Coordinator):
    """A job at its server, which has no table."""

    def __init__(self, settings: PartySettings, job: Job, watch: Watch | None = None) -> None:
        if settings.name != job.driver:
            raise AgainstPolicy(f"{settings.name} is not the server of {job.name!r}", f"{job.driver} starts the job")
        self._config = settle(job.spec, job.training)
        decide(settings.policy, training_request(settings, job, self._config, dict.fromkeys(job.others)))
        super().__init__(settings, job, watch)

    def _prepare(self, resume: bool | None) -> None:
        if resume:
            raise NothingToResume("horizontal jobs keep no checkpoints", "start it anew, under another name")

    def _train(self, run: RunFolder, callers: Mapping[PartyName, Caller], resume: bool) -> TrainingOutcome:
        self.watch.stage("asking the parties")
        everyone = Peers(dict[PartyName, Channel](callers))
        proposal = Propose(self.job_text(), dry_run=False, resume=False)
        told = everyone.ask(dict.fromkeys(callers, proposal), Message)
        run.note(state="training")
        self.watch.stage("training")
        participants = Peers({name: callers[name] for name in self.job.owners})
        server: ServerSide = self.spec.roles[self.spec.driver](
            ServerContext(
                self.settings.name,
                participants,
                {name: told[name] for name in participants.names},
                self._config,
                self.threads,
                lambda result: self._after_round(run, result),
            )
        )
        outcome = server.train()
        for name in callers:
            if name not in outcome.dropped:
                with contextlib.suppress(*LOST):  # it has the model; that the job is over it will see by the silence
                    everyone.ask({name: Finish(completed=True)}, Done)
        return outcome
