"""The state of a party, for its operator: whether its daemon runs and is ready, its jobs, and its budget."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from veilboost import __version__
from veilboost.durable import file_stamp, holder, keeping
from veilboost.errors import DamagedState, NewerFormat, StateUnavailable, VeilBoostError
from veilboost.party.hub import own_identity
from veilboost.party.identity import describe
from veilboost.party.policy import Policy
from veilboost.party.runs import DAMAGED, ENDED, RESUMABLE, RUNNING, RunFolder, list_runs
from veilboost.party.settings import PartySettings
from veilboost.privacy.ledger import ExactTotal, JobTotal, Ledger
from veilboost.types import PartyName

STATES = (*RUNNING, *RESUMABLE, *ENDED, DAMAGED)
DAEMON_LOCK = ".daemon.lock"  # in the runs folder
WARN_DAYS = 30  # before a certificate expires
LEAST_FREE = 1 << 30  # bytes of disk
LAST_ERRORS = 5
_DAY, _BUDGET_AGE = 86_400.0, 60.0  # seconds


# --- parts of the state, also for metrics and health checks ----------------------------------------------------------


@dataclass(frozen=True)
class JobStatus:
    """One run. `since` is when it began, and `updated` when its status last changed, in seconds since 1970.

    `driver_until` is the end of the certificate with which the driver proposed the job.
    """

    job: str
    state: str
    driver: PartyName | None = None
    since: float | None = None
    updated: float | None = None
    error: str | None = None
    driver_until: float | None = None

    @property
    def running(self) -> bool:
        return self.state in RUNNING


def list_jobs(settings: PartySettings) -> list[JobStatus]:
    """All runs of the party, newest first. A run that cannot be read does not hide the others."""
    return [job_status(run) for run in list_runs(settings.runs)]


def job_status(run: RunFolder) -> JobStatus:
    """The status of one run; of a run that cannot be read, its error."""
    try:
        found, state = run.status, run.state
    except (DamagedState, StateUnavailable, NewerFormat) as error:
        return JobStatus(run.path.name, DAMAGED, error=str(error))
    driver = found.get("active") or found.get("party")  # only parties that do not drive the job note who does
    times = found.get("since"), found.get("updated")
    return JobStatus(run.path.name, state, driver, *times, found.get("error"), found.get("active_until"))


def count_by_state(jobs: Iterable[JobStatus]) -> Mapping[str, int]:
    return {**dict.fromkeys(STATES, 0), **Counter(job.state for job in jobs)}


def certificate_days(settings: PartySettings) -> Mapping[str, float | None]:
    """Days until this party's own certificate and that of the authority expire; None if it cannot be read."""
    return {"own": _days(settings.certificates.cert), "ca": _days(settings.certificates.ca)}


def _days(file: Path) -> float | None:
    try:
        return days_until(describe(file).not_after)
    except VeilBoostError:
        return None


def days_until(end: datetime) -> float:
    return (end - datetime.now(UTC)).total_seconds() / _DAY


class LedgerBudget:
    """Epsilon spent and left, computed again if the ledger has changed, at most once a minute: it may take a second."""

    def __init__(self, settings: PartySettings) -> None:
        self._ledger, self._policy = Ledger(settings.ledger_file), settings.policy
        self._known: tuple[object, float, float] | None = None

    def read(self) -> tuple[float, float | None]:
        """Epsilon spent or reserved, and left of the policy's `epsilon_total`; None if it has none."""
        version = file_stamp(self._ledger.path)
        if self._known is None or (self._known[0] != version and time.monotonic() - self._known[1] > _BUDGET_AGE):
            self._known = version, time.monotonic(), self._ledger.spent(self._policy.delta)
        spent, total = self._known[2], self._policy.epsilon_total
        return spent, None if total is None else max(total - spent, 0.0)


@dataclass(frozen=True)
class PeerTotal:
    """What one peer has received: epsilon of releases with noise, and the number of exact ones."""

    bounded: float
    exact_releases: int


@dataclass(frozen=True)
class LedgerSummary:
    """What all jobs have released of a party's data, at the delta of its policy.

    `spent` counts towards `budget`; `bounded` is the epsilon of the releases with noise alone. Budgets are None without
    a limit.
    """

    ledger: Path
    rows: int
    head: str
    delta: float
    spent: float
    budget: float | None
    bounded: float
    assignments: int
    assignments_budget: int | None
    by_adjacency: Mapping[str, float]
    by_peer: Mapping[PartyName, PeerTotal]
    exact: Sequence[ExactTotal]
    jobs: Sequence[JobTotal]


def ledger_summary(book: Ledger, policy: Policy) -> LedgerSummary:
    """Verify a ledger, and sum it up by job, adjacency and peer."""
    head, totals, every, exact = book.verify(), book.totals(policy.delta), book.events(), book.exact()
    return LedgerSummary(
        ledger=book.path,
        rows=head.rows,
        head=head.hash,
        delta=policy.delta,
        spent=sum(total.counted for total in totals),
        budget=policy.epsilon_total,
        bounded=sum(total.bounded for total in totals),
        assignments=sum(total.assignments for total in totals),
        assignments_budget=policy.assignments_total,
        by_adjacency={
            str(kind): book.spent(policy.delta, kind) for kind in sorted({event.adjacency for event in every})
        },
        by_peer={
            peer: PeerTotal(book.bounded(policy.delta, peer), sum(item.times for item in exact if item.to == peer))
            for peer in dict.fromkeys(event.adversary for event in every)
        },
        exact=exact,
        jobs=totals,
    )


def readiness(settings: PartySettings) -> Mapping[str, VeilBoostError | None]:
    """Whether the party can take part in jobs: what is checked, and the error if there is one."""

    def runs_writable() -> None:
        with keeping("the runs folder cannot be written"), tempfile.TemporaryFile(dir=settings.runs) as file:
            file.write(b"ready")
            file.flush()

    checks = {
        "runs": runs_writable,
        "ledger": Ledger(settings.ledger_file).rows,
        "certificate": lambda: own_identity(settings),
    }
    found: dict[str, VeilBoostError | None] = dict.fromkeys(checks)
    for name, check in checks.items():
        try:
            check()
        except VeilBoostError as error:
            found[name] = error
    return found


# --- this party -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartyStatus:
    """The state of this party, from its files. `problems` lists what needs an operator."""

    party: PartyName
    release: str
    daemon: str | None  # its process, and since when it runs
    listen: str
    table: str | None
    certificate_days: Mapping[str, float | None]
    jobs: Mapping[str, int]
    running: Sequence[JobStatus]
    epsilon_spent: float | None
    epsilon_left: float | None
    disk_free: int | None
    errors: Sequence[JobStatus]
    problems: Sequence[str]


def party_status(settings: PartySettings) -> PartyStatus:
    """The state of this party. Works whether or not the daemon runs."""
    jobs, days = list_jobs(settings), certificate_days(settings)
    daemon = holder(settings.runs / DAEMON_LOCK)
    spent = left = free = None
    problems = [] if daemon is not None else ["the daemon does not run: start it with veilboost party serve"]
    problems += [str(error) for error in readiness(settings).values() if error is not None]
    if settings.runs.exists():
        free = shutil.disk_usage(settings.runs).free
        if free < LEAST_FREE:
            problems.append(f"the disk of the runs folder has {free >> 20} MB left")
    for name, number in days.items():
        if number is not None and 0 <= number < WARN_DAYS:
            problems.append(f"the {name} certificate expires in {number:.0f} days")
    with suppress(VeilBoostError):  # readiness has reported it
        spent, left = LedgerBudget(settings).read()
    return PartyStatus(
        party=settings.name,
        release=__version__,
        daemon=daemon,
        listen=settings.listen,
        table=None if settings.data is None else settings.data.table,
        certificate_days=days,
        jobs=count_by_state(jobs),
        running=[job for job in jobs if job.running],
        epsilon_spent=spent,
        epsilon_left=left,
        disk_free=free,
        errors=[job for job in jobs if job.error is not None][:LAST_ERRORS],
        problems=problems,
    )
