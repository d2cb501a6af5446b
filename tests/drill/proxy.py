"""A TCP proxy on loopback that harms one connection, once, at a chosen byte."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import threading
import time
from pathlib import Path

KINDS = ("drop", "truncate", "flip", "delay", "half-open", "unread")
DELAY = 3.0


class Proxy:
    """Carries bytes between a driver and one party; `at` counts those of both directions, over all connections."""

    def __init__(self, port: int, target: int, kind: str, at: int, log: Path) -> None:
        self._target, self._kind, self._at = target, kind, at
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._count, self._lock = 0, threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)

    def serve(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            stopped = set[bool]()  # the directions in which nothing is carried any more; True is from the driver
            for source, sink, from_driver in ((near, far, True), (far, near, False)):
                arguments = (source, sink, stopped, from_driver)
                threading.Thread(target=self._carry, args=arguments, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, stopped: set[bool], from_driver: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                with self._lock:
                    before, self._count = self._count, self._count + len(data)
                    os.pwrite(self._log, b"%d\n" % self._count, 0)
                if before < self._at <= self._count:
                    data = self._strike(data, self._at - before - 1, source, sink, stopped)
                if from_driver in stopped:
                    threading.Event().wait()  # the socket stays open
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _strike(self, data: bytes, place: int, source: socket.socket, sink: socket.socket, stopped: set[bool]) -> bytes:
        if self._kind == "drop":
            for end in (source, sink):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise ConnectionAbortedError
        if self._kind == "truncate":
            sink.sendall(data[:place])
            raise ConnectionAbortedError
        if self._kind == "flip":
            return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        if self._kind == "delay":
            time.sleep(DELAY)
        if self._kind in {"half-open", "unread"}:
            stopped |= {True, self._kind == "unread"}
        return data


def run(port: int, target: int, kind: str, at: int, log: Path) -> None:
    """Serve in this process until it is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with the drill
    try:
        Proxy(port, target, kind, at, log).serve()
    finally:
        os._exit(1)
