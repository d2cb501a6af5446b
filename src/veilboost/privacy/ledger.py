"""A party's privacy ledger: every release of its data, over all jobs, in one append-only file.

The file is an SQLite database, so that concurrent jobs are safe. Triggers refuse everything except appending rows. Each
row has a hash of itself and the previous row, which detects edited, reordered or removed rows. A chain cannot detect
missing rows at the end: a small file beside the ledger stores its head, and an export states the last hash, which an
auditor can keep elsewhere. A ledger from a backup may lack its last rows: a row marks it, and nothing is booked until
its owner has reconciled it. A process that is killed within a transaction leaves a journal; whoever opens the ledger
next, also to read, rolls it back.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from veilboost.durable import make_folder, open_private, remove, replace_file
from veilboost.errors import DamagedLedger, InvalidParameter, LedgerRestored, LedgerUnavailable, NewerFormat
from veilboost.logs import EventLogger
from veilboost.privacy.accountant import compose
from veilboost.privacy.event import Adjacency, Event, ExactRelease, Pure, assignments_of, event_from_dict

Entry = Literal["spent", "reserved", "closed", "restored", "reconciled"]
FORMAT = 1  # of the file, as SQLite's user_version
UNKNOWN = "(unknown releases)"  # no name of a job: what a ledger lost with its last rows, by its owner's estimate
FIRST = "0" * 64  # the hash before the first row
_LOG = EventLogger(__name__)
_LOCK_TIMEOUT = 60.0  # seconds to wait for another job's transaction
_TABLES = (
    """CREATE TABLE IF NOT EXISTS ledger (number INTEGER PRIMARY KEY, at REAL NOT NULL, job TEXT NOT NULL,
       entry TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL)""",
    "CREATE UNIQUE INDEX IF NOT EXISTS once ON ledger (job, body) WHERE entry = 'spent'",
    "CREATE INDEX IF NOT EXISTS marks ON ledger (number) WHERE entry IN ('restored', 'reconciled')",
    """CREATE TRIGGER IF NOT EXISTS at_the_end BEFORE INSERT ON ledger
       WHEN NEW.number != (SELECT coalesce(max(number), 0) + 1 FROM ledger)
       BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END""",
    """CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON ledger
       BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END""",
    """CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON ledger
       BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END""",
)
# SQLite's codes of errors that say nothing about the content: the disk, permissions, another process.
_TRANSIENT = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE name = 'ledger'"
_MARK = "SELECT entry, body FROM ledger WHERE entry IN ('restored', 'reconciled') ORDER BY number DESC LIMIT 1"
_LAST = "SELECT number, hash FROM ledger ORDER BY number DESC LIMIT 1"


@dataclass(frozen=True)
class Row:
    """One row of the ledger. The body is an event or a reservation."""

    number: int
    at: float
    job: str
    entry: Entry
    body: str
    hash: str

    def hashed_after(self, previous: str) -> str:
        content = json.dumps([self.number, self.at, self.job, self.entry, self.body], separators=(",", ":"))
        return hashlib.sha256(f"{previous}{content}".encode()).hexdigest()


@dataclass(frozen=True)
class Head:
    """The head of a ledger: the number of rows, and the last hash."""

    rows: int
    hash: str


@dataclass(frozen=True)
class JobTotal:
    """The cost of one job: the epsilon of its releases, and the epsilon still reserved for it.

    Limits apply to `epsilon`: it is infinite if a protocol with noise also releases something exactly. `bounded` is the
    epsilon of the releases with noise alone; `exact` counts those without.
    """

    job: str
    releases: int
    epsilon: float
    reserved: float
    bounded: float = 0.0
    exact: int = 0
    assignments: int = 0  # left/right assignments (bits) of each row

    @property
    def counted(self) -> float:
        return max(self.epsilon, self.reserved)


@dataclass(frozen=True)
class ExactTotal:
    """One kind of value released without noise: receiver, protocol, and the largest numbers of rows and bins."""

    to: str
    protocol: str
    what: str
    rows: int | None
    bins: int | None
    times: int
    jobs: int


class Ledger:
    """One party's ledger file. Safe for several jobs and processes at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def _head_file(self) -> Path:
        return self.path.with_name(self.path.name + ".head")

    # --- writing ----------------------------------------------------------------------------------------

    def append(self, job: str, *events: Event) -> bool:
        """Book releases; False if this job has already booked the same events (a retry), which costs nothing."""
        with self._writing() as connection:
            _check_reconciled(connection, self.path)
            new = [event for event in events if self._book(connection, job, event)]
        for event in new:
            cost = {"epsilon": event.epsilon} if isinstance(event, Pure) else {}
            about: dict[str, Any] = {"kind": event.kind, "receiver": event.adversary, "releases": event.count, **cost}
            _LOG.info("ledger_spent", f"booked {event.release}", entry=job, **about)
        return bool(new)

    def _book(self, connection: sqlite3.Connection, job: str, event: Event) -> bool:
        found = connection.execute(
            "SELECT 1 FROM ledger WHERE entry = 'spent' AND job = ? AND body = ?", (job, event.canonical())
        ).fetchone()
        if found is None:
            self._add(connection, job, "spent", event.canonical())
        return found is None

    def reserve(self, job: str, epsilon: float, delta: float, approve: Callable[[], None]) -> int:
        """Reserve epsilon for a job that is about to start, unless `approve` raises.

        Both happen in one transaction, so that two jobs cannot take the same epsilon. A new reservation of a job
        replaces its previous one. Returns the row's number.
        """
        if not epsilon >= 0:
            raise InvalidParameter(f"a job would reserve an epsilon of {epsilon}", "plan a number of at least 0")
        with self._writing() as connection:
            _check_reconciled(connection, self.path)
            approve()
            # JSON has no infinity; `float` also reads text.
            body = json.dumps({"epsilon": str(float(epsilon)), "delta": delta})
            number = self._add(connection, job, "reserved", body)
        _LOG.info("ledger_reserved", f"reserved epsilon {epsilon:g}", entry=job, epsilon=epsilon, delta=delta)
        return number

    def close(self, job: str, reservation: int | None = None) -> None:
        """Close a job: from now on its releases count, not its reservation.

        If `reservation` is given, the job is closed only if this is its last one: it may have been resumed since.
        """
        with self._writing() as connection:
            last = connection.execute(
                "SELECT number, entry FROM ledger WHERE job = ? AND entry != 'spent' ORDER BY number DESC LIMIT 1",
                (job,),
            ).fetchone()
            closes = last is not None and last[1] == "reserved" and reservation in (None, last[0])
            if closes:
                self._add(connection, job, "closed", "{}")
        if closes:
            _LOG.info("ledger_closed", "the releases of the job count from now on", entry=job)

    # --- backup and restore -----------------------------------------------------------------------------

    def copy_to(self, path: Path) -> Head:
        """Write a consistent copy, also while jobs book; an empty one if nothing was booked yet."""
        copy = Ledger(path)
        with copy._writing():
            pass
        if self.rows():
            with _coded(self.path), _connected(self.path) as own, closing(sqlite3.connect(path)) as other:
                own.backup(other)
        return copy.verify()

    def restore(self, copy: Path, made: str) -> bool:
        """Replace this ledger by a copy of that date; False if it has all rows of the copy already.

        The new ledger is marked: it books nothing until it is reconciled.
        """
        present, stored = self.path.exists(), self._stored_head()
        own, other = ([row.hash for row in rows] for rows in (self.rows() if present else (), Ledger(copy).rows()))
        if present and own[: len(other)] == other:
            return False
        if other[: len(own)] != own:
            raise DamagedLedger(
                f"{self.path} and the ledger of the backup both have rows that the other lacks",
                "keep this ledger, and add the releases of the other one: veilboost ledger reconcile --add LEDGER",
            )
        marked = Ledger(copy)
        with marked._writing() as connection:
            missing = max(0, stored.rows - len(other)) if stored is not None else 0
            marked._add(connection, "", "restored", json.dumps({"backup": made, "missing": missing}))
        with _coded(self.path):
            make_folder(self.path.parent)
            # The head may be ahead of the copy. A journal that a lost ledger has left would be rolled back into it.
            remove(self._head_file, self.path.with_name(f"{self.path.name}-journal"))
            replace_file(self.path, copy.read_bytes())
            replace_file(self._head_file, marked._head_file.read_bytes())
        return True

    def check_reconciled(self) -> None:
        """Raise `LedgerRestored` if the ledger was restored from a backup and not reconciled since."""
        with _coded(self.path):
            if self.path.exists() and self.path.stat().st_size:
                with _connected(self.path) as connection:
                    if connection.execute(_HAS_TABLE).fetchone():
                        _check_reconciled(connection, self.path)

    def reconcile(self, releases: Iterable[tuple[str, Event]], unknown: float, delta: float) -> int:
        """Book releases that the ledger lacks, and an epsilon for those that nobody knows; it books again from now on.

        Returns the number of releases that it lacked.
        """
        with self._writing() as connection:
            added = sum(self._book(connection, job, event) for job, event in releases)
            if unknown:
                body = json.dumps({"epsilon": str(float(unknown)), "delta": delta})
                self._add(connection, UNKNOWN, "reserved", body)
            self._add(connection, "", "reconciled", json.dumps({"added": added, "unknown": str(float(unknown))}))
        return added

    def _add(self, connection: sqlite3.Connection, job: str, entry: Entry, body: str) -> int:
        last = connection.execute(_LAST).fetchone()
        number, previous = last or (0, FIRST)
        self._check_end(number)
        row = Row(number + 1, time.time(), job, entry, body, "")
        values = (row.number, row.at, job, entry, body, row.hashed_after(previous))
        connection.execute("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?)", values)
        return row.number

    # --- reading ----------------------------------------------------------------------------------------

    def rows(self, run: str | None = None) -> tuple[Row, ...]:
        """All rows, or those of the jobs of one run, in order."""
        found: tuple[Row, ...] = ()
        # The job of a row is "RUN/FINGERPRINT", and "0" follows "/".
        only, bounds = ("", ()) if run is None else ("WHERE job >= ? AND job < ?", (f"{run}/", f"{run}0"))
        with _coded(self.path):
            if self.path.exists() and self.path.stat().st_size:
                with _connected(self.path) as connection:
                    _check_format(connection, self.path)
                    if connection.execute(_HAS_TABLE).fetchone():
                        rows = connection.execute(f"SELECT * FROM ledger {only} ORDER BY number", bounds)  # noqa: S608
                        found = tuple(Row(*values) for values in rows)
        if not found and run is None:
            self._check_end(0)
        return found

    def events(self, job: str | None = None) -> tuple[Event, ...]:
        """All releases, or those of one job, in order."""
        return tuple(event for owner, event in self.releases() if job in (None, owner))

    def releases(self) -> Iterator[tuple[str, Event]]:
        """All releases with their jobs, in order."""
        return _spent(self.rows())

    def reserved(self) -> Mapping[str, float]:
        """The epsilon reserved for jobs that have not ended."""
        return {job: epsilon for job, epsilon in _reserved(self.rows()).items() if epsilon}

    def totals(self, delta: float, adjacency: Adjacency | None = None) -> tuple[JobTotal, ...]:
        """The cost of each job, at `delta` each; of the worst adjacency if none is given."""
        rows = self.rows()
        events: dict[str, list[Event]] = {row.job: [] for row in rows if row.job}
        for job, event in _spent(rows):
            if adjacency in (None, event.adjacency):
                events[job].append(event)
        reserved = _reserved(rows)
        return tuple(
            JobTotal(
                job,
                sum(event.count for event in seen),
                worst_epsilon(seen, delta),
                reserved.get(job, 0.0),
                worst_epsilon([event for event in seen if not isinstance(event, ExactRelease)], delta),
                sum(event.count for event in seen if isinstance(event, ExactRelease)),
                assignments_of(seen),
            )
            for job, seen in events.items()
        )

    def spent(self, delta: float, adjacency: Adjacency | None = None, besides: str | None = None) -> float:
        """The sum of the epsilons of all jobs (except one), spent or reserved, at `delta` each."""
        return sum(total.counted for total in self.totals(delta, adjacency) if total.job != besides)

    def bounded(self, delta: float, adversary: str) -> float:
        """Releases with noise to one receiver: the sum of the epsilons of all jobs, at `delta` each."""
        seen: dict[str, list[Event]] = {}
        for job, event in _spent(self.rows()):
            if event.adversary == adversary and not isinstance(event, ExactRelease):
                seen.setdefault(job, []).append(event)
        return sum(worst_epsilon(events, delta) for events in seen.values())

    def exact(self) -> tuple[ExactTotal, ...]:
        """Releases without noise, by receiver and kind, over all jobs."""
        found: dict[tuple[str, str, str], list[tuple[str, ExactRelease]]] = {}
        for job, event in _spent(self.rows()):
            if isinstance(event, ExactRelease):
                found.setdefault((event.adversary, event.protocol, event.what), []).append((job, event))
        return tuple(
            ExactTotal(
                *key,
                rows=max((event.rows or 0 for _, event in seen), default=0) or None,
                bins=max((event.bins or 0 for _, event in seen), default=0) or None,
                times=sum(event.count for _, event in seen),
                jobs=len({job for job, _ in seen}),
            )
            for key, seen in found.items()
        )

    def verify(self) -> Head:
        """The head of an intact ledger; raises `DamagedLedger` if a row was changed, moved, removed or inserted."""
        previous = FIRST
        rows = self.rows()
        stored = self._stored_head()
        for number, row in enumerate(rows, start=1):
            if row.number != number or row.hash != row.hashed_after(previous):
                raise DamagedLedger(f"{self.path}: row {number} is not what was written")
            previous = row.hash
            if stored is not None and stored.rows == number and stored.hash != row.hash:
                raise DamagedLedger(f"{self.path}: row {number} does not match the stored head")
        self._check_end(len(rows))
        return Head(len(rows), previous)

    def export(self) -> dict[str, Any]:
        """The whole ledger as JSON, verified, with its head for an auditor to keep."""
        head = self.verify()
        rows = [{**vars(row), "body": json.loads(row.body)} for row in self.rows()]
        return {"head": vars(head), "rows": rows}

    # --- the file ---------------------------------------------------------------------------------------

    def _stored_head(self) -> Head | None:
        try:
            return Head(**json.loads(self._head_file.read_text()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerUnavailable(f"{self._head_file} cannot be read ({error.strerror})") from error
        except (ValueError, TypeError) as error:
            raise DamagedLedger(f"{self._head_file} is not readable") from error

    def _check_end(self, rows: int) -> None:
        """A crash may leave the stored head behind the ledger, never ahead of it."""
        stored = self._stored_head()
        if stored is not None and stored.rows > rows:
            raise DamagedLedger(f"{self.path}: {stored.rows - rows} rows at the end are missing")

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """One exclusive transaction; the head is stored once the transaction is on disk."""
        with _coded(self.path):
            make_folder(self.path.parent)
            open_private(self.path, "ab").close()
            with closing(sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")  # FULL does not flush the journal's removal
                with _exclusive(connection):
                    _check_format(connection, self.path)
                    for statement in (*_TABLES, f"PRAGMA user_version = {FORMAT}"):
                        connection.execute(statement)
                    yield connection
                with _exclusive(connection):  # so that the later of two jobs writes last
                    last = connection.execute(_LAST).fetchone()
                    if last is not None:
                        replace_file(self._head_file, json.dumps(vars(Head(*last))).encode())


@contextmanager
def _coded(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be used ({error.strerror})") from error
    except UnicodeError as error:
        raise DamagedLedger(f"{path} has text that is not UTF-8") from error
    except sqlite3.Error as error:
        # A program's own misuse, such as a thread of another connection, has no code.
        transient = getattr(error, "sqlite_errorcode", 0) & 0xFF in _TRANSIENT
        kind = LedgerUnavailable if transient else DamagedLedger
        raise kind(f"{path} cannot be used ({error})") from error


@contextmanager
def _connected(path: Path) -> Generator[sqlite3.Connection]:
    """A connection to read. Not mode=ro, which cannot roll back a journal; SQLite only reads where it may not write."""
    where = f"{path.resolve().as_uri()}?mode=rw"
    with closing(sqlite3.connect(where, uri=True, timeout=_LOCK_TIMEOUT)) as connection:
        yield connection


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > FORMAT:
        raise NewerFormat(f"{path} has ledger format {found}; this release reads formats up to {FORMAT}")


def _check_reconciled(connection: sqlite3.Connection, path: Path) -> None:
    entry, body = connection.execute(_MARK).fetchone() or ("", "")
    if entry == "restored":
        mark = json.loads(body)
        known = f"; at least {mark['missing']} rows are missing" if mark["missing"] else ""
        raise LedgerRestored(f"{path} was restored from a backup of {mark['backup']} and may lack releases{known}")


@contextmanager
def _exclusive(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back after an error of the disk
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _reserved(rows: Iterable[Row]) -> dict[str, float]:
    """The epsilon reserved for each job that has not ended."""
    found: dict[str, float] = {}
    for row in rows:
        if row.entry in ("reserved", "closed"):
            found[row.job] = float(json.loads(row.body)["epsilon"]) if row.entry == "reserved" else 0.0
    return found


def _spent(rows: Iterable[Row]) -> Iterator[tuple[str, Event]]:
    """All releases with their jobs, in order."""
    return ((row.job, event_from_dict(json.loads(row.body))) for row in rows if row.entry == "spent")


def worst_epsilon(events: Sequence[Event], delta: float, *, convolve: bool = True) -> float:
    """The epsilon of all counted events for all receivers, under the adjacency where it is largest."""
    counted = [event for event in events if not (isinstance(event, ExactRelease) and not event.counted)]
    kinds = {event.adjacency for event in counted}
    costs = (compose([e for e in counted if e.adjacency is kind], delta, convolve=convolve) for kind in kinds)
    return max((cost.epsilon for cost in costs), default=0.0)
