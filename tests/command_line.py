"""The command line within the test's own process: the start of an interpreter costs more than most commands.

The executable itself runs in tests/e2e/test_cli.py, in every test that starts a daemon or a driver, and in those of the
README.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from veilboost.cli.main import run

Result = subprocess.CompletedProcess[str]


def call(*arguments: object, folder: Path | None = None, env: Mapping[str, str] | None = None) -> Result:
    """What `veilboost ARGUMENTS` prints in this folder and environment, and its exit code."""
    command = ["veilboost", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", command),
        mock.patch.dict(os.environ, dict(env or {})),
        contextlib.chdir(folder or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            run()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
