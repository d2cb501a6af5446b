"""How long a party keeps its files, and what it holds about one person. The ledger is never touched."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veilboost import durable
from veilboost.align.ids import canonical_ids
from veilboost.durable import Locks, holder, keeping
from veilboost.errors import FolderLocked, InvalidParameter, VeilBoostError
from veilboost.logs import EventLogger
from veilboost.party.approvals import APPROVALS, list_proposals
from veilboost.party.deployment_folder import INDEX, LIVE, all_folders, list_deployments
from veilboost.party.job import read_job
from veilboost.party.precompute import IDS, PREPARED
from veilboost.party.runs import KEY, STATUS, RunFolder, list_runs
from veilboost.party.settings import PartySettings
from veilboost.wire.transcript import ENTRIES, PAYLOADS

_LOG = EventLogger(__name__)
RUNS, TRANSCRIPTS, KEYS = WHAT = ("runs", "transcripts", "keys")
PREDICTIONS = "predictions"
_DAY = 86_400.0  # seconds


@dataclass(frozen=True)
class Expired:
    """Something that was kept long enough."""

    what: str
    path: Path
    days: float  # since its last use
    size: int


def find_expired(settings: PartySettings, older_than: float | None = None, what: str | None = None) -> list[Expired]:
    """What the settings, or a number of days, allow to delete; of jobs that do not run."""
    if what not in (None, *WHAT):
        raise InvalidParameter(f"{what!r} is not kept", f"use {', '.join(WHAT)}")
    kept = settings.retention
    limits = {RUNS: kept.runs_days, TRANSCRIPTS: kept.transcripts_days, KEYS: kept.keys_days}
    limits = {kind: days if older_than is None else older_than for kind, days in limits.items() if what in (None, kind)}
    found: list[Expired] = []

    def consider(kind: str, path: Path, used: float) -> bool:
        days, limit = (time.time() - used) / _DAY, limits.get(kind)
        if limit is None or days < limit or not path.exists():
            return False
        found.append(Expired(kind, path, days, sum(each.stat().st_size for each in _files(path))))
        return True

    deployments = list_deployments(settings)
    deployed = {each.status.run for each in deployments if each.status.now == LIVE}
    for each in deployments:
        status = each.status
        if status.now == LIVE or not consider(RUNS, each.path, status.ended or status.until):
            for path in each.trails:
                consider(TRANSCRIPTS, path, path.stat().st_mtime)
    for run in list_runs(settings.runs):
        used = None if run.path.name in deployed else _last_use(run)
        if used is not None and holder(run.lock) is None and not consider(RUNS, run.path, used):
            for path in (*run.transcripts, run.path / PREDICTIONS):
                consider(TRANSCRIPTS, path, used)
            consider(KEYS, run.path / KEY, used)
    for each in list_proposals(settings):
        if each.ended_at is not None:
            consider(RUNS, settings.runs / APPROVALS / each.id, each.ended_at)
    for path in sorted((settings.runs / PREPARED).glob("[!.]*")):
        consider(KEYS, path, path.stat().st_mtime)
    return found


def delete_expired(settings: PartySettings, expired: Sequence[Expired]) -> list[Expired]:
    """Delete what was found, except of jobs that have been started since. Returns what was deleted."""
    return [each for each in expired if _delete(settings, each.path)]


def apply_retention(settings: PartySettings) -> list[Expired]:
    """Delete what the settings do not keep any longer. The daemon calls this every hour."""
    deleted = delete_expired(settings, find_expired(settings))
    for each in deleted:
        _LOG.info("file_deleted", f"deleted {each.path}: not used for {each.days:.0f} days", days=round(each.days))
    return deleted


def _last_use(run: RunFolder) -> float | None:
    """When a job last wrote its status or a prediction used its model; None if its owner has to look at it."""
    try:
        updated = float(run.status.get("updated", 0.0))
    except VeilBoostError:
        return None
    used = run.path / PREDICTIONS / ENTRIES
    return max(updated, used.stat().st_mtime) if used.exists() else updated


def _delete(settings: PartySettings, path: Path) -> bool:
    """Delete a file or folder of a run, or a prepared file; False if its job runs."""
    name, locks = path.relative_to(settings.runs).parts[0], Locks()
    run = RunFolder(settings.runs / name)
    with keeping(f"{path} cannot be deleted"):
        try:
            locks.take(run.lock, f"deleting files of {name}")
        except FolderLocked:
            return False
        try:
            # The status last: a run of which only a part was deleted can be found again.
            for each in sorted(_files(path), key=lambda each: each.name == STATUS):
                durable.remove(each)
            if path.is_dir():
                shutil.rmtree(path)
        finally:
            locks.release(run.lock)
    return True


def _files(path: Path) -> list[Path]:
    return [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]


# --- what is held about one person ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trace:
    """A place that holds something about a person, or may: then `certain` is false.

    `keep` says why it cannot be deleted; it is empty if it can.
    """

    path: Path
    what: str
    keep: str = ""
    certain: bool = True


def find_person(settings: PartySettings, identifier: str) -> list[Trace]:
    """What this party holds about the person with this id, from its table and its runs.

    A run stores the positions of its rows. If the table has changed since, or the row is gone, the run counts as one
    that may have used it.
    """
    data = settings.own_data
    if data.id is None:
        raise InvalidParameter("the table has no id column", "name it: id under [data] in the settings")
    row = _row_of(canonical_ids(data.load().ids), identifier)
    changed = time.time() if data.path is None else max(each.stat().st_mtime for each in _files(data.path))
    found: list[Trace] = []
    if row is not None:
        place = data.path or Path(data.uri or data.table)
        found.append(Trace(place, "a row of the table", "only you can change the table: delete the row there"))
    for run in list_runs(settings.runs):
        certain = row is not None and (run.path / STATUS).stat().st_mtime >= changed
        if row is None or not certain or _has_used(run, row):
            found += _traces(run, certain)
    for each in all_folders(settings):
        again = "delete the row, then run veilboost deployments rekey at the active party; or withdraw the deployment"
        if (each.path / INDEX).exists():
            found.append(Trace(each.path / INDEX, "digests of ids, under the key of the deployment", again, False))
        found += [Trace(path, "which rows were asked for, by slots", certain=False) for path in each.trails]
    prepared = (settings.runs / PREPARED).glob(f"*.{IDS}")
    found += [Trace(path, "the hashed ids of the table", certain=row is not None) for path in sorted(prepared)]
    return found


def delete_traces(settings: PartySettings, traces: Sequence[Trace]) -> list[Trace]:
    """Delete what can be deleted. Returns what was deleted; the rest belongs to a job that runs."""
    return [each for each in traces if not each.keep and _delete(settings, each.path)]


def _row_of(ids: list[bytes], identifier: str) -> int | None:
    text = canonical_ids(np.array([identifier]))[0]
    return ids.index(text) if text in ids else None


def _has_used(run: RunFolder, row: int) -> bool:
    """Whether a row of the table took part in a job; without an alignment it did, unless alignment had not ended."""
    if run.batches is not None:
        return any(bool((run.batch(number) == row).any()) for number in range(run.batches))
    try:
        return read_job(run.job_text).spec.setting == "horizontal" or run.status.get("state") == "finished"
    except VeilBoostError:
        return True


def _traces(run: RunFolder, certain: bool) -> Iterator[Trace]:
    for name, what, keep in (
        ("alignment", "the position of the row among the rows of the job", ""),
        ("checkpoint", "what is needed to resume the job: its trees, and at the active party scores of the rows", ""),
        (KEY, "the key of a job that stopped, which repeats its noise", ""),
        *((f"{path.name}/{PAYLOADS}", "messages about all rows of the job", "") for path in run.transcripts),
        (
            "share",
            "a model share trained on the row",
            "train a new model without the row, then delete this run and restart its services",
        ),
        ("service", "an encrypted model for users, trained on the row", "publish the new model, then delete this one"),
    ):
        if (run.path / name).exists():
            yield Trace(run.path / name, what, keep, certain)
