"""The progress of a run, from files that grow: only what was appended since the last look is read."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from veilboost.boost.booster import RoundResult
from veilboost.durable import FileStamp, file_stamp
from veilboost.errors import VeilBoostError
from veilboost.party.job import Job, load_job
from veilboost.party.messages import Checkpoint
from veilboost.party.runs import JOB, LEDGER, METRICS, RUNNING, STATUS, TRANSCRIPT, Exchanges, RunFolder, roles_of
from veilboost.protocols.vertical.messages import BeginRound
from veilboost.types import PartyName
from veilboost.wire.transcript import ENTRIES, Entry, Exchange, read_appended, traffic_by_peer

_STAMPED = (STATUS, METRICS, LEDGER, "cancel", f"{TRANSCRIPT}/{ENTRIES}")
_LAST = 20  # messages that are listed one by one
_MOST_POINTS = 200  # of the curve of bytes
_PACE = 10  # the last rounds, from which the remaining time is estimated

Stamp = tuple[FileStamp | None, ...]


def stamp_of(folder: Path, *more: str) -> Stamp:
    """Changes whenever a file of the run does."""
    return tuple(file_stamp(folder / name) for name in (*_STAMPED, *more))


@dataclass(frozen=True)
class RunProgress:
    """What a party knows about a run. `round` is the last one that began; None if the protocol does not show it."""

    job: Job | None
    round: int | None
    rounds: int | None
    seconds_left: float | None
    results: Sequence[RoundResult]  # of finished rounds, at the driver
    exchanges: Sequence[Exchange]
    traffic: Mapping[PartyName, Mapping[str, int]]
    last: Sequence[Entry]  # messages, the newest first
    volume: Mapping[str, Sequence[tuple[float, float]]]  # bytes sent and received, over seconds


class RunFollower:
    """Follows one run. Threads may share it."""

    def __init__(self, run: RunFolder) -> None:
        self._run, self._lock = run, threading.Lock()
        self._stamp: Stamp | None = None
        self._known: RunProgress | None = None
        self._restart()

    def read(self) -> RunProgress:
        with self._lock:
            stamp = stamp_of(self._run.path)
            if self._known is None or stamp != self._stamp:
                self._known, self._stamp = self._read(), stamp
            return self._known

    def _restart(self) -> None:
        self._job: Job | None = None
        with suppress(VeilBoostError):
            self._job = load_job(self._run.path / JOB)
        messages = () if self._job is None else self._job.spec.messages
        self._openings = {kind.type_name() for kind in messages if issubclass(kind, BeginRound)}
        self._file: int | None = None
        self._offset = self._begun = self._stored = 0
        self._owner = str(self._run.status.get("party"))
        self._opened_with: PartyName | None = None  # a driver opens a round with each party; one of them counts
        if self._job is not None:
            drives = self._job.driver == self._owner
            self._opened_with = self._job.others[0] if drives else self._job.driver
        self._exchanges = Exchanges(self._owner, roles_of(self._run.path))
        self._last = deque[Entry](maxlen=_LAST)
        self._rounds_at = deque[float](maxlen=_PACE + 1)
        self._began: float | None = None
        self._total = {"sent": 0, "received": 0}
        self._volume = list[tuple[float, int, int]]()

    def _read(self) -> RunProgress:
        self._append()
        results = self._run.metrics
        state, rounds = self._run.state, None
        if self._job is not None:
            rows = int(self._run.status.get("rows", 0))
            rounds = self._job.spec.completed(self._job.training, rows).n_estimators
        ended = len(results) or self._stored
        number = ended + (state in RUNNING) if ended else self._begun or None
        if number is not None and rounds is not None:
            number = min(number, rounds)
        return RunProgress(
            self._job,
            number,
            rounds,
            self._left(results, number, rounds) if state == "training" else None,
            results,
            self._exchanges.totals,
            traffic_by_peer(self._owner, self._exchanges.totals),
            list(reversed(self._last)),
            {kind: [(point[0], float(point[at])) for point in self._volume] for at, kind in enumerate(self._total, 1)},
        )

    def _append(self) -> None:
        folder = self._run.path / TRANSCRIPT
        try:
            about = os.stat(folder / ENTRIES)
        except OSError:
            return
        if about.st_ino != self._file or about.st_size < self._offset:  # of another attempt
            self._restart()
            self._file = about.st_ino
        entries, self._offset = read_appended(folder, self._offset)
        for entry in entries:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        self._exchanges.add(entry)
        self._last.append(entry)
        self._began = entry.when if self._began is None else self._began
        self._total[entry.direction] += entry.size
        self._volume.append((max(entry.when - self._began, 0.0), self._total["sent"], self._total["received"]))
        if len(self._volume) > _MOST_POINTS:
            self._volume = [*self._volume[:-1:2], self._volume[-1]]
        if entry.message in self._openings and entry.peer == self._opened_with:
            self._begun += 1
            self._rounds_at.append(entry.when)
        elif not self._openings and entry.message == Checkpoint.type_name():  # no message begins a round
            self._stored += 1
            self._rounds_at.append(entry.when)

    def _left(self, results: Sequence[RoundResult], number: int | None, rounds: int | None) -> float | None:
        if number is None or rounds is None:
            return None
        if results:
            last = [each.seconds for each in results[-_PACE:]]
            return (rounds - len(results)) * sum(last) / len(last)
        if len(self._rounds_at) < 2:
            return None
        return (rounds - number + 1) * (self._rounds_at[-1] - self._rounds_at[0]) / (len(self._rounds_at) - 1)
