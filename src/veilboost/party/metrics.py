"""The metrics of a daemon, for Prometheus: counters of what happens, and a collector of what the party's files say.

No label has unbounded values: peers are those that the policy admits, and jobs are counted by state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from veilboost import __version__
from veilboost.errors import VeilBoostError
from veilboost.party import status
from veilboost.party.settings import PartySettings
from veilboost.types import PartyName
from veilboost.wire.message import Message
from veilboost.wire.rpc import Observer
from veilboost.wire.transcript import Direction

SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0)


class Metrics(Observer):
    """The metrics of one daemon, in a registry of their own. Observes its links."""

    def __init__(self, settings: PartySettings) -> None:
        disable_created_metrics()
        self.registry = registry = CollectorRegistry()

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, labels, registry=registry)

        self.rounds = counter(
            "veilboost_rounds", "Boosting rounds finished: at a checkpoint, or at the end of a horizontal job."
        )
        self.predicted_rows = counter("veilboost_predicted_rows", "Rows of joint predictions that were answered.")
        size = counter("veilboost_peer_bytes", "Bytes of packets, without those of gRPC and TLS.", "peer", "direction")
        self._refusals = counter("veilboost_refusals", "Refused peers and requests, by error code.", "code")
        what = "Time from a request of a peer to its answer."
        seconds = Histogram("veilboost_exchange_seconds", what, ("peer", "message"), buckets=SECONDS, registry=registry)
        self._bytes_of, self._seconds_of = cache(size.labels), cache(seconds.labels)  # looked up for every message
        registry.register(StateCollector(settings))
        ProcessCollector(registry=registry)

    def packet(self, peer: PartyName, direction: Direction, size: int) -> None:
        self._bytes_of(peer, direction).inc(size)

    def refused(self, code: str) -> None:
        self._refusals.labels(code).inc()

    def exchange(self, peer: PartyName, message: Message) -> AbstractContextManager[Any]:
        """Time the answer to a message."""
        return self._seconds_of(peer, message.type_name()).time()


class StateCollector(Collector):
    """Computed on every scrape, from run folders, the ledger and certificates. What cannot be read is left out."""

    def __init__(self, settings: PartySettings) -> None:
        self._settings = settings
        self._budget = status.LedgerBudget(settings)

    def describe(self) -> Iterator[Metric]:
        """None: the registry need not read the files to learn the names."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        settings = self._settings
        info = GaugeMetricFamily("veilboost_build_info", "The release of VeilBoost; always 1.", labels=("release",))
        info.add_metric((__version__,), 1)
        yield info
        jobs = GaugeMetricFamily("veilboost_jobs", "Jobs in the runs folder, by state.", labels=("state",))
        for state, number in status.count_by_state(status.list_jobs(settings)).items():
            jobs.add_metric((state,), number)
        yield jobs
        yield from self._of_ledger()
        days = GaugeMetricFamily(
            "veilboost_certificate_expiry_days", "Days until a certificate expires.", labels=("certificate",)
        )
        for name, left in status.certificate_days(settings).items():
            if left is not None:
                days.add_metric((name,), left)
        yield days

    def _of_ledger(self) -> Iterator[Metric]:
        try:
            spent, left = self._budget.read()
        except VeilBoostError:
            return
        yield GaugeMetricFamily(
            "veilboost_ledger_epsilon_spent", "Epsilon of all jobs in the ledger, spent or reserved.", value=spent
        )
        if left is not None:
            yield GaugeMetricFamily(
                "veilboost_ledger_epsilon_left", "Epsilon left of epsilon_total in the policy.", value=left
            )
