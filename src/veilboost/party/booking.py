"""A job's privacy accounting at one party: its secret key, its entries in the ledger, and the owner's budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.party.job import Job
from veilboost.party.policy import Policy, TrainRequest, decide
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.privacy.event import Event
from veilboost.privacy.ledger import Ledger, worst_epsilon
from veilboost.protocols.spec import ProtocolSpec
from veilboost.types import PartyName, Role


class Booking:
    """The privacy account of one job at one party, in the ledger of all jobs.

    A job is recorded under its name and a fingerprint of its key. A job that starts again under an old name has a new
    key, draws new noise, and spends again; a job that resumes keeps its key.
    """

    def __init__(self, settings: PartySettings, name: str, key: bytes | None = None) -> None:
        self.randomness = JobRandomness(key)
        self.job = f"{name}/{self.randomness.for_request('name of the job').bytes(6).hex()}"
        self.ledger = Ledger(settings.ledger_file)
        self._name = name
        self._settings = settings
        self._policy = settings.policy
        self._request: TrainRequest | None = None  # the last request that was allowed
        self._reservation: int | None = None
        self._spent: dict[Event, None] | None = None

    @staticmethod
    def of_run(settings: PartySettings, name: str, resume: bool) -> Booking:
        """The booking of a resumed or new run. Nothing is written yet."""
        return Booking(settings, name, RunFolder(settings.runs / name).key if resume else None)

    # --- before the job, and again when its rows are known ------------------------------------------------

    def consider(self, request: TrainRequest) -> None:
        """Ask the policy, given what other jobs have spent."""
        limited = self._policy.epsilon_total is not None and request.epsilon != 0
        spent = self.ledger.spent(request.delta, besides=self.job) if limited else 0.0
        decide(self._policy, replace(request, epsilon_spent=spent))

    def reserve(self, request: TrainRequest) -> None:
        """Ask the policy and reserve the job's budget. Must come before anything that spends it."""
        if request.epsilon == 0:
            self.consider(request)
        else:
            for job in self.ledger.reserved():  # left by killed attempts
                if job != self.job and job.startswith(f"{self._name}/"):
                    self.ledger.close(job)
            self._reservation = self.ledger.reserve(
                self.job, request.epsilon, request.delta, lambda: self.consider(request)
            )
        self._request = request

    # --- during the job -----------------------------------------------------------------------------------

    def spend(self, *events: Event) -> None:
        """Record releases. A release beyond the plan is recorded if the owner's budget allows it.

        Raises `AgainstPolicy` if it does not; then the release must not be sent.
        """
        if self._policy.epsilon_per_job is not None or self._policy.epsilon_total is not None:
            self._check_room(events)
        self.ledger.append(self.job, *events)

    def _check_room(self, new: Sequence[Event]) -> None:
        if self._request is None:
            raise RuntimeError("a job spends before its policy was asked")
        if self._spent is None:
            self._spent = dict.fromkeys(self.ledger.events(self.job))
        events = tuple({**self._spent, **dict.fromkeys(new)})
        delta, planned = self._request.delta, self._request.epsilon
        # The fast bound suffices for almost every release.
        if worst_epsilon(events, delta, convolve=False) > planned:
            needed = worst_epsilon(events, delta)
            if needed > planned:
                self.reserve(replace(self._request, epsilon=needed))
        self._spent.update(dict.fromkeys(new))

    # --- after the job ------------------------------------------------------------------------------------

    def close(self, run: RunFolder | None) -> None:
        """The job has ended or stopped: what it spent counts, and is written into the run folder."""
        if self._reservation is not None:
            self.ledger.close(self.job, self._reservation)
        if run is not None:
            events = [event.to_dict() for event in self.ledger.events(self.job)]
            about = {"party": self._settings.name, "job": self.job, "delta": self._policy.delta}
            run.save_ledger({**about, "events": events})


def with_own_delta(job: Job, spec: ProtocolSpec, policy: Policy) -> Job:
    """The active party's job with the delta of its policy, unless the job sets it."""
    name, training = spec.delta_option(job.training, Role.ACTIVE), job.training
    if name is None or name in training.options:
        return job
    return replace(job, training=replace(training, options={**training.options, name: policy.delta}))


def training_request(
    settings: PartySettings,
    job: Job,
    config: TrainingConfig,
    peers: Mapping[PartyName, str | None],
    rows: int | None = None,
    columns: int = 1,
) -> TrainRequest:
    """The request to this party's policy about the job, in the party's role.

    Epsilon is what the job would spend on this party's data, at the policy's delta. Until the table is read and its
    common rows are known, the request assumes one column and the fewest rows that the policy allows; ask again then.
    """
    spec, policy, role = job.spec, settings.policy, job.role_of(settings.name)
    data, costs = None, dict[str, Any](delta=policy.delta)
    if role in spec.data_roles:
        data, own = settings.data, Role(role)
        option = spec.delta_option(config, own)
        if option is not None:  # otherwise the policy's delta applies
            costs.update(delta=spec.delta(config, own), delta_option=option)
        events = () if spec.plan is None else spec.plan(config, rows or policy.min_rows, own, columns)
        costs["epsilon"] = worst_epsilon(events, policy.delta)
    return TrainRequest(
        peers=peers,
        protocol=spec,
        role=role,
        table=None if data is None else data.table,
        columns=() if data is None else tuple(data.features or ()),
        trees=config.n_estimators,
        depth=config.max_depth,
        min_node_rows=config.min_node_rows if spec.counts_rows else None,
        rows=rows,
        owner=settings.name,
        **costs,
    )
