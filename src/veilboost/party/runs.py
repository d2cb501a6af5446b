"""A job's run folder at one party: job, status, alignment, checkpoint, share, metrics, and transcript."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost import at_rest, durable
from veilboost.boost.booster import RoundResult
from veilboost.crypto.csprng import KEY_BYTES
from veilboost.data.table import PartyTable
from veilboost.durable import FileStamp, file_stamp, keeping, reading
from veilboost.engine.tables import table_digest
from veilboost.errors import (
    AgainstPolicy,
    DamagedState,
    JobExists,
    NewerFormat,
    NothingToResume,
    StateDiffers,
    UnknownRun,
    UnreadableFile,
    VeilBoostError,
)
from veilboost.model.share import MembershipChange, ModelShare
from veilboost.model.store import load_share, save_share
from veilboost.party.checkpoints import Checkpoints
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import load_job
from veilboost.types import Int64Array, PartyName
from veilboost.wire.transcript import ENTRIES, Entry, Exchange, Transcript, read_transcript

FORMAT = 1  # of a run folder, in its status
JOB, STATUS, KEY, LEDGER, TRANSCRIPT = "job.toml", "status.json", "job.key", "ledger.json", "transcript"
METRICS = "metrics.jsonl"
TABLE_KEY = "table.key"  # of the digest of this party's table, for a later job that continues the model
APPROVAL = "approval.json"  # the proposal and the decision under which the run began
PROPOSED = "transcript.new"  # of an attempt that has not begun


RUNNING = ("proposed", "aligning", "training")
RESUMABLE = ("parked", "cancelled", "failed", "interrupted")
ENDED = ("finished", "ended", "expired")
DAMAGED = "damaged"


class RunFolder:
    """Reads and writes one run. Failed writes raise `CheckpointFailed` and lose nothing that was stored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoint")

    @staticmethod
    def create(runs: Path, name: str, *, again: bool = False) -> RunFolder:
        """Create the folder of a run; `again`: it may exist, and then keeps its content until `begin`."""
        run = RunFolder(runs / name)
        if run.path.exists() and not again:
            raise JobExists(f"there is already a run {name!r}")
        with keeping("the run folder cannot be created"):
            durable.make_folder(run.path)
        return run

    @staticmethod
    def open(runs: Path, name: str) -> RunFolder:
        run = RunFolder(runs / name)
        if not run.exists:
            raise UnknownRun(f"there is no run {name!r} in {runs}")
        return run

    @staticmethod
    def finished_with(runs: Path, asked_run: str, peer: PeerIdentity) -> RunFolder:
        """A finished run that this peer drove. Other runs are refused."""
        run = RunFolder.open(runs, asked_run)
        if run.status.get("active") != peer.party or run.status.get("state") != "finished":
            raise AgainstPolicy(
                f"{peer.party} has no finished model {asked_run!r} here",
                "use a model that it trained with this party",
                public=True,
            )
        return run

    @property
    def lock(self) -> Path:
        """The file that the only writer of this run locks. It is beside the folder, which may not exist yet."""
        return self.path.with_name(f".{self.path.name}.lock")

    def begin(self, job: str, key: bytes | None, **status: Any) -> None:
        """Begin a new attempt, and remove what an earlier one left: its rows and trees do not belong to this one.

        The transcript of an earlier attempt stays beside that of this one: data that was sent then remains sent.
        """
        with keeping("an earlier attempt cannot be removed"):
            if (self.path / PROPOSED).exists():
                self._set_aside(TRANSCRIPT)
                durable.commit_folder(self.path / PROPOSED, self.path / TRANSCRIPT)
            for folder in ("checkpoint", "alignment", "alignment.partial", "share", "share.partial"):
                if (self.path / folder).exists():  # trees first: what is left must not have trees of other rows
                    shutil.rmtree(self.path / folder)
            durable.remove(*(self.path / name for name in (METRICS, KEY, TABLE_KEY, LEDGER, APPROVAL)))
        self._write_status(status)
        self.save_job(job)
        if key is not None:
            self.save_key(key)

    # --- status and job ---------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        return (self.path / STATUS).exists()

    @property
    def status(self) -> dict[str, Any]:
        """The status; empty if the run does not exist. Raises `DamagedState` if it cannot be read."""
        file = self.path / STATUS
        try:
            with reading(file):
                found = json.loads(file.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (ValueError, RecursionError) as error:
            raise DamagedState(f"{file} cannot be read") from error
        if not isinstance(found, dict):
            raise DamagedState(f"{file} is not a status")
        status = cast(dict[str, Any], found)
        if status.get("format", FORMAT) > FORMAT:
            raise NewerFormat(f"{file} has run format {status['format']}; this release reads formats up to {FORMAT}")
        return status

    @property
    def state(self) -> str:
        """The state of the run. `interrupted`: this party drives the job, and its process was killed."""
        status = self.status
        state = str(status.get("state", "proposed"))
        return "interrupted" if state in RUNNING and "pid" in status and not _lives(int(status["pid"])) else state

    @property
    def drives(self) -> bool:
        """Whether this party drives the job: the others note who does."""
        return "active" not in self.status

    @property
    def membership(self) -> list[MembershipChange]:
        """The participants that were lost or returned while the others trained on, in order."""
        try:
            return [MembershipChange(**each) for each in self.status.get("membership", ())]
        except TypeError as error:
            raise DamagedState(f"{self.path / STATUS} has no readable membership") from error

    def note(self, **changes: Any) -> None:
        """Update the status; other entries stay."""
        self._write_status({**self.status, **changes})

    def _write_status(self, status: Mapping[str, Any]) -> None:
        self._write(STATUS, json.dumps({**status, "format": FORMAT, "updated": time.time()}, indent=2).encode())

    def settle_table(self, attempt: str, digest: str) -> None:
        """Store the digest of the common rows of this party's table; raise if this attempt began with others.

        Every attempt has its own key, and digests under different keys cannot be compared.
        """
        if self.status.get("table", {}).get(attempt, digest) != digest:
            raise StateDiffers("the table, or the choice of its common rows, has changed since the job began")
        self.note(table={attempt: digest})

    def save_table_key(self, key: bytes) -> None:
        """Store the key of the table's digest, so that a later job that continues the model can compare its rows."""
        with keeping(f"{TABLE_KEY} cannot be written"):
            at_rest.write(self.path / TABLE_KEY, key)

    def has_table(self, table: PartyTable) -> bool:
        """Whether these are the rows, in this order, with which the model of this run was trained."""
        try:
            with reading(self.path / TABLE_KEY):
                key = at_rest.read(self.path / TABLE_KEY)
        except FileNotFoundError:
            raise NothingToResume(
                f"the run {self.path.name!r} has no {TABLE_KEY}, with which its rows are compared: it was restored "
                "from a backup without keys, or an earlier release made it",
                "train a new model, without continues",
                public="the party cannot compare its rows with those of the run that the job continues; "
                "train a new model, without continues",
            ) from None
        return table_digest(table, key) in self.status.get("table", {}).values()

    @property
    def cancelled(self) -> bool:
        return (self.path / "cancel").exists()

    def cancel(self) -> None:
        self._write("cancel", b"")

    def claim(self) -> None:
        """This process writes the run from now on: remove what a killed process left, and a request to cancel it."""
        with keeping("the run folder cannot be cleaned"):
            durable.remove(self.path / "cancel")
            durable.sweep(self.path)

    def save_job(self, text: str) -> None:
        self._write(JOB, text.encode())

    @property
    def job_text(self) -> str:
        try:
            return (self.path / JOB).read_text()
        except OSError:
            raise UnknownRun(f"{self.path} contains no job") from None

    # --- privacy ----------------------------------------------------------------------------------------

    def save_key(self, key: bytes) -> None:
        """Store the secret from which this party's noise and masks in this job are drawn, for a job that resumes."""
        with keeping(f"{KEY} cannot be written"):
            at_rest.write(self.path / KEY, key)

    def forget_trees(self) -> None:
        """Remove the checkpoints of a job that will not be resumed."""
        with keeping("the checkpoints cannot be removed"):
            if (self.path / "checkpoint").exists():
                shutil.rmtree(self.path / "checkpoint")

    def forget_key(self) -> None:
        """Remove the key at the end of the job: later readers can neither decrypt messages nor subtract noise."""
        with keeping(f"{KEY} cannot be removed"):
            copies = self.path.glob(f".{KEY}.*")  # of a process that was killed while it wrote one
            durable.remove(self.path / KEY, *copies)

    @property
    def key(self) -> bytes | None:
        """The job's key; None if there is none. Raises `DamagedState` if it cannot be read."""
        try:
            with reading(self.path / KEY):
                found = at_rest.read(self.path / KEY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(found) != KEY_BYTES:
            raise DamagedState(
                f"{self.path / KEY} is damaged",
                "restore it from a backup; or run train without --resume at the driver: training starts at the first "
                "round, with a new key",
            )
        return found

    def save_ledger(self, summary: dict[str, Any]) -> None:
        self._write(LEDGER, json.dumps(summary, indent=2).encode())

    @property
    def ledger(self) -> dict[str, Any]:
        """This party's releases in this run."""
        try:
            return cast(dict[str, Any], json.loads((self.path / LEDGER).read_text()))
        except (OSError, ValueError):
            raise UnknownRun(
                f"{self.path} contains no {LEDGER}", "name a run folder; the file is written when a job ends or stops"
            ) from None

    # --- alignment --------------------------------------------------------------------------------------

    def save_alignment(self, batches: Iterable[Int64Array]) -> int:
        """Store the common rows of this run, batch after batch. Returns their number."""
        rows = number = 0
        for number, positions in enumerate(batches, 1):
            self.save_batch(number - 1, positions)
            rows += len(positions)
        self.end_alignment(number)
        return rows

    def save_batch(self, number: int, positions: Int64Array) -> None:
        """Store the rows of one batch. They may not change within a run: the job's noise is drawn for its rows."""
        if self.batches is not None:
            if number >= self.batches or not np.array_equal(self.batch(number), positions):
                raise _other_rows()
            return
        partial = self.path / "alignment.partial"
        with keeping("the alignment cannot be written"):
            if number == 0:  # left by an attempt that did not finish
                shutil.rmtree(partial, ignore_errors=True)
            durable.make_folder(partial)
            with durable.replacing(partial / f"{number}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, positions, allow_pickle=False)

    def end_alignment(self, batches: int) -> None:
        """All batches are saved: from now on the alignment is complete."""
        if self.batches is not None:
            if self.batches != batches:
                raise _other_rows()
            return
        with keeping("the alignment cannot be written"):
            durable.commit_folder(self.path / "alignment.partial", self.path / "alignment")

    @property
    def batches(self) -> int | None:
        """The number of batches of stored common rows; None if there are none."""
        folder = self.path / "alignment"
        return len(list(folder.glob("*.npy"))) if folder.exists() else None

    @property
    def rows(self) -> int:
        return sum(len(self.batch(number)) for number in range(self.batches or 0))

    def batch(self, number: int) -> Int64Array:
        """The rows of one batch, memory-mapped."""
        file = self.path / "alignment" / f"{number}.npy"
        try:
            with reading(file):
                positions: Any = np.load(file, mmap_mode="r", allow_pickle=False)
        except (FileNotFoundError, ValueError, EOFError):
            positions = None
        if positions is None or positions.dtype != np.int64 or positions.ndim != 1:
            raise NothingToResume(f"the alignment file {number}.npy of the run {self.path.name!r} is damaged")
        return positions

    @property
    def alignment(self) -> Int64Array | None:
        return None if self.batches is None else np.concatenate([self.batch(number) for number in range(self.batches)])

    # --- shares, transcript, metrics --------------------------------------------------------------------

    def save_share(self, share: ModelShare) -> None:
        with keeping("the model share cannot be written"):
            for folder in ("share.partial", "share"):  # the checkpoints stay, and no finished run is written again
                shutil.rmtree(self.path / folder, ignore_errors=True)
            save_share(share, self.path / "share.partial")
            durable.commit_folder(self.path / "share.partial", self.path / "share")

    @property
    def has_share(self) -> bool:
        """Whether there is a model share. A participant that was lost for good, for example, has none."""
        return (self.path / "share" / "manifest.json").exists()

    def load_share(self) -> ModelShare:
        return load_share(self.path / "share", of_run=True)

    def transcript(self, owner: PartyName, record: str, new: bool = False) -> Transcript:
        """The transcript of `owner` in this run, recorded as the job requires.

        `new`: of a new attempt. It takes the place of an earlier attempt's transcript when the attempt begins.
        """
        folder = self.path / TRANSCRIPT
        if new and folder.exists():
            folder = self.path / PROPOSED
            with keeping("the transcript cannot be written"):
                self._set_aside(PROPOSED)  # of an attempt that was refused
                durable.make_folder(folder)
        return Transcript(owner, None if record == "none" else folder, "payload" if record == "payload" else "types")

    @property
    def transcripts(self) -> list[Path]:
        """The transcripts of all attempts, and of one that has not begun."""
        found = (*self.earlier_transcripts, self.path / TRANSCRIPT, self.path / PROPOSED)
        return [path for path in found if path.exists()]

    @property
    def earlier_transcripts(self) -> list[Path]:
        """The transcripts of earlier attempts, oldest first."""
        found = {path.suffix[1:]: path for path in self.path.glob(f"{TRANSCRIPT}.*")}
        return [found[number] for number in sorted(filter(str.isdecimal, found), key=int)]

    def _set_aside(self, name: str) -> None:
        if (self.path / name).exists():
            last = max((int(path.suffix[1:]) for path in self.earlier_transcripts), default=0)
            durable.commit_folder(self.path / name, self.path / f"{TRANSCRIPT}.{last + 1}")

    def add_metric(self, result: RoundResult) -> None:
        with keeping(f"{METRICS} cannot be written"):
            durable.append(self.path / METRICS, json.dumps(vars(result)) + "\n", flush=False)

    @property
    def metrics(self) -> list[RoundResult]:
        """The results of all rounds, at the driver; a round that was repeated after an interruption counts once."""
        try:
            lines = (self.path / METRICS).read_text(encoding="utf-8").splitlines()
            found = [RoundResult(**json.loads(line)) for line in lines]
        except OSError:
            return []
        except (ValueError, TypeError):
            raise UnreadableFile(f"{METRICS} in {self.path} is damaged") from None
        return list({each.number: each for each in found}.values())

    @property
    def rounds(self) -> int:
        """The number of rounds that the active party has stored."""
        return next((len(each.history) for each in self.checkpoints.kept()), 0)

    def _write(self, name: str, content: bytes) -> None:
        with keeping(f"{name} cannot be written"):
            durable.replace_file(self.path / name, content)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _other_rows() -> NothingToResume:
    return NothingToResume(
        "the common rows have changed since the job began",
        "run train without --resume at the driver: training starts at the first round",
        public=True,
    )


def date_text(seconds: Any) -> str | None:
    """A time in seconds since 1970, in the local time zone; None if it is not known, or is no time."""
    try:
        return None if seconds is None else datetime.fromtimestamp(float(seconds)).isoformat(" ", "seconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def list_runs(runs: Path) -> Iterator[RunFolder]:
    """All runs in a party's folder, newest first."""
    return (run for run, _ in stamped_runs(runs))


def stamped_runs(runs: Path) -> list[tuple[RunFolder, FileStamp]]:
    """All runs in a party's folder with the stamps of their statuses, newest first."""
    try:
        with os.scandir(runs) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except FileNotFoundError:
        return []
    stamps = ((runs / name, file_stamp(runs / name / STATUS)) for name in names)
    found = [(RunFolder(folder), stamp) for folder, stamp in stamps if stamp is not None]
    return sorted(found, key=lambda each: -each[1][0])


# --- the messages of a run ------------------------------------------------------------------------------------------


def read_exchanges(run: Path) -> tuple[PartyName, list[Exchange]]:
    """The owner of a run and its messages, in the order in which message types first occurred.

    `run` is a run folder, or a transcript folder in it, such as that of an earlier attempt. Raises `UnreadableFile` if
    it has no readable transcript.
    """
    folder, transcript = _transcript_of(run)
    owner = RunFolder(folder).status.get("party")
    if not isinstance(owner, str):
        raise UnknownRun(f"{run} is not the folder of a run")
    if not (transcript / ENTRIES).exists():
        raise UnreadableFile(
            f"the run in {folder} has no transcript", 'a transcript is recorded unless the job has record="none"'
        )
    found = Exchanges(owner, roles_of(folder))
    for entry in read_transcript(transcript):
        found.add(entry)
    return owner, found.totals


class Exchanges:
    """Adds up the messages of a run, given its owner and the roles of all parties."""

    def __init__(self, owner: PartyName, roles: Mapping[PartyName, str]) -> None:
        self._owner, self._roles = owner, roles
        self._found: dict[tuple[PartyName, PartyName, str], tuple[int, int, tuple[tuple[str, str], ...]]] = {}

    def add(self, entry: Entry) -> None:
        ends = (self._owner, entry.peer) if entry.direction == "sent" else (entry.peer, self._owner)
        key = (*ends, entry.message)
        count, size, reveals = self._found.get(key, (0, 0, ()))
        reveals = tuple(dict.fromkeys((*reveals, *_revealed_to(ends[1], self._roles, entry.reveals))))
        self._found[key] = count + 1, size + entry.size, reveals

    @property
    def totals(self) -> list[Exchange]:
        """In the order in which message types first occurred."""
        return [Exchange(*key, *value) for key, value in self._found.items()]


def _revealed_to(
    receiver: PartyName, roles: Mapping[PartyName, str], reveals: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """What a message reveals to its receiver; if it is for other roles of the job, what these learn from it."""
    own = roles.get(receiver)
    for what, role in reveals:
        if role == own:
            yield what, receiver
        elif not roles or (role in roles.values() and not any(each == own for _, each in reveals)):
            yield what, role


def read_entries(run: Path) -> Iterator[Entry]:
    """The individual messages, from the same folders as `read_exchanges`."""
    return read_transcript(_transcript_of(run)[1])


def _transcript_of(run: Path) -> tuple[Path, Path]:
    """The run folder, and the folder of the transcript."""
    return (run.parent, run) if (run / ENTRIES).exists() else (run, run / TRANSCRIPT)


def roles_of(folder: Path) -> Mapping[PartyName, str]:
    """The role of each party, as in message declarations; empty if the job cannot be read."""
    try:
        job = load_job(folder / JOB)
    except VeilBoostError:
        return {}
    return {name: job.role_of(name) for name in job.parties}
