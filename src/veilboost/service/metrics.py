"""Counts of what the service did, as Prometheus reads them. No label ever holds anything that was sent."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._errors: Counter[str] = Counter()
        self._rows = 0
        self._batches = 0
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def answered(self, method: str, route: str, status: int, code: str | None, seconds: float) -> None:
        """A request was answered; `code` is its error's, if it was refused."""
        with self._lock:
            self._requests[method, route, status] += 1
            if code is not None:
                self._errors[code] += 1
            buckets = self._buckets.setdefault(route, [0] * (len(BOUNDS) + 1))
            buckets[next((at for at, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))] += 1
            self._seconds[route] = self._seconds.get(route, 0.0) + seconds

    def predicted(self, rows: int) -> None:
        """One joint prediction, of one or more requests, has given so many scores."""
        with self._lock:
            self._rows += rows
            self._batches += 1

    def text(self, waiting: int) -> str:
        """All of them in the text format of Prometheus."""
        with self._lock:
            lines = [
                *_counter(
                    "veilboost_requests_total",
                    "Requests answered.",
                    (
                        (f'{{method="{method}",route="{route}",status="{status}"}}', count)
                        for (method, route, status), count in sorted(self._requests.items())
                    ),
                ),
                *_counter(
                    "veilboost_errors_total",
                    "Requests refused, by the code of the error.",
                    ((f'{{code="{code}"}}', count) for code, count in sorted(self._errors.items())),
                ),
                *_counter("veilboost_rows_total", "Rows predicted.", [("", self._rows)]),
                *_counter("veilboost_predictions_total", "Joint predictions made.", [("", self._batches)]),
                "# HELP veilboost_waiting_requests Requests that wait for their prediction.",
                "# TYPE veilboost_waiting_requests gauge",
                f"veilboost_waiting_requests {waiting}",
                *self._latency(),
            ]
        return "\n".join(lines) + "\n"

    def _latency(self) -> Iterator[str]:
        name = "veilboost_request_seconds"
        yield f"# HELP {name} How long requests took."
        yield f"# TYPE {name} histogram"
        for route, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), buckets, strict=True):
                total += count
                yield f'{name}_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'{name}_count{{route="{route}"}} {total}'


def _counter(name: str, help: str, samples: Iterable[tuple[str, int]]) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} counter"
    for labels, count in samples:
        yield f"{name}{labels} {count}"
