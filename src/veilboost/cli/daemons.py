"""Parties as processes of their own on this machine, which never outlive the one that started them."""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from veilboost.errors import PeerUnreachable

START_SECONDS = 30.0
STOP_SECONDS = 5.0


@contextmanager
def ended_by_signals() -> Generator[None]:
    """Let a request to end, or a closed terminal, end this process as Ctrl-C does: with everything put away."""
    kinds = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(kind, _interrupt) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def serving(*configs: Path) -> Generator[list[str]]:
    """Run `veilboost party serve` for each file; gives the addresses on which they listen."""
    with ExitStack() as running:
        started = [(config, running.enter_context(_process(config))) for config in configs]
        yield [_address(config, process) for config, process in started]


@contextmanager
def _process(config: Path) -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "veilboost", "party", "serve", "--config", str(config), "--json"]
    with ExitStack() as files:
        log = files.enter_context(log_of(config).open("wb"))
        # A session of its own: Ctrl-C is for us, and we stop it in our own time.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def log_of(config: Path) -> Path:
    return config.with_suffix(".log")


def _address(config: Path, process: subprocess.Popen[bytes]) -> str:
    """What the process says when it listens, within a bounded time."""
    line = b"" if process.stdout is None else _first_line(process.stdout)
    try:
        return str(json.loads(line)["address"])
    except (ValueError, KeyError, TypeError):
        said = log_of(config).read_text(errors="replace").strip().splitlines()
        why = said[-1] if said else "it said nothing"
        raise PeerUnreachable(f"the party of {config} did not start ({why})", "its log lies beside the file") from None


def _first_line(stream: IO[bytes]) -> bytes:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        # The line is written at once, so that when there is something there is all of it.
        return stream.readline() if selector.select(START_SECONDS) else b""
