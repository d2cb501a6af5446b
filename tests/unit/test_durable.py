"""Files that are replaced as a whole, and locks that end with their process."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import veilboost
from veilboost.durable import Locks, commit_folder, make_folder, remove, replace_file, replacing, sweep
from veilboost.errors import FolderLocked

pytestmark = pytest.mark.fast


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_as_a_whole_and_flushed_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda at: flushed.append(os.path.basename(os.readlink(f"/proc/self/fd/{at}"))))
    file = tmp_path / "key"
    replace_file(file, b"old")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def fails() -> None:
        with replacing(file) as temporary:
            temporary.write_bytes(b"half")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        fails()
    assert file.read_bytes() == b"old"
    replace_file(file, b"new")
    assert (file.read_bytes(), names(tmp_path)) == (b"new", ["key"])
    assert flushed[1::2] == [tmp_path.name] * 2
    assert all(name.startswith(".key.") and name.endswith(".partial") for name in flushed[0::2])
    with pytest.raises(FileExistsError):
        replace_file(file, b"other", overwrite=False)
    assert (file.read_bytes(), names(tmp_path)) == (b"new", ["key"])
    flushed.clear()
    remove(file, tmp_path / "missing")
    (tmp_path / "partial").mkdir()
    commit_folder(tmp_path / "partial", tmp_path / "whole")
    assert (names(tmp_path), flushed) == (["whole"], [tmp_path.name] * 2)


def test_a_new_folder_is_flushed_with_the_one_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda at: flushed.append(os.path.basename(os.readlink(f"/proc/self/fd/{at}"))))
    make_folder(tmp_path / "runs" / "credit")
    assert flushed == [tmp_path.name, "runs"]
    make_folder(tmp_path / "runs" / "credit")
    assert len(flushed) == 2


def test_temporary_files_of_killed_processes_are_swept(tmp_path: Path) -> None:
    for name in (".key.x.partial", ".lock", "key", "note.partial"):
        (tmp_path / name).touch()
    sweep(tmp_path, seconds=60)
    assert len(names(tmp_path)) == 4, "another process may be writing it"
    sweep(tmp_path)
    assert names(tmp_path) == [".lock", "key", "note.partial"]


def test_a_lock_has_one_owner_who_may_take_it_again(tmp_path: Path) -> None:
    mine, other, file = Locks(), Locks(), tmp_path / "runs" / ".credit.lock"
    mine.take(file, "training credit")
    mine.take(file, "training credit")
    with pytest.raises(FolderLocked, match=rf"the process {os.getpid()} \(training credit, since .*\) has locked"):
        other.take(file, "")
    mine.release(file)
    with pytest.raises(FolderLocked):
        other.take(file, "")
    mine.release(file)
    assert not file.exists()
    other.take(file, "")
    file.unlink()  # nobody can remove it on a disk that has become read-only either
    other.release(file)
    other.release(file)
    mine.take(file, "")
    mine.release(file)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    code = f"""
import fcntl, os, sys, time
at = os.open({str(file)!r}, os.O_RDWR | os.O_CREAT)
fcntl.flock(at, fcntl.LOCK_EX)
os.write(at, b"the process of a test")
print("locked", flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(FolderLocked, match="the process of a test has locked"):
            Locks().take(file, "testing")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    locks = Locks()
    locks.take(file, "testing")
    assert file.read_text().startswith(f"the process {os.getpid()} (testing, ")
    locks.release(file)


def test_only_one_module_replaces_and_flushes_files() -> None:
    for path in Path(veilboost.__file__).parent.rglob("*.py"):
        if path.name != "durable.py":
            found = re.findall(r"\bos\.(?:replace|rename|fsync|fdatasync|link)\(|mkstemp|flock", path.read_text())
            assert not found, (path, found)


def test_a_sweep_tells_old_files_by_their_time(tmp_path: Path) -> None:
    old = tmp_path / ".head.x.partial"
    old.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    sweep(tmp_path, seconds=3600)
    assert names(tmp_path) == []
