"""Starts a program again with `shim.c` loaded into it, and so into every process that it forks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

MARK = "VEILBOOST_DRILL"  # read by nothing but this module


def with_shim() -> None:
    if MARK in os.environ:
        return
    shim = built_shim(Path(tempfile.mkdtemp(prefix="drill-shim-")))
    # One thread: a fork must not inherit the threads of a numerical library.
    changes = {MARK: "1", "LD_PRELOAD": str(shim), "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | changes)  # noqa: S606


def built_shim(folder: Path) -> Path:
    shim, source = folder / "shim.so", Path(__file__).with_name("shim.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    return shim
