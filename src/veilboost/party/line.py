"""The line to the passive parties of a job, measured when it begins: round trip and throughput."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.party.messages import PROBE_BYTES, Probe
from veilboost.wire.channel import Peers
from veilboost.wire.transcript import Network

_EMPTY = 2  # probes for the round trip
_SIZES = (PROBE_BYTES >> 4, PROBE_BYTES >> 2, PROBE_BYTES)  # bytes of the others, until one takes long enough
_ENOUGH = 0.05  # seconds in transit that give the throughput
_AGAIN = 3  # more of the longest probes on a fast line


def measured_line(peers: Peers, clock: Callable[[], float] = time.perf_counter) -> Network:
    """Measure the line to all peers at once, as the messages of a level use it; the slowest peer counts.

    The throughput is that of both directions together, in messages of the size of a small level: a connection that is
    still slow because it was idle is as slow in training.
    """

    def probe(size: int) -> float:
        padding = np.frombuffer(Csprng().bytes(size), dtype=np.uint8)  # that no network on the way compresses
        began = clock()
        peers.ask(dict.fromkeys(peers.names, Probe(padding)), Probe)
        return clock() - began

    round_trip = min(probe(0) for _ in range(_EMPTY))
    size, seconds = 0, round_trip
    for size in _SIZES:
        seconds = probe(size)
        if seconds - round_trip >= _ENOUGH:
            break
    else:  # a fast line: the first long message also makes room for itself
        seconds = min(seconds, *(probe(size) for _ in range(_AGAIN)))
    return Network(8 * 2 * size / max(seconds - round_trip, 1e-6), round_trip / 2)
