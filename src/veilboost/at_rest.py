"""Files of a party that are encrypted on its disk, if its settings name a storage key.

A file begins with a salt, from which and the storage key its own key is derived (HKDF). Its content is sealed in pieces
(AES-256-GCM), each bound to its place: pieces can be read alone, and a file can grow. Readers recognise a sealed file,
so that a folder may contain both kinds.
"""

from __future__ import annotations

import io
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from veilboost import durable
from veilboost.errors import WrongStorageKey

VARIABLE = "VEILBOOST_STORAGE_KEY_FILE"  # for readers that have no settings
LEAST_KEY = 32  # bytes of a key file
PIECE = 16 << 20  # bytes
_MAGIC, _SALT, _NONCE, _TAG = b"VBSEAL1\n", 16, 12, 16
_HEADER = len(_MAGIC) + _SALT
_key_files: dict[str, Path] = {}  # by folder


def protect(folder: Path, key_file: Path | None) -> None:
    """From now on this process encrypts what it writes below the folder, with the key in this file; None: it does not.

    The file is read when it is needed.
    """
    _key_files.pop(os.path.realpath(folder), None)
    if key_file is not None:
        _key_files[os.path.realpath(folder)] = key_file


def write(path: Path, content: bytes) -> None:
    """Write a private file atomically."""
    with durable.replacing(path) as temporary, writing(temporary, path) as file:
        file.write(content)


def read(path: Path) -> bytes:
    """The content of a file."""
    with opened(path) as file:
        return file.read()


@contextmanager
def writing(temporary: Path, path: Path) -> Generator[BinaryIO]:
    """A file with random access that becomes the content of `path`. If it is encrypted, it is in memory until then."""
    key_file = _key_file(path)
    if key_file is None:
        with temporary.open("wb") as file:
            yield file
        return
    with io.BytesIO() as content:
        yield content
        header = _MAGIC + os.urandom(_SALT)
        temporary.write_bytes(header + _Cipher(path, key_file, header).seal(content.getvalue(), _HEADER))


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """A file to read from; an encrypted one is decrypted into memory."""
    with path.open("rb") as file:
        cipher = _cipher_of(path, file)
        if cipher is None:
            yield file
            return
        sealed = os.fstat(file.fileno()).st_size - _HEADER
        size = sealed - max(1, -(-sealed // (PIECE + _NONCE + _TAG))) * (_NONCE + _TAG)
        if size < 0:
            raise WrongStorageKey(f"{path} is cut short", "restore it from a backup")
        with io.BytesIO(cipher.unseal(file, _HEADER, size)) as content:
            yield content


class Appender:
    """A private file that grows by records, which are read alone: `tell` before a record is written is its place."""

    def __init__(self, path: Path) -> None:
        self._file, key_file = durable.open_private(path, "a+b"), _key_file(path)
        self._file.seek(0)
        header: bytes = self._file.read(_HEADER)
        if header and header.startswith(_MAGIC) != (key_file is not None):
            self._file.close()
            raise WrongStorageKey(
                f"{path} was begun {'without' if key_file else 'with'} encryption",
                "change name in the job file, or delete the transcript",
            )
        if key_file is not None and not header:
            header = _MAGIC + os.urandom(_SALT)
            self._file.write(header)
            self._file.flush()  # a process that is killed must not leave half of it
        self._cipher = None if key_file is None else _Cipher(path, key_file, header)
        self._file.seek(0, os.SEEK_END)
        self.tell, self.flush, self.close = self._file.tell, self._file.flush, self._file.close

    def write(self, record: bytes) -> None:
        self._file.write(record if self._cipher is None else self._cipher.seal(record, self.tell()))


class Records:
    """Reads the records of an `Appender`."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._file, self._cipher = file, _cipher_of(path, file)

    def end(self, at: int, size: int) -> int:
        """The place behind a record."""
        return at + size + (0 if self._cipher is None else -(-max(1, size) // PIECE) * (_NONCE + _TAG))

    def read(self, at: int, size: int) -> bytes:
        """The record at this place; shorter if the file ends before."""
        if self._cipher is not None:
            return self._cipher.unseal(self._file, at, size)
        self._file.seek(at)
        return self._file.read(size)


class _Cipher:
    """Seals and unseals the records of one file."""

    def __init__(self, path: Path, key_file: Path, header: bytes) -> None:
        secret = durable.read_small(key_file, private=True)
        if len(secret) < LEAST_KEY:
            raise WrongStorageKey(
                f"{key_file} has fewer than {LEAST_KEY} bytes", "write a new one: openssl rand -base64 32 > FILE"
            )
        derived = HKDF(hashes.SHA256(), 32, header[len(_MAGIC) :], b"veilboost storage").derive(secret)
        self._path, self._cipher = path, AESGCM(derived)

    def seal(self, record: bytes, at: int) -> bytes:
        view, sealed = memoryview(record), bytearray()
        for start in range(0, max(1, len(view)), PIECE):
            nonce = os.urandom(_NONCE)
            place = _place(at + len(sealed), len(view) - start)
            sealed += nonce + self._cipher.encrypt(nonce, view[start : start + PIECE], place)
        return bytes(sealed)

    def unseal(self, file: BinaryIO, at: int, size: int) -> bytes:
        """The record; empty if the file ends before it does. A process that was killed may leave half a record."""
        record = bytearray()
        file.seek(at)
        for start in range(0, max(1, size), PIECE):
            wanted = min(PIECE, size - start) + _NONCE + _TAG
            place, sealed = _place(file.tell(), size - start), file.read(wanted)
            if len(sealed) < wanted:
                return b""
            try:
                record += self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], place)
            except InvalidTag:
                raise WrongStorageKey(f"{self._path} was encrypted with another key, or was changed") from None
        return bytes(record)


def _place(at: int, left: int) -> bytes:
    """What a piece is bound to: its place in the file, and the number of bytes to the end of the record."""
    return at.to_bytes(8, "big") + left.to_bytes(8, "big")


def _cipher_of(path: Path, file: BinaryIO) -> _Cipher | None:
    """The cipher of an open file; None if it is not encrypted. The file is at its start again."""
    header = file.read(_HEADER)
    file.seek(0)
    if not header.startswith(_MAGIC):
        return None
    key_file = _key_file(path) or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if key_file is None:
        raise WrongStorageKey(f"{path} is encrypted, and no key is named")
    return _Cipher(path, key_file, header)


def _key_file(path: Path) -> Path | None:
    folders = Path(os.path.realpath(path)).parents
    return next((_key_files[str(folder)] for folder in folders if str(folder) in _key_files), None)
