"""Backup and restore of a party's state: its settings, certificates, runs and ledger, in one tar file.

The last member of the file is a manifest with the digest of every other one. Nothing is restored before all digests are
verified, and nothing that exists is overwritten. The ledger is copied last, so that it has every release of the runs,
and is restored first, marked as possibly incomplete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from veilboost import __version__, durable
from veilboost.durable import Locks
from veilboost.errors import FolderLocked, NewerFormat, UnknownRun, UnreadableFile, UnusableBackup
from veilboost.party.identity import refuse_to_overwrite
from veilboost.party.precompute import PREPARED
from veilboost.party.runs import KEY, TABLE_KEY, RunFolder, list_runs
from veilboost.party.settings import PartySettings
from veilboost.party.status import DAEMON_LOCK
from veilboost.privacy.event import Event, event_from_dict
from veilboost.privacy.ledger import Ledger

FORMAT = 1
_MANIFEST, _SETTINGS, _LEDGER, _RUNS = "manifest.json", "settings.toml", "ledger.sqlite", "runs"
_LARGEST_MANIFEST = 1 << 28


@dataclass
class Saved:
    """What a backup contains."""

    files: dict[str, str] = field(default_factory=dict[str, str])  # their digests
    runs: list[str] = field(default_factory=list[str])
    running: list[str] = field(default_factory=list[str])  # of these the last checkpoint
    ledger_rows: int = 0


@dataclass
class Restored:
    """What a restore has written, and what existed and was kept."""

    made: str
    written: list[str] = field(default_factory=list[str])
    kept: list[str] = field(default_factory=list[str])


class _Hashed:
    """A file whose content is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self.digest.update(content)
        return content


def back_up(settings: PartySettings, config: Path, out: Path, *, with_keys: bool = False) -> Saved:
    """Write a backup of a party, which may be running; a job that runs is saved as of its last checkpoint.

    `with_keys`: with the private key of the certificate, the keys of jobs and prepared results. Passphrases and the
    storage key are never included.
    """
    saved = Saved()
    refuse_to_overwrite([out], force=False)
    with (
        durable.replacing(out, overwrite=False) as temporary,
        tarfile.open(temporary, "w:gz" if out.name.endswith("gz") else "w") as archive,
        tempfile.TemporaryDirectory() as folder,
    ):
        _add(archive, saved, _SETTINGS, config)
        for name, path in _certificates(settings, with_keys).items():
            _add(archive, saved, name, path)
        for run in sorted(list_runs(settings.runs), key=lambda run: run.path.name):
            _add_run(archive, saved, run, with_keys)
        for path in sorted((settings.runs / PREPARED).glob("[!.]*")) if with_keys else ():
            _add(archive, saved, f"{PREPARED}/{path.name}", path)
        copy = Path(folder) / _LEDGER
        saved.ledger_rows = Ledger(settings.ledger_file).copy_to(copy).rows
        _add(archive, saved, _LEDGER, copy)
        about = {"format": FORMAT, "release": __version__, "party": settings.name, "files": saved.files}
        manifest, made = Path(folder) / _MANIFEST, datetime.now(UTC).isoformat(" ", "seconds")
        manifest.write_text(json.dumps({**about, "made": made}))
        _add(archive, Saved(), _MANIFEST, manifest)
    return saved


def _certificates(settings: PartySettings, with_keys: bool) -> dict[str, Path]:
    files = settings.certificates
    found = {"cert": files.cert, "ca": files.ca, "revoked": files.revoked, "key": files.key if with_keys else None}
    return {f"certificates/{name}": path for name, path in found.items() if path is not None}


def _add_run(archive: tarfile.TarFile, saved: Saved, run: RunFolder, with_keys: bool) -> None:
    """Add the files of a run. Each was written atomically or only grows; a checkpoint is one file."""
    locks = Locks()
    try:
        locks.take(run.lock, "a backup")
        saved.runs.append(run.path.name)
    except FolderLocked:
        saved.running.append(run.path.name)
    try:
        for path in sorted(run.path.rglob("*")):
            place = path.relative_to(run.path)
            hidden = any(part.startswith(".") or part.endswith(durable.PARTIAL) for part in place.parts)
            if path.is_file() and not hidden and (with_keys or path.name not in (KEY, TABLE_KEY)):
                with suppress(FileNotFoundError):  # a job that runs has removed it since
                    _add(archive, saved, f"{_RUNS}/{run.path.name}/{place.as_posix()}", path)
    finally:
        locks.release(run.lock)


def _add(archive: tarfile.TarFile, saved: Saved, name: str, path: Path) -> None:
    with path.open("rb") as file:
        info, about, hashed = tarfile.TarInfo(name), os.fstat(file.fileno()), _Hashed(file)
        # A file that grows is saved as it is now.
        info.size, info.mode, info.mtime = about.st_size, about.st_mode & 0o777, int(about.st_mtime)
        archive.addfile(info, cast(Any, hashed))
    saved.files[name] = hashed.digest.hexdigest()


def restore(settings: PartySettings, file: Path) -> Restored:
    """Restore what is missing of a party from its backup. Its daemon must not run.

    The ledger of the party is kept if it has all rows of the backup's; otherwise the backup's replaces it, and books
    nothing until it is reconciled.
    """
    locks, lock = Locks(), settings.runs / DAEMON_LOCK
    locks.take(lock, "a restore")
    try:
        about = _verified(file)
        if about["party"] != settings.name:
            raise UnusableBackup(f"{file} is a backup of {about['party']}, not of {settings.name}")
        found = Restored(about["made"])
        with tempfile.TemporaryDirectory(dir=settings.runs, prefix=".restore-") as folder:
            _extract(file, Path(folder))
            _install(settings, Path(folder), found)
        return found
    finally:
        locks.release(lock)


def restore_settings(file: Path, config: Path) -> None:
    """Write the settings in a backup to a new file."""
    _verified(file)
    for member, content in _members(file):
        if member.name == _SETTINGS:
            durable.replace_file(config, content.read(), overwrite=False)


def _install(settings: PartySettings, folder: Path, found: Restored) -> None:
    new = Ledger(settings.ledger_file).restore(folder / _LEDGER, found.made)
    (found.written if new else found.kept).append(str(settings.ledger_file))
    single = _certificates(settings, with_keys=True)
    single |= {f"{PREPARED}/{path.name}": settings.runs / PREPARED / path.name for path in folder.glob(f"{PREPARED}/*")}
    single |= {f"{_RUNS}/{path.name}": settings.runs / path.name for path in sorted(folder.glob(f"{_RUNS}/*"))}
    for name, target in single.items():
        if target.exists():
            found.kept.append(str(target))
        elif (folder / name).exists():
            durable.make_folder(target.parent)
            shutil.move(folder / name, target)  # a rename, unless the target is on another disk
            found.written.append(str(target))


def _verified(file: Path) -> dict[str, Any]:
    """The manifest of a backup whose files are those that it lists."""
    digests: dict[str, str] = {}
    manifest = b""
    try:
        for member, content in _members(file):
            hashed = _Hashed(content)
            if member.name == _MANIFEST and member.size <= _LARGEST_MANIFEST:
                manifest = hashed.read()
            elif member.name in digests or manifest:
                raise UnusableBackup(f"{file} is damaged: {member.name} is in a wrong place")
            else:
                while hashed.read(1 << 20):
                    pass
                digests[member.name] = hashed.digest.hexdigest()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UnusableBackup(f"{file} cannot be read ({type(error).__name__})") from None
    try:
        about: dict[str, Any] = json.loads(manifest)
        files, version, _ = about["files"], int(about["format"]), (about["party"], about["made"])
    except (ValueError, KeyError, TypeError):
        raise UnusableBackup(f"{file} is no backup, or is incomplete") from None
    if version > FORMAT:
        raise NewerFormat(
            f"{file} has backup format {version} of VeilBoost {about.get('release')}; this release reads formats up to "
            f"{FORMAT}"
        )
    wrong = sorted(name for name in {*files, *digests} if files.get(name) != digests.get(name))
    if wrong or _LEDGER not in files:
        raise UnusableBackup(f"{file} is damaged: {(wrong or [_LEDGER])[0]} is not what was saved")
    return about


def _members(file: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """The files in a backup, one after the other. Only plain files with plain names are accepted."""
    with tarfile.open(file) as archive:
        for member in archive:
            place = PurePosixPath(member.name)
            content = archive.extractfile(member) if member.isreg() else None
            if content is None or place.is_absolute() or ".." in place.parts or "\\" in member.name:
                raise UnusableBackup(f"{file} is no backup: it contains {member.name!r}")
            yield member, content


def _extract(file: Path, folder: Path) -> None:
    for member, content in _members(file):
        target = folder / member.name
        durable.make_folder(target.parent)
        with durable.replacing(target) as temporary:
            with temporary.open("wb") as written:
                shutil.copyfileobj(content, written)
            temporary.chmod(member.mode & 0o777)


# --- releases that a restored ledger lacks --------------------------------------------------------------------------


def known_releases(settings: PartySettings, others: Sequence[Path] = ()) -> list[tuple[str, Event]]:
    """The releases that the party's run folders, and other copies of its ledger, show."""
    found: list[tuple[str, Event]] = []
    for run in list_runs(settings.runs):
        with suppress(UnknownRun):  # the job has not ended
            kept: Mapping[str, Any] = run.ledger
            found += [(str(kept["job"]), event_from_dict(event)) for event in kept["events"]]
    for path in others:
        if not path.exists():
            raise UnreadableFile(f"the ledger {str(path)!r} does not exist")
        found += Ledger(path).releases()
    return found
