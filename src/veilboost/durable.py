"""Changes of files that survive a crash: a reader finds the old state or the new one, also after a power failure.

Content is written to a temporary file in the same folder and flushed to the disk; then the file is renamed, and the
folder is flushed. A process that is killed leaves at most a temporary file, which `sweep` removes.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from veilboost.errors import CheckpointFailed, ExposedKey, FolderLocked, StateUnavailable, UnreadableCertificate

PARTIAL = ".partial"  # how the names of temporary files end
LARGEST = 1 << 20  # bytes of a certificate, a key or a passphrase
FileStamp = tuple[int, int]  # when a file changed last, and its size
_OTHERS = 0o077
_LONGEST_WRITE = 3600.0  # seconds


def file_stamp(file: Path) -> FileStamp | None:
    """Changes whenever the file does; None if it cannot be found."""
    try:
        about = os.stat(file)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


@contextmanager
def keeping(failure: str) -> Generator[None]:
    """Turn an `OSError` into `CheckpointFailed`, with its reason."""
    try:
        yield
    except OSError as error:
        raise CheckpointFailed(f"{failure} ({error.strerror or type(error).__name__})") from None


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Turn an `OSError` into `StateUnavailable`: it does not mean that the file is damaged. A missing file stays so."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StateUnavailable(f"{path} cannot be read now ({reason})") from error


@contextmanager
def replacing(path: Path, *, overwrite: bool = True) -> Generator[Path]:
    """A temporary file of mode 0600, which becomes `path` when the block ends and is removed if the block fails.

    Raises `FileExistsError` if the path exists and `overwrite` is false.
    """
    descriptor, name = tempfile.mkstemp(PARTIAL, f".{path.name}.", path.parent)
    os.close(descriptor)
    try:
        yield Path(name)
        _flush(name)
        if overwrite:
            os.replace(name, path)
        else:
            os.link(name, path)  # unlike a rename, this fails if the path exists
            os.unlink(name)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _flush_folder(path.parent)


def replace_file(path: Path, content: bytes, *, overwrite: bool = True) -> None:
    """Write a file of mode 0600."""
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(content)


def make_folder(folder: Path) -> None:
    """Create a folder, and those above it, that only their owner can access; an existing one is not changed.

    What is written into a new folder later survives a power failure only if the folder does.
    """
    for each in reversed((folder, *folder.parents)):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
            _flush_folder(each.parent)


def open_private(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Open a file for writing; a new one has mode 0600, whatever the umask."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600), **options)


def is_exposed(mode: int, owner: int) -> bool:
    """Whether others can access a private file. Its group may read a file of root, as of systemd's credentials."""
    return bool(mode & (_OTHERS & ~0o040 if owner == 0 != os.geteuid() else _OTHERS))


def read_small(file: Path, *, private: bool) -> bytes:
    """The content of a certificate or key. A private one is refused if users other than its owner could read it."""
    try:
        with file.open("rb") as opened:
            about = os.fstat(opened.fileno())  # of the opened file, not of the name, which may change
            mode = about.st_mode & 0o777
            if private and os.name == "posix" and is_exposed(mode, about.st_uid):
                raise ExposedKey(f"{file} has mode {mode:04o}: users other than its owner may read or change it")
            content = opened.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise UnreadableCertificate(f"{file} cannot be read ({reason})") from None
    if len(content) > LARGEST:
        raise UnreadableCertificate(f"{file} is too large for a certificate or key")
    return content


def append(path: Path, text: str, *, flush: bool) -> None:
    """Append to a file. Without `flush` the text survives a killed process, but not a power failure."""
    with open_private(path, "a") as file:
        file.write(text)
        if flush:
            file.flush()
            os.fsync(file.fileno())


def remove(*paths: Path) -> None:
    """Remove files of one folder; a missing file is no error."""
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in {path.parent for path in paths}:
        _flush_folder(folder)


def commit_folder(partial: Path, folder: Path) -> None:
    """Give a complete folder its name. Its files must have been written by this module."""
    os.rename(partial, folder)
    _flush_folder(folder.parent)


def sweep(folder: Path, seconds: float = 0.0) -> None:
    """Remove temporary files that killed processes left here, if they are older than this.

    0 is for the only writer of a folder.
    """
    for path in folder.glob(f".*{PARTIAL}"):
        with suppress(OSError):  # another process was faster
            if path.is_file() and time.time() - path.stat().st_mtime >= seconds:
                path.unlink()


def _flush(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        _flush(folder)


class Locks:
    """Locks of one owner, a driver or a daemon: no other owner gets them, in this or another process.

    The owner may take a lock several times and releases it as often. A lock ends with its process.
    """

    def __init__(self) -> None:
        self._held: dict[Path, tuple[int, int]] = {}  # descriptor, number of holders
        self._one = threading.Lock()

    def take(self, path: Path, reason: str) -> None:
        """Take the lock with this file. Raises `FolderLocked`, with the process that has it, its reason and since when.

        Temporary files in the same folder that are older than any write takes are removed.
        """
        with self._one:
            descriptor, holders = self._held.get(path, (-1, 0))
            self._held[path] = (descriptor if holders else _locked(path, reason)), holders + 1
        sweep(path.parent, _LONGEST_WRITE)

    def release(self, path: Path) -> None:
        """Release the lock; no error if it is not held any more."""
        with self._one:
            descriptor, holders = self._held.pop(path, (-1, 0))
            if holders > 1:
                self._held[path] = descriptor, holders - 1
            elif holders:
                with suppress(OSError):  # the file alone is no lock
                    path.unlink()  # before the lock ends, so that nobody else's file is removed
                os.close(descriptor)


def holder(path: Path) -> str | None:
    """The process that holds the lock with this file, its reason and since when; None if nobody does."""
    import fcntl

    owner = ""
    try:
        with path.open("rb") as file:
            owner = file.read(1000).decode(errors="replace")  # empty while a process takes the lock
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
    except BlockingIOError:
        return owner
    except OSError:
        return None


def _locked(path: Path, reason: str) -> int:
    import fcntl  # not on all systems; only drivers and daemons lock

    make_folder(path.parent)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):  # its last holder has removed it: there may be a new file
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    os.truncate(descriptor, 0)
                    since = datetime.now().astimezone().isoformat(" ", "seconds")
                    os.write(descriptor, f"the process {os.getpid()} ({reason}, since {since})".encode())
                    return descriptor
        except BlockingIOError:
            owner = os.pread(descriptor, 1000, 0).decode(errors="replace") or "a process that starts"
            os.close(descriptor)
            raise FolderLocked(f"{owner} has locked {path}") from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
