"""A job's folder at one party: its job, status, alignment, checkpoint, part, metrics and transcript."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost.boost.booster import Progress, RoundResult
from veilboost.errors import CheckpointFailed, JobExists, NothingToResume, UnknownRun
from veilboost.model.part import Part
from veilboost.model.store import load_part, save_part
from veilboost.types import Float64Array, Int64Array

KEY, LEDGER = "job.key", "ledger.json"
STATES = ("proposed", "aligning", "training", "finished", "failed", "cancelled")


class RunFolder:
    """Reads and writes one run. What cannot be written is `CheckpointFailed`: nothing that was kept is lost."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def create(runs: Path, name: str, *, replace: bool = False) -> RunFolder:
        """A folder for a new run; a finished one of the same name is never overwritten."""
        run = RunFolder(runs / name)
        if run.path.exists() and not replace:
            raise JobExists(f"there is a run {name!r} already")
        try:
            run.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            run.empty()
        except OSError as error:
            raise CheckpointFailed(f"the run folder cannot be made ({error.strerror})") from None
        return run

    @staticmethod
    def open(runs: Path, name: str) -> RunFolder:
        run = RunFolder(runs / name)
        if not (run.path / "status.json").exists():
            raise UnknownRun(f"there is no run {name!r} in {runs}")
        return run

    def empty(self) -> None:
        """Take away what an earlier attempt left: its rows and trees are not those of the next one.

        The transcript stays and grows: what left then has left.
        """
        for folder in ("checkpoint", "part"):
            if (self.path / folder).exists():
                shutil.rmtree(self.path / folder)
        for name in ("alignment.npy", "history.json", "metrics.jsonl", "cancel", "status.json", KEY, LEDGER):
            (self.path / name).unlink(missing_ok=True)

    # --- status and job ---------------------------------------------------------------------------------

    @property
    def status(self) -> dict[str, Any]:
        try:
            return cast(dict[str, Any], json.loads((self.path / "status.json").read_text()))
        except (OSError, ValueError):
            return {}

    def note(self, **changes: Any) -> None:
        """Change the status; the rest of it stays."""
        status = {**self.status, **changes, "updated": time.time()}
        self._write("status.json", json.dumps(status, indent=2).encode())

    @property
    def cancelled(self) -> bool:
        return (self.path / "cancel").exists()

    def cancel(self) -> None:
        self._write("cancel", b"")

    def clear_cancel(self) -> None:
        (self.path / "cancel").unlink(missing_ok=True)

    def save_job(self, text: str) -> None:
        self._write("job.toml", text.encode())

    @property
    def job_text(self) -> str:
        try:
            return (self.path / "job.toml").read_text()
        except OSError:
            raise UnknownRun(f"{self.path} holds no job") from None

    # --- privacy ----------------------------------------------------------------------------------------

    def save_key(self, key: bytes) -> None:
        """The secret from which this party's noise and masks in this job are drawn: for its owner's eyes only."""
        self._write(KEY, key, mode=0o600)

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
        """What this party released in this run."""
        try:
            return cast(dict[str, Any], json.loads((self.path / LEDGER).read_text()))
        except (OSError, ValueError):
            raise UnknownRun(
                f"{self.path} holds no {LEDGER}", "name a run's folder; the file is written when a job ends or stops"
            ) from None

    # --- alignment --------------------------------------------------------------------------------------

    def save_alignment(self, positions: Int64Array) -> None:
        """The common rows of this run. They may not change within it: the noise of a job is drawn for its rows."""
        kept = self.alignment
        if kept is not None and not np.array_equal(kept, positions):
            raise NothingToResume("the common rows have changed since the job began", "start it under another name")
        try:
            partial = self.path / "alignment.partial.npy"
            np.save(partial, positions, allow_pickle=False)
            partial.replace(self.path / "alignment.npy")
        except OSError as error:
            raise CheckpointFailed(f"the alignment cannot be written ({error.strerror})") from None

    @property
    def alignment(self) -> Int64Array | None:
        path = self.path / "alignment.npy"
        if not path.exists():
            return None
        try:
            positions: Any = np.load(path, allow_pickle=False)
        except (OSError, ValueError):
            return None
        return positions if positions.dtype == np.int64 and positions.ndim == 1 else None

    # --- checkpoints and parts --------------------------------------------------------------------------

    def save_checkpoint(self, part: Part, progress: Progress | None = None) -> None:
        """Keep a part as it stands; the active party adds margins and history, which the next round needs."""
        folder = self.path / "checkpoint"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            if progress is not None:
                trees = len(progress.trees)
                np.save(folder / f"margin-{trees}.npy", progress.margin, allow_pickle=False)
                self._write("history.json", json.dumps([list(vars(r).values()) for r in progress.history]).encode())
            save_part(part, folder)
            if progress is not None:  # the part's manifest is what counts; older margins go once it is there
                for old in folder.glob("margin-*.npy"):
                    if old.name != f"margin-{len(progress.trees)}.npy":
                        old.unlink()
        except OSError as error:
            raise CheckpointFailed(f"a checkpoint cannot be written ({error.strerror})") from None

    def load_checkpoint(self) -> Part | None:
        folder = self.path / "checkpoint"
        return load_part(folder) if (folder / "manifest.json").exists() else None

    def load_progress(self) -> tuple[Progress, Part] | None:
        """What the active party needs to go on; None where no tree was finished."""
        part = self.load_checkpoint()
        if part is None or part.skeleton is None:
            return None
        trees = part.skeleton.trees
        path = self.path / "checkpoint" / f"margin-{len(trees)}.npy"
        try:
            margin: Float64Array = np.load(path, allow_pickle=False)
            history = [RoundResult(*values) for values in json.loads((self.path / "history.json").read_text())]
        except (OSError, ValueError, TypeError) as error:
            raise NothingToResume(f"the checkpoint of {self.path.name!r} is not whole") from error
        rounds = len(trees) // part.skeleton.trees_per_round
        return Progress(list(trees), margin, history[:rounds]), part

    def save_part(self, part: Part) -> None:
        try:
            save_part(part, self.path / "part")
        except OSError as error:
            raise CheckpointFailed(f"the model part cannot be written ({error.strerror})") from None

    def load_part(self) -> Part:
        return load_part(self.path / "part")

    def add_metric(self, result: RoundResult) -> None:
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(vars(result)) + "\n")

    @property
    def rounds(self) -> int:
        """How many rounds the active party has kept."""
        try:
            return len(json.loads((self.path / "history.json").read_text()))
        except (OSError, ValueError):
            return 0

    def _write(self, name: str, content: bytes, mode: int = 0o666) -> None:
        partial = self.path / f".{name}.partial"
        try:
            partial.unlink(missing_ok=True)
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
            os.replace(partial, self.path / name)
        except OSError as error:
            raise CheckpointFailed(f"{name} cannot be written ({error.strerror})") from None


def list_runs(runs: Path) -> Iterator[RunFolder]:
    """All runs in a party's folder, the newest first."""
    found = [RunFolder(path.parent) for path in runs.glob("*/status.json")]
    return iter(sorted(found, key=lambda run: -float(run.status.get("updated", 0.0))))
