"""Files that only their owner may read: written whole or not at all, and never over another by accident."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from veilboost.errors import ExposedKey, UnreadableCertificate, WouldOverwrite

OTHERS = 0o077
LARGEST = 1 << 20


def make_private_folder(folder: Path) -> None:
    """Make a folder for its owner alone; one that is there already is left as it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def refuse_to_overwrite(files: Iterable[Path], force: bool) -> None:
    """Before the first of several files is written: none may be in the way."""
    for file in files:
        if not force and os.path.lexists(file):
            raise WouldOverwrite(f"{file} is there already")


def write_private(file: Path, content: bytes, *, force: bool = False) -> None:
    """Write a file of mode 0600. A reader sees the old content or the new, never a part.

    Raises
    ------
    WouldOverwrite
        The file is there and `force` is not said.
    OSError
        The system refuses.
    """
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # mode 0600 from the start
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        if force:
            os.replace(name, file)
            return
        try:
            os.link(name, file)  # unlike a rename, this fails if the file has come to be meanwhile
        except FileExistsError:
            raise WouldOverwrite(f"{file} is there already") from None
    finally:
        Path(name).unlink(missing_ok=True)


def read_public(file: Path) -> bytes:
    """The content of a certificate file, or a coded error."""
    return _read(file, private=False)


def read_private(file: Path) -> bytes:
    """The content of a private key's file, refused if anyone but its owner could have read it too."""
    return _read(file, private=True)


def _read(file: Path, *, private: bool) -> bytes:
    try:
        with file.open("rb") as opened:
            # The mode of what was opened, not of what the name may mean a moment later.
            mode = os.fstat(opened.fileno()).st_mode & 0o777
            if private and os.name == "posix" and mode & OTHERS:
                raise ExposedKey(f"{file} has mode {mode:04o}: users other than its owner may read or change it")
            content = opened.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise UnreadableCertificate(f"{file} cannot be read ({reason})") from None
    if len(content) > LARGEST:
        raise UnreadableCertificate(f"{file} is larger than a certificate or key ever is")
    return content
