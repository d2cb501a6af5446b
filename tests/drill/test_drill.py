"""A short part of the drill; `make drill` runs all of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("drill.py")
PARTS = {
    "kills at file operations": "--protocols plain --kinds kill-file --per 2",
    "kills at messages": "--protocols plain --kinds kill-message --per 1",
    "broken connections": "--protocols plain --kinds drop truncate flip --parties shop --per 1",
    "states and disks": "--protocols plain --kinds rolled-back two-daemons disk-full --parties shop --per 1",
    "horizontal jobs": "--protocols secagg mal --kinds kill-message rolled-back --parties hub north judge --per 1",
}


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler")
@pytest.mark.parametrize("part", PARTS)
def test_a_struck_job_ends_with_the_model_of_an_undisturbed_one(part: str, tmp_path: Path) -> None:
    out = tmp_path / "matrix.json"
    command = [sys.executable, str(PROGRAM), *PARTS[part].split(), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = [json.loads(line)["verdict"] for line in out.read_text().splitlines()]
    assert sum(verdict != "not reached" for verdict in verdicts) >= 3, verdicts
