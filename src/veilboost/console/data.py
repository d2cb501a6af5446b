"""What the pages show, from the files of the party. What takes long is computed in threads and kept."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from veilboost import durable
from veilboost.data.report import TableReport, describe_columns
from veilboost.durable import FileStamp, file_stamp
from veilboost.errors import InvalidParameter, PeerBroken, TableBusy, VeilBoostError
from veilboost.logs import reason
from veilboost.party.approvals import APPROVALS, Proposal, find_proposal
from veilboost.party.job import load_job
from veilboost.party.ping import PeerStatus, dialled_addresses, peer_status
from veilboost.party.progress import RunFollower, Stamp, stamp_of
from veilboost.party.runs import JOB, RunFolder, stamped_runs
from veilboost.party.settings import DataSettings, PartySettings
from veilboost.party.status import JobStatus, LedgerSummary, PartyStatus, job_status, ledger_summary, party_status
from veilboost.privacy.ledger import Ledger
from veilboost.report.ledger import Spending, spending_over_time
from veilboost.report.runs import AUDIT

PATIENCE = 0.1  # seconds that a page waits for a value; it shows the value when it is there
PEERS_AGE = 60.0  # seconds
LEDGER_REST = 50.0  # a ledger that grows is summed up again after so many times as long as it took: 2 % of a core
SCAN_AGE = 1.0  # seconds for which a look at the runs folder holds
MOST_FOLLOWED = 64
AUDIT_SECONDS = 3600.0

T = TypeVar("T")


@dataclass(frozen=True)
class Value(Generic[T]):
    """A computed value, or the error, or neither while it is computed for the first time."""

    value: T | None
    error: VeilBoostError | None
    computing: bool


class Remembered(Generic[T]):
    """A value that a thread computes, again when its stamp has changed, after `rest` times as long as it took."""

    def __init__(self, compute: Callable[[], T], stamp: Callable[[], object], rest: float = 0.0) -> None:
        self._compute, self._stamp, self._rest = compute, stamp, rest
        self._due = 0.0  # on the monotonic clock
        self._pool, self._lock = ThreadPoolExecutor(1, "console"), threading.Lock()
        self._known: object = None
        self._last: Future[T] | None = None
        self._next: Future[T] | None = None

    def get(self) -> Value[T]:
        with self._lock:
            stamp = self._stamp()
            if self._next is None and (self._last is None or self._is_due(stamp)):
                self._known, self._next = stamp, self._pool.submit(self._timed)
            pending = self._next
        if pending is not None and wait([pending], PATIENCE).done:
            with self._lock:
                self._last, self._next = pending, None if self._next is pending else self._next
        last = self._last
        if last is None:
            return Value(None, None, True)
        error = last.exception()
        if error is not None and not isinstance(error, VeilBoostError):
            error = PeerBroken(f"internal error: {reason(error)}", "read the log of the console, and report the error")
        return Value(None if error else last.result(), error, self._next is not None)

    def _timed(self) -> T:
        began = time.monotonic()
        try:
            return self._compute()
        finally:
            ended = time.monotonic()
            self._due = ended + self._rest * (ended - began)

    @property
    def version(self) -> object:
        """Changes when there is a new value to show, or when one can be computed."""
        due = self._last is not None and self._is_due(self._stamp())
        return self._known, due, self._next is not None and self._next.done()

    def _is_due(self, stamp: object) -> bool:
        return stamp != self._known and time.monotonic() >= self._due


@dataclass(frozen=True)
class TableFacts:
    """A table without its values: columns with their types, counts, and the report of `veilboost data check`."""

    rows: int
    columns: Sequence[Mapping[str, Any]]
    label: str | None
    classes: int | None
    report: TableReport


def table_facts(data: DataSettings) -> TableFacts:
    report = data.check()
    table = report.table
    columns = () if table is None else describe_columns(table)
    classes = None if table is None or table.label is None else len(np.unique(table.label))
    return TableFacts(report.rows, columns, data.label, classes, replace(report, table=None))  # its values are not kept


@dataclass(frozen=True)
class LedgerFacts:
    """The totals of the ledger at a time, and how they grew."""

    at: float
    about: LedgerSummary
    over_time: Mapping[str, Spending]


class ConsoleData:
    """The data of one party's console. `trial`: settings files of other parties on this machine, for audits."""

    def __init__(self, settings: PartySettings, config: Path, trial: Sequence[Path] = ()) -> None:
        self.settings, self._files, self.trial = settings, (config, *trial), trial
        self.book = Ledger(settings.ledger_file)
        self.ledger = Remembered(self._ledger, lambda: file_stamp(settings.ledger_file), LEDGER_REST)
        self.peers = Remembered(self._peers, lambda: time.monotonic() // PEERS_AGE)
        data = settings.data
        self.table = None if data is None else Remembered(lambda: table_facts(data), lambda: _stamp_of_data(data))
        self.audits = Audits(settings, self._files)
        self._lock = threading.Lock()
        self._statuses: dict[str, tuple[object, JobStatus]] = {}
        self._proposals: dict[str, tuple[object, Proposal]] = {}
        self._scanned: tuple[float, list[tuple[RunFolder, FileStamp]]] | None = None
        self._followers: OrderedDict[str, RunFollower] = OrderedDict()

    # --- jobs -------------------------------------------------------------------------------------------

    def jobs(self) -> list[JobStatus]:
        """All runs, newest first. A status is read again only if its file has changed."""
        found: dict[str, tuple[object, JobStatus]] = {}
        for run, stamp in self._scan():
            known = self._statuses.get(run.path.name)
            if known is None or known[0] != stamp or known[1].running:  # its process may have been killed
                known = stamp, job_status(run)
            found[run.path.name] = known
        self._statuses = found
        return [status for _, status in found.values()]

    def _scan(self) -> list[tuple[RunFolder, FileStamp]]:
        """The runs and the stamps of their statuses, newest first."""
        with self._lock:
            if self._scanned is None or time.monotonic() - self._scanned[0] > SCAN_AGE:
                self._scanned = time.monotonic(), stamped_runs(self.settings.runs)
            return self._scanned[1]

    def _approvals(self) -> list[tuple[str, FileStamp | None]]:
        """The proposals, and when each of their folders has changed."""
        folder = self.settings.runs / APPROVALS
        names = os.listdir(folder) if folder.is_dir() else []
        return [(name, file_stamp(folder / name)) for name in sorted(names)]

    def proposals(self) -> list[Proposal]:
        """All proposals, newest first. One is read again only if its folder has changed."""
        found: dict[str, tuple[object, Proposal]] = {}
        for name, stamp in self._approvals():
            known = self._proposals.get(name)
            with suppress(VeilBoostError):  # one that cannot be read does not hide the others
                found[name] = (
                    known if known is not None and known[0] == stamp else (stamp, find_proposal(self.settings, name))
                )
        self._proposals = found
        return sorted((each for _, each in found.values()), key=lambda each: -each.asked_at)

    def follower(self, name: str) -> RunFollower:
        with self._lock:
            if name not in self._followers:
                self._followers[name] = RunFollower(RunFolder.open(self.settings.runs, name))
                if len(self._followers) > MOST_FOLLOWED:
                    self._followers.popitem(last=False)
            self._followers.move_to_end(name)
            return self._followers[name]

    def version(self, job: str | None) -> str:
        """Changes when there is something new to show: about one job, or about all."""
        if job is not None:
            found: Stamp = stamp_of(self.settings.runs / job, AUDIT)
            return f"{hash((found, self.audits.state(job))):x}"
        running = [each.job for each in self.jobs() if each.running]
        stamps = [stamp_of(self.settings.runs / name) for name in running]
        table = None if self.table is None else self.table.version
        slow = self.ledger.version, self.peers.version, table
        runs = [(run.path.name, stamp) for run, stamp in self._scan()]
        return f"{hash(repr((runs, self._approvals(), stamps, slow))):x}"

    # --- what takes long --------------------------------------------------------------------------------

    def _ledger(self) -> LedgerFacts:
        at, policy = time.time(), self.settings.policy
        return LedgerFacts(at, ledger_summary(self.book, policy), spending_over_time(self.book, policy.delta))

    def _peers(self) -> tuple[PartyStatus, list[PeerStatus]]:
        """This party, and the peers of its settings and of the newest job that it drives and has begun."""
        driven = (self.settings.runs / each.job / JOB for each in self.jobs() if each.driver == self.settings.name)
        newest, job = next((file for file in driven if file.exists()), None), None
        if newest is not None:
            with suppress(VeilBoostError):
                job = load_job(newest)
        return party_status(self.settings), peer_status(self.settings, dialled_addresses(self.settings, job))


def _stamp_of_data(data: DataSettings) -> object:
    return None if data.path is None else file_stamp(data.path)


class Audits:
    """Runs `veilboost audit` in a process of its own, one at a time, and stores its findings in the run folder."""

    def __init__(self, settings: PartySettings, files: Sequence[Path]) -> None:
        self._settings, self._files = settings, [file.resolve() for file in files]
        self._lock = threading.Lock()
        self._running: str | None = None
        self._errors: dict[str, str] = {}

    def state(self, job: str) -> tuple[bool, str | None]:
        """Whether an audit of this job runs, and the error of its last one."""
        return self._running == job, self._errors.get(job)

    def start(self, job: str) -> None:
        run = RunFolder.open(self._settings.runs, job)
        if len(self._files) < 2:
            raise InvalidParameter(
                "an audit needs what the other parties received", "start the console with --trial FILE for each of them"
            )
        with self._lock:
            if self._running is not None:
                raise TableBusy(f"an audit of {self._running} is running", "wait until it ends")
            self._running = job
        self._errors.pop(job, None)
        threading.Thread(target=self._run, args=(run, job), name="audit", daemon=True).start()

    def _run(self, run: RunFolder, job: str) -> None:
        from veilboost.party.settings import load_party

        try:
            runs = [load_party(file).runs / job for file in self._files]
            truth = [part for file in self._files for part in ("--truth", str(file))]
            command = [sys.executable, "-m", "veilboost", "audit", *map(str, runs), *truth, "--json"]
            done = subprocess.run(command, capture_output=True, timeout=AUDIT_SECONDS, check=False)
            if done.returncode:
                self._errors[job] = done.stderr.decode(errors="replace").strip().splitlines()[-1]
            else:
                durable.replace_file(run.path / AUDIT, done.stdout)
        except (OSError, subprocess.SubprocessError, VeilBoostError, IndexError) as error:
            self._errors[job] = reason(error)
        finally:
            self._running = None
