"""Concurrent requests share one joint prediction; at most one prediction runs at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from veilboost.data.table import PartyTable
from veilboost.errors import PeerRefused, PeerUnreachable, RowsDiffer, TableBusy
from veilboost.party.deployments import Scored, Unknown
from veilboost.types import Column

Score = Callable[[PartyTable, Unknown], Scored]


@dataclass
class _Waiting:
    table: PartyTable
    unknown: Unknown
    answer: Future[Scored] = field(default_factory=Future[Scored])


class Batcher:
    """Passes tables to one thread, which joins the waiting ones. Requests are served in order of arrival."""

    def __init__(self, score: Score, most_rows: int, most_waiting: int) -> None:
        self._score = score
        self._most_rows = most_rows
        self._most_waiting = most_waiting
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="predict", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, table: PartyTable, unknown: Unknown = "error") -> Future[Scored]:
        """The scores of these rows, once they are predicted."""
        request = _Waiting(table, unknown)
        with self._changed:
            if self._closed:
                raise _stopping()
            if len(self._waiting) >= self._most_waiting:
                raise TableBusy(f"{len(self._waiting)} requests are already waiting", "try again in a few seconds")
            self._waiting.append(request)
            self._changed.notify()
        return request.answer

    def close(self) -> None:
        """Answer requests in progress and refuse waiting ones."""
        with self._changed:
            self._closed = True
            for request in self._waiting:
                if request.answer.set_running_or_notify_cancel():
                    request.answer.set_exception(_stopping())
            self._waiting.clear()
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            if batch:
                self._answer(batch)

    def _next(self) -> list[_Waiting] | None:
        """The oldest request and the next ones that fit with it; None when the service is stopping."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            batch: list[_Waiting] = []
            ids: set[str] = set()
            rows = 0
            while self._waiting:
                table, unknown = self._waiting[0].table, self._waiting[0].unknown
                new = set(table.ids.tolist())
                # The same id twice in one prediction would be a duplicate row.
                fits = rows + table.rows <= self._most_rows and ids.isdisjoint(new)
                if batch and (not fits or unknown != batch[0].unknown):
                    break
                request = self._waiting.popleft()
                if request.answer.set_running_or_notify_cancel():  # from here on it cannot be cancelled
                    batch.append(request)
                    ids |= new
                    rows += table.rows
            return batch

    def _answer(self, batch: list[_Waiting]) -> None:
        try:
            scored = self._score(_joined([request.table for request in batch]), batch[0].unknown)
        except (RowsDiffer, PeerRefused) as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
            else:
                self._answer_each(batch)
            return
        except Exception as error:
            for request in batch:
                request.answer.set_exception(error)
            return
        start = 0
        for request in batch:
            own = slice(start, start + request.table.rows)
            request.answer.set_result(Scored(scored.ids[own], scored.scores[own], scored.classes, scored.status[own]))
            start = own.stop

    def _answer_each(self, batch: list[_Waiting]) -> None:
        """A request must not fail because of another's rows; an unreachable party fails all of them."""
        for at, request in enumerate(batch):
            self._answer([request])
            error = request.answer.exception()
            if isinstance(error, PeerUnreachable):
                for other in batch[at + 1 :]:
                    other.answer.set_exception(error)
                return


def _joined(tables: Sequence[PartyTable]) -> PartyTable:
    """The rows of several requests as one table; all were validated for the same model."""
    if len(tables) == 1:
        return tables[0]
    columns = tuple(
        Column(first.name, np.concatenate([table.columns[at].values for table in tables]), first.categories)
        for at, first in enumerate(tables[0].columns)
    )
    return PartyTable(np.concatenate([table.ids for table in tables]), columns)


def _stopping() -> TableBusy:
    return TableBusy("the service is stopping", "try again when it has restarted")
