"""The command `veilboost` as processes of their own, forked from one that has loaded the package.

An interpreter needs a second of CPU to load the package, a fork a twentieth of it. The executable itself runs in
tests/e2e/test_cli.py and in the tests of the README.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LOADED = """veilboost.cli.main veilboost.party.daemon veilboost.party.federation veilboost.party.horizontal
veilboost.party.predicting veilboost.party.vertical veilboost.party.vertical_session
veilboost.console.app veilboost.service.app dp_accounting.pld.privacy_loss_distribution
grpc._channel grpc._server grpc.experimental pandas pyarrow.compute pydantic.main"""
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(LOADED.split())
_OUTPUTS = tempfile.TemporaryDirectory(prefix="veilboost-outputs-")
_NUMBERS = itertools.count()


class Output:
    """What a process has written to a file so far. Every part is read once."""

    def __init__(self, path: Path, ended: Callable[[], bool]) -> None:
        path.touch()
        self._path, self._ended, self._at = path, ended, 0

    def read(self) -> str:
        """All that was not read yet."""
        return self._take(len(self._unread))

    def readline(self) -> str:
        """The next line, as soon as it is there; what is left of it if the process ends."""
        while True:
            ended = self._ended()
            line, newline, _ = self._unread.partition("\n")
            if newline or ended:
                return self._take(len(line + newline))
            time.sleep(0.002)

    @property
    def _unread(self) -> str:
        return self._path.read_text(encoding="utf-8")[self._at :]

    def _take(self, characters: int) -> str:
        unread, self._at = self._unread[:characters], self._at + characters
        return unread


class Process:
    """A running `veilboost ARGUMENTS`, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, *arguments: object, folder: Path) -> None:
        self.args = ["veilboost", *map(str, arguments)]
        number = next(_NUMBERS)
        paths = [Path(_OUTPUTS.name) / f"{number}.{name}" for name in ("out", "err")]
        self.stdout, self.stderr = (Output(path, lambda: self.poll() is not None) for path in paths)
        self._process = _FORKS.Process(target=_run, args=(self.args, folder, paths))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """The rest of both outputs, once the process has ended."""
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(command: list[str], folder: Path, outputs: list[Path]) -> None:
    import veilboost.cli.main

    os.setsid()
    for stream, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
    os.chdir(folder)
    os.environ["COLUMNS"] = "200"
    sys.argv = command
    veilboost.cli.main.run()
