"""A job's privacy accounting at one party: its secret key, its entries in the ledger, and the owner's budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from veilboost.boost.booster import rows_of_round
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.durable import append, keeping
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import Job
from veilboost.party.policy import ExplainRequest, Policy, TrainRequest, decide
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.privacy.event import START, Event, ExactRelease, assignments_of
from veilboost.privacy.ledger import Ledger, worst_epsilon
from veilboost.protocols.spec import ProtocolSpec
from veilboost.types import PartyName, Role

BEGUN = "begun.txt"  # in the run folder
_DRIVERS = ("the active party", "the server")  # in the events of protocols, which know no names
_EXPLAINING = Lock()  # two explanations at once must not both take what is left


class StepLog:
    """A file with a line for every step that a job begins. An earlier job of the same name has another key."""

    def __init__(self, file: Path, key: str) -> None:
        self._file, self._key = file, f"{key} "

    @cached_property
    def begun(self) -> Counter[str]:
        """How often each step was begun."""
        with keeping(f"{BEGUN} cannot be read"):
            lines = self._file.read_text(errors="replace").splitlines() if self._file.exists() else []
        return Counter(line.removeprefix(self._key) for line in lines if line.startswith(self._key))

    def add(self, step: str) -> None:
        """Count a step. Only repetitions wait for the disk: others survive a killed process, not a power failure."""
        self.begun[step] += 1
        with keeping(f"{BEGUN} cannot be written"):  # the line begins anew after one that a full disk cut short
            append(self._file, f"\n{self._key}{step}", flush=self.begun[step] > 1)


class Booking:
    """The privacy account of one job at one party, in the ledger of all jobs.

    A job is recorded under its name and a fingerprint of its key. A job that starts again under an old name has a new
    key, draws new noise, and spends again; a job that resumes keeps its key.
    """

    def __init__(
        self, settings: PartySettings, name: str, key: bytes | None = None, driver: PartyName | None = None
    ) -> None:
        """`driver`: the party that receives the releases, at a party that answers."""
        self.randomness = JobRandomness(key)
        self.job = f"{name}/{self.randomness.for_request('name of the job').bytes(6).hex()}"
        self.ledger = Ledger(settings.ledger_file)
        self._name, self._driver = name, driver
        self._settings = settings
        self._policy = settings.policy
        self._request: TrainRequest | None = None  # the last request that was allowed
        self._reservation: int | None = None
        self._spent: dict[Event, None] | None = None
        self._steps = StepLog(settings.runs / name / BEGUN, self.job.rpartition("/")[2])

    @staticmethod
    def of_run(settings: PartySettings, name: str, resume: bool, driver: PartyName | None = None) -> Booking:
        """The booking of a resumed or new run. Nothing is written yet."""
        return Booking(settings, name, RunFolder(settings.runs / name).key if resume else None, driver)

    # --- before the job, and again when its rows are known ------------------------------------------------

    @property
    def table_key(self) -> bytes:
        """The key of the table's digest in the run folder, which outlasts the job's key."""
        return self.randomness.for_request("digest of the table").bytes(32)

    def consider(self, request: TrainRequest) -> None:
        """Ask the policy, given what other jobs have spent."""
        self.ledger.check_reconciled()
        if self._policy.epsilon_total is not None and request.epsilon != 0:
            request = replace(request, epsilon_spent=self.ledger.spent(request.delta, besides=self.job))
        if self._policy.assignments_total is not None and request.assignments:
            spent = assignments_of(self.ledger.events()) - assignments_of(self.ledger.events(self.job))
            request = replace(request, assignments_spent=spent)
        decide(self._policy, request)

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
        counted = limited(self._policy, [self._named(event) for event in events])
        if self._policy.epsilon_per_job is not None or self._policy.epsilon_total is not None:
            self._check_room(counted)
        self.ledger.append(self.job, *counted)

    def _named(self, event: Event) -> Event:
        """The event with the name of its receiver: the ledger of all jobs sums up by receiver."""
        if self._driver is None or event.adversary not in _DRIVERS:
            return event
        return replace(event, adversary=self._driver)

    def begin(self, step: str, trees: int) -> int:
        """Count a step of the job, also over restarts of this party; returns how often it was begun before.

        Raises `AgainstPolicy` if the job begins more again than the policy allows; then the step must not be answered.
        """
        if self._request is None:
            raise RuntimeError("a job begins before its policy was asked")
        begun = self._steps.begun + Counter([step])
        rounds = {each: times for each, times in begun.items() if each != START}
        again = {"rewinds": sum(rounds.values()) - len(rounds), "restarts": max(begun[START] - 1, 0)}
        request = replace(self._request, trees_per_round=trees, **again)
        if request != self._request:
            self.consider(request)
            self._request = request
        self._steps.add(step)
        return begun[step] - 1

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


def allow_explanation(settings: PartySettings, peer: PeerIdentity, assignments: int) -> None:
    """Ask the policy about an explanation that reveals this many left/right assignments of each row."""
    spent = 0 if settings.policy.assignments_total is None else assignments_of(Ledger(settings.ledger_file).events())
    decide(settings.policy, ExplainRequest({peer.party: peer.fingerprint or None}, assignments, spent))


def book_explanation(settings: PartySettings, job: str, peer: PeerIdentity, release: ExactRelease) -> None:
    """Ask the policy about an explanation, and book it under this name. Must come before it is answered."""
    with _EXPLAINING:
        allow_explanation(settings, peer, release.assignments or 0)
        Ledger(settings.ledger_file).append(job, release)


def limited(policy: Policy, events: Sequence[Event]) -> list[Event]:
    """Events as the policy's limits on epsilon count them: assignments do not count if they have their own limits."""
    if policy.assignments_per_job is None and policy.assignments_total is None:
        return list(events)
    return [
        replace(event, counted=False) if isinstance(event, ExactRelease) and event.assignments is not None else event
        for event in events
    ]


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
    fewest = rows or policy.min_rows
    trained = spec.completed(config, fewest)
    data, costs = None, dict[str, Any](delta=policy.delta)
    if role in spec.data_roles:
        data, own = settings.data, Role(role)
        option = spec.delta_option(config, own)
        if option is not None:  # otherwise the policy's delta applies
            costs.update(delta=spec.delta(config, own), delta_option=option)
        events = () if spec.plan is None else spec.plan(config, fewest, own, columns)
        costs["epsilon"] = worst_epsilon(limited(policy, events), policy.delta)
    return TrainRequest(
        peers=peers,
        protocol=spec,
        role=role,
        table=None if data is None else data.table,
        columns=() if data is None else tuple(data.features or ()),
        trees=trained.n_estimators,
        depth=trained.max_depth,
        min_node_rows=config.min_node_rows if spec.counts_rows else None,
        rows=rows,
        round_rows=None if rows is None else rows_of_round(round(rows * (1 - job.validation)), config),
        owner=settings.name,
        **costs,
    )
