"""A job's run folder at one party: job, status, alignment, checkpoint, share, metrics, and transcript."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost.boost.booster import Progress, RoundResult
from veilboost.engine.shards import ShardedArray
from veilboost.errors import (
    AgainstPolicy,
    CheckpointFailed,
    JobExists,
    NothingToResume,
    UnknownRun,
    UnreadableFile,
    VeilBoostError,
)
from veilboost.model.share import ModelShare
from veilboost.model.store import load_share, save_share
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import load_job
from veilboost.types import Float64Array, Int64Array, PartyName
from veilboost.wire.transcript import ENTRIES, Entry, Exchange, Transcript, read_transcript

KEY, LEDGER, TRANSCRIPT = "job.key", "ledger.json", "transcript"


@contextmanager
def keeping(failure: str) -> Generator[None]:
    """Turn an `OSError` into `CheckpointFailed`, with its reason."""
    try:
        yield
    except OSError as error:
        raise CheckpointFailed(f"{failure} ({error.strerror})") from None


class RunFolder:
    """Reads and writes one run. Failed writes raise `CheckpointFailed` and lose nothing that was stored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def create(runs: Path, name: str, *, replace: bool = False) -> RunFolder:
        """Create the folder of a new run. A finished run of the same name is never overwritten."""
        run = RunFolder(runs / name)
        if run.path.exists() and not replace:
            raise JobExists(f"there is already a run {name!r}")
        with keeping("the run folder cannot be created"):
            run.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            run.empty()
        return run

    @staticmethod
    def open(runs: Path, name: str) -> RunFolder:
        run = RunFolder(runs / name)
        if not (run.path / "status.json").exists():
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

    def empty(self) -> None:
        """Remove what an earlier attempt left: its rows and trees do not belong to the next one.

        The transcript stays and grows: data that was sent then remains sent.
        """
        for folder in ("alignment", "alignment.partial", "checkpoint", "share"):
            if (self.path / folder).exists():
                shutil.rmtree(self.path / folder)
        for name in ("history.json", "metrics.jsonl", "cancel", "status.json", KEY, LEDGER):
            (self.path / name).unlink(missing_ok=True)

    # --- status and job ---------------------------------------------------------------------------------

    @property
    def status(self) -> dict[str, Any]:
        try:
            return cast(dict[str, Any], json.loads((self.path / "status.json").read_text()))
        except (OSError, ValueError):
            return {}

    def note(self, **changes: Any) -> None:
        """Update the status; other entries stay."""
        status = {**self.status, **changes, "updated": time.time()}
        self._write("status.json", json.dumps(status, indent=2).encode())

    @property
    def cancelled(self) -> bool:
        return (self.path / "cancel").exists()

    def cancel(self) -> None:
        self._write("cancel", b"")

    def save_job(self, text: str) -> None:
        self._write("job.toml", text.encode())

    @property
    def job_text(self) -> str:
        try:
            return (self.path / "job.toml").read_text()
        except OSError:
            raise UnknownRun(f"{self.path} contains no job") from None

    # --- privacy ----------------------------------------------------------------------------------------

    def save_key(self, key: bytes) -> None:
        """Store the secret from which this party's noise and masks in this job are drawn, for a job that resumes."""
        self._write(KEY, key, mode=0o600)

    def forget_key(self) -> None:
        """Remove the key at the end of the job: later readers can neither decrypt messages nor subtract noise."""
        with keeping(f"{KEY} cannot be removed"):
            for name in (KEY, f".{KEY}.partial"):
                (self.path / name).unlink(missing_ok=True)
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @property
    def key(self) -> bytes | None:
        try:
            return (self.path / KEY).read_bytes()
        except OSError:
            return None

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
            partial.mkdir(exist_ok=True, mode=0o700)
            np.save(partial / f"{number}.npy", positions, allow_pickle=False)

    def end_alignment(self, batches: int) -> None:
        """All batches are saved: from now on the alignment is complete."""
        if self.batches is not None:
            if self.batches != batches:
                raise _other_rows()
            return
        with keeping("the alignment cannot be written"):
            (self.path / "alignment.partial").rename(self.path / "alignment")

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
        try:
            positions: Any = np.load(self.path / "alignment" / f"{number}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError):
            positions = None
        if positions is None or positions.dtype != np.int64 or positions.ndim != 1:
            raise NothingToResume(f"the alignment of {self.path.name!r} is incomplete")
        return positions

    @property
    def alignment(self) -> Int64Array | None:
        return None if self.batches is None else np.concatenate([self.batch(number) for number in range(self.batches)])

    # --- checkpoints and shares --------------------------------------------------------------------------

    def save_checkpoint(self, share: ModelShare, progress: Progress | None = None) -> None:
        """Store a share in progress; the active party adds margins and history, which the next round needs."""
        folder = self.path / "checkpoint"
        with keeping("a checkpoint cannot be written"):
            folder.mkdir(mode=0o700, exist_ok=True)
            if progress is not None:
                trees = len(progress.trees)
                _save_margin(folder / f"margin-{trees}.npy", progress.margin)
                self._write("history.json", json.dumps([list(vars(r).values()) for r in progress.history]).encode())
            save_share(share, folder)
            if progress is not None:  # the share's manifest decides; older margins are removed once it exists
                for old in folder.glob("margin-*.npy"):
                    if old.name != f"margin-{len(progress.trees)}.npy":
                        old.unlink()

    def load_checkpoint(self) -> ModelShare | None:
        folder = self.path / "checkpoint"
        return load_share(folder, of_run=True) if (folder / "manifest.json").exists() else None

    def load_progress(self) -> tuple[Progress, ModelShare] | None:
        """What the active party needs to continue; None if no tree was finished."""
        share = self.load_checkpoint()
        if share is None or share.skeleton is None:
            return None
        trees = share.skeleton.trees
        path = self.path / "checkpoint" / f"margin-{len(trees)}.npy"
        try:
            margin: Float64Array = np.load(path, mmap_mode="c", allow_pickle=False).view(np.ndarray)
            history = [RoundResult(*values) for values in json.loads((self.path / "history.json").read_text())]
        except (OSError, ValueError, TypeError) as error:
            raise NothingToResume(f"the checkpoint of {self.path.name!r} is incomplete") from error
        rounds = len(trees) // share.skeleton.trees_per_round
        return Progress(list(trees), margin, history[:rounds]), share

    def save_share(self, share: ModelShare) -> None:
        with keeping("the model share cannot be written"):
            save_share(share, self.path / "share")

    def load_share(self) -> ModelShare:
        return load_share(self.path / "share", of_run=True)

    def transcript(self, owner: PartyName, record: str) -> Transcript:
        """The transcript of `owner` in this run, recorded as the job requires."""
        folder = None if record == "none" else self.path / TRANSCRIPT
        return Transcript(owner, folder, "payload" if record == "payload" else "types")

    def add_metric(self, result: RoundResult) -> None:
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(vars(result)) + "\n")

    @property
    def rounds(self) -> int:
        """The number of rounds that the active party has stored."""
        try:
            return len(json.loads((self.path / "history.json").read_text()))
        except (OSError, ValueError):
            return 0

    def _write(self, name: str, content: bytes, mode: int = 0o666) -> None:
        partial = self.path / f".{name}.partial"
        with keeping(f"{name} cannot be written"):
            partial.unlink(missing_ok=True)
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
            os.replace(partial, self.path / name)


def _other_rows() -> NothingToResume:
    return NothingToResume(
        "the common rows have changed since the job began",
        "run train without --resume at the driver: training starts at the first round",
        public=True,
    )


def _save_margin(path: Path, margin: Float64Array) -> None:
    """Save an array (K, rows); of a sharded array, one shard is in memory at a time."""
    if not isinstance(margin, ShardedArray):
        np.save(path, margin, allow_pickle=False)
        return
    whole = np.lib.format.open_memmap(path, "w+", margin.dtype, margin.shape)
    for share, (begin, end) in zip(margin.chunks(), margin.shards.ranges, strict=True):
        whole[:, begin:end] = share
    whole.flush()


def list_runs(runs: Path) -> Iterator[RunFolder]:
    """All runs in a party's folder, newest first."""
    found = [RunFolder(path.parent) for path in runs.glob("*/status.json")]
    return iter(sorted(found, key=lambda run: -float(run.status.get("updated", 0.0))))


# --- the messages of a run ------------------------------------------------------------------------------------------


def read_exchanges(run: Path) -> tuple[PartyName, list[Exchange]]:
    """The owner of a run and its messages, in the order in which message types first occurred.

    `run` is a run folder, or the transcript folder in it. Raises `UnreadableFile` if it has no readable transcript.
    """
    folder = run.parent if not (run / TRANSCRIPT).exists() and (run / ENTRIES).exists() else run
    owner = RunFolder(folder).status.get("party")
    if not isinstance(owner, str):
        raise UnknownRun(f"{run} is not the folder of a run")
    if not (folder / TRANSCRIPT / ENTRIES).exists():
        raise UnreadableFile(
            f"the run in {folder} has no transcript", 'a transcript is recorded unless the job has record="none"'
        )
    roles = _roles(folder)
    found: dict[tuple[PartyName, PartyName, str], tuple[int, int, tuple[tuple[str, str], ...]]] = {}
    for entry in read_transcript(folder / TRANSCRIPT):
        sender, receiver = (owner, entry.peer) if entry.direction == "sent" else (entry.peer, owner)
        count, size, reveals = found.get((sender, receiver, entry.message), (0, 0, ()))
        if not count:
            reveals = tuple(
                (what, receiver if roles.get(receiver) == role else str(role)) for what, role in entry.reveals
            )
        found[sender, receiver, entry.message] = count + 1, size + entry.size, reveals
    return owner, [Exchange(*key, *value) for key, value in found.items()]


def read_entries(run: Path) -> Iterator[Entry]:
    """The individual messages, from the same folders as `read_exchanges`."""
    return read_transcript(run / TRANSCRIPT if (run / TRANSCRIPT).exists() else run)


def _roles(folder: Path) -> Mapping[PartyName, str]:
    """The role of each party, as in message declarations; empty if the job cannot be read."""
    try:
        job = load_job(folder / "job.toml")
    except VeilBoostError:
        return {}
    return {name: job.role_of(name) for name in job.parties}
