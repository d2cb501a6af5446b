"""A short part of the drill; `make drill` runs all of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cells import places
from preload import built_shim

PROGRAM = Path(__file__).with_name("drill.py")
PARTS = {
    "kills at file operations": "--protocols plain --kinds kill-file --per 2",
    "kills at messages": "--protocols plain --kinds kill-message --per 1",
    "broken connections": "--protocols plain --kinds drop truncate flip --parties shop --per 1",
    "states and disks": "--protocols plain --kinds rolled-back two-daemons disk-full --parties shop --per 1",
    "horizontal jobs": "--protocols secagg mal --kinds kill-message rolled-back --parties hub north judge --per 1",
}

needs_shim = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
# What a process does in its folder, and whether that changes anything that another process can see.
OPERATIONS = """
import ctypes, os, sys
folder, log = sys.argv[1:]
os.chdir(folder)
new, old, empty = "new", "old", "empty"
open(old, "w").write("x"), open(empty, "w").close(), os.mkdir("made"), open(log, "w").close()
ctypes.CDLL(None).drill_arm(folder.encode(), log.encode(), ctypes.c_long(0), 0, ctypes.c_long(0))
for flags, name in ((os.O_CREAT, new), (0, old), (os.O_CREAT, old), (os.O_TRUNC, old), (os.O_TRUNC, empty)):
    file = os.open(name, os.O_WRONLY | flags)
os.write(file, b"x"), os.fsync(file), os.ftruncate(file, 1), os.ftruncate(file, 0), os.rename(new, "other")
for name in ("made", "another"):
    try:
        os.mkdir(name)
    except FileExistsError:
        pass
for name in ("other", "absent"):
    try:
        os.unlink(name)
    except FileNotFoundError:
        pass
"""
SEEN = """file open new, idle open old, idle open old, file open old, idle open empty, file write empty,
idle fsync empty, idle truncate empty, file truncate empty, file rename other <- new, idle mkdir made,
file mkdir another, file unlink other, idle unlink absent"""


def test_a_job_goes_on_without_participants_that_are_killed() -> None:
    command = [sys.executable, str(PROGRAM.with_name("dropouts.py")), "--moments", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 5


@needs_shim
def test_operations_that_change_nothing_are_told_apart(tmp_path: Path) -> None:
    folder, log = tmp_path / "folder", tmp_path / "log"
    folder.mkdir()
    command = [sys.executable, "-c", OPERATIONS, str(folder), str(log)]
    subprocess.run(command, env=os.environ | {"LD_PRELOAD": str(built_shim(tmp_path))}, check=True)
    expected = [line.strip().split(" ", 1) for line in SEEN.replace("\n", " ").split(",")]
    assert log.read_text().splitlines() == [f"{what} {at} {how}" for at, (what, how) in enumerate(expected, 1)]


BOOKED = """
import ctypes, sys
from pathlib import Path
from veilboost.privacy.event import Adjacency, Pure
from veilboost.privacy.ledger import Ledger
folder, log = map(Path, sys.argv[1:])
whom = {"adjacency": Adjacency.PASSIVE_RECORD, "adversary": "bank"}
event = Pure(what="sums", **whom, protocol="plain", release="1", epsilon=1)
log.touch()
ctypes.CDLL(None).drill_arm(bytes(folder), bytes(log), ctypes.c_long(0), 0, ctypes.c_long(0))
Ledger(folder / "runs" / "ledger.sqlite").append("job", event)
"""


@needs_shim
def test_a_booked_release_is_on_the_disk_before_it_is_sent(tmp_path: Path) -> None:
    """Also that its journal is gone: a journal that returns after a power failure would take the release back."""
    folder, log = tmp_path / "folder", tmp_path / "log"
    folder.mkdir()
    command = [sys.executable, "-c", BOOKED, str(folder), str(log)]
    subprocess.run(command, env=os.environ | {"LD_PRELOAD": str(built_shim(tmp_path))}, check=True)
    done = [line.split(" ", 2)[2] for line in log.read_text().splitlines()]
    last = {what: len(done) - done[::-1].index(what) for what in set(done)}
    ledger, journal = "runs/ledger.sqlite", "runs/ledger.sqlite-journal"
    assert last[f"write {ledger}"] < last[f"fsync {ledger}"] < last[f"unlink {journal}"]
    assert done[last[f"unlink {journal}"]] == "fsync runs"


def test_kills_leave_out_only_what_leaves_a_state_that_another_kill_leaves() -> None:
    writes = [("file", f"{number} write a") for number in range(2, 9)]
    flushed = [("idle", "9 fsync a"), ("file", "10 rename b <- a"), ("idle", "11 fsync .")]
    told = [("message", "1 send REQUEST 1"), ("file", "12 write t/transcript.jsonl"), ("message", "2 receive ANSWER 1")]
    more = [
        ("file", "13 write t/transcript.jsonl"),
        ("lie", "about X.y"),
        ("file", "14 write a"),
        ("file", "15 write c"),
    ]
    events = [("file", "1 open a"), *writes, *flushed, *told, *more]
    assert places(events) == [1, 2, 5, 8, 10, 12, 13, 14, 15]
    assert places(events, thorough=False) == [1, 2, 5, 8, 10, 14, 15]


def test_of_many_commits_of_the_ledger_most_have_one_place_each() -> None:
    commit = ("open a/ledger.sqlite-journal", "write a/ledger.sqlite", "unlink a/ledger.sqlite-journal")
    events = [("file", f"{number + 1} {commit[number % 3]}") for number in range(21)] + [("file", "22 unlink key")]
    assert places(events) == list(range(1, 23))
    assert places(events, thorough=False) == [*range(1, 7), 7, 11, 15, 16, *range(19, 23)]


@needs_shim
@pytest.mark.parametrize("part", PARTS)
def test_a_struck_job_ends_with_the_model_of_an_undisturbed_one(part: str, tmp_path: Path) -> None:
    out = tmp_path / "matrix.json"
    command = [sys.executable, str(PROGRAM), *PARTS[part].split(), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = [json.loads(line)["verdict"] for line in out.read_text().splitlines()]
    assert sum(verdict != "not reached" for verdict in verdicts) >= 3, verdicts


@needs_shim
def test_a_deployment_outlives_the_death_of_its_processes(tmp_path: Path) -> None:
    out = tmp_path / "matrix.json"
    cells = ("plain:kill-file:shop:59", "plain:kill-file:deploy:11", "plain:kill-message:serve:3")
    command = [sys.executable, str(PROGRAM.with_name("deployments.py")), "--cell", *cells, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = [json.loads(line)["verdict"] for line in out.read_text().splitlines()]
    assert "not reached" not in verdicts, done.stderr
