"""A line between two companies: a proxy on loopback that delays bytes and limits their rate, in both directions.

    python bench/line.py wan TARGET_PORT            prints the port to connect to, then serves until it is killed

Bytes leave at the line's rate, all connections of one direction sharing it, and arrive half a round trip later, in
order. Senders wait while the line is busy, as they do at a full socket. Not modelled: loss, slow start, jitter. Needs
nothing but Python, so that the peers' interpreters can run it too.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Line:
    """Seconds of a round trip, and bits per second of each direction."""

    round_trip: float
    rate: float


LINES = {
    "lan": Line(0.5e-3, 10e9),
    "metro": Line(5e-3, 1e9),
    "wan": Line(50e-3, 100e6),
    "far": Line(150e-3, 20e6),
}
MOST_AT_ONCE = 1 << 16  # bytes read at a time
AHEAD = 2e-3  # seconds of the line's rate that a sender may be ahead: the buffer of a network card


class Direction:
    """One direction of a line: tells when bytes have left."""

    def __init__(self, rate: float) -> None:
        self._rate, self._free, self._lock = rate, 0.0, threading.Lock()

    def leaves(self, size: int) -> float:
        """The time when the last of these bytes has left; the line is busy until then."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + 8 * size / self._rate
            return self._free


def _take(source: socket.socket, direction: Direction, delay: float, flight: Any) -> None:
    """Read what is sent, at the line's rate."""
    with contextlib.suppress(OSError):
        while data := source.recv(MOST_AT_ONCE):
            left = direction.leaves(len(data))
            flight.put((left + delay, data))
            time.sleep(max(0.0, left - AHEAD - time.monotonic()))
    flight.put((time.monotonic() + delay, b""))


def _deliver(sink: socket.socket, flight: Any) -> None:
    """Write what has arrived."""
    with contextlib.suppress(OSError):
        while True:
            arrives, data = flight.get()
            time.sleep(max(0.0, arrives - time.monotonic()))
            if not data:
                break
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def serve(listener: socket.socket, target: int, line: Line) -> None:
    """Connect every connection to the target over the line, for ever."""
    ways = Direction(line.rate), Direction(line.rate)
    while True:
        near, _ = listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", target))
        except OSError:
            near.close()
            continue
        for source, sink, direction in ((near, far, ways[0]), (far, near, ways[1])):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            flight: Any = queue.SimpleQueue()
            arguments = (source, direction, line.round_trip / 2, flight)
            threading.Thread(target=_take, args=arguments, daemon=True).start()
            threading.Thread(target=_deliver, args=(sink, flight), daemon=True).start()


def _listen(target: int, line: Line, pipe: Any) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    pipe.send(listener.getsockname()[1])
    serve(listener, target, line)


@contextlib.contextmanager
def line_to(target: int, name: str) -> Iterator[int]:
    """A line to a port of this machine, in a process of its own; gives the port to connect to. `none`: the target."""
    if name == "none":
        yield target
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_listen, args=(target, LINES[name], theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0), backlog=64) as own:
        print(own.getsockname()[1], flush=True)
        serve(own, int(sys.argv[2]), LINES[sys.argv[1]])
