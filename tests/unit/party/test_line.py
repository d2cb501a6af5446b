"""The line between the parties of a job is measured once, and what a job chooses for it is shown and kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parties import CONFIG, Town, make_certificates
from veilboost import Federation
from veilboost.boost.booster import RoundResult
from veilboost.errors import UnexpectedMessage
from veilboost.party import vertical
from veilboost.party.coordinator import Watch
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.lifecycle import about
from veilboost.party.line import measured_line
from veilboost.party.messages import PROBE_BYTES, Probe
from veilboost.party.settings import load_party
from veilboost.wire.channel import Channel, Peers, Pending
from veilboost.wire.message import Message
from veilboost.wire.transcript import LINES, Network, read_transcript

pytestmark = pytest.mark.fast
FEW = replace(CONFIG, n_estimators=3, max_depth=2)


class Wire(Channel):
    """A line whose clock moves only while something is in transit."""

    def __init__(self, network: Network, slow_start: float = 0.0) -> None:
        self.network, self.now, self.sizes, self._slow_start = network, 0.0, list[int](), slow_start

    def send(self, message: Message) -> Pending:
        assert isinstance(message, Probe)
        if len(message.padding) > max(self.sizes, default=0):
            self.now += self._slow_start
        self.sizes.append(len(message.padding))
        self.now += self.network.seconds(1, 2 * len(message.padding))
        return lambda: message


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_found_again(line: str) -> None:
    wire = Wire(LINES[line])
    found = measured_line(Peers({"shop": wire}), lambda: wire.now)
    assert found.latency == pytest.approx(LINES[line].latency)
    assert found.bandwidth == pytest.approx(LINES[line].bandwidth, rel=1e-3)
    assert sum(wire.sizes) <= 5 * PROBE_BYTES


def test_the_first_long_message_does_not_decide() -> None:
    """It takes longer than others, because both parties make room for it."""
    wire = Wire(LINES["lan"], slow_start=0.02)
    found = measured_line(Peers({"shop": wire}), lambda: wire.now)
    assert found.bandwidth == pytest.approx(LINES["lan"].bandwidth, rel=1e-3)


def test_a_slow_line_is_not_probed_for_long() -> None:
    wire = Wire(Network(1e6, 0.5))
    measured_line(Peers({"shop": wire}), lambda: wire.now)
    assert max(wire.sizes) == PROBE_BYTES >> 4
    assert wire.now < 5


def test_a_line_without_any_delay_is_a_line() -> None:
    wire = Wire(Network(1e15, 0.0))
    assert 0 < measured_line(Peers({"shop": wire}), lambda: wire.now).bandwidth < float("inf")


# --- jobs between parties ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def town(tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    made = Town(tmp_path, certificates, rows=200)
    allowed = ("lattice", "plain")
    for party in ("bank", "shop"):
        made.settle(party, policy={"protocols": allowed, "allow_unprotected": allowed})
    yield made
    made.close()


@contextmanager
def written_job(town: Town, protocol: str = "lattice") -> Iterator[Path]:
    """A job of the bank, while the shop answers."""
    daemon = Daemon(load_party(town.folder / "shop.toml"))
    try:
        yield town.write_job({"shop": f"127.0.0.1:{daemon.port}"}, config=FEW, protocol=protocol)
    finally:
        daemon.stop()


def test_a_resumed_job_keeps_the_line_for_which_it_chose(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, bank = iter([LINES["far"]]), town.folder / "bank.toml"
    monkeypatch.setattr(vertical, "measured_line", lambda peers: next(measured))

    def stop(result: RoundResult) -> None:
        raise KeyboardInterrupt

    with written_job(town) as job:
        watch = Watch(round=stop)
        with pytest.raises(KeyboardInterrupt), coordinate(load_party(bank), load_job(job), watch) as driver:
            driver.train()
        assert town.run_folder("bank").status["line"] == {"bandwidth": 20e6, "latency": 0.075}
        done = Federation(job, bank).train(resume=True)
    assert done.layout is not None
    assert done.layout.startswith("layout auto for a line of 150 ms and 20 Mbit/s: ")
    assert about(town.run_folder("bank"), load_party(bank)).layout == done.layout
    assert "layout" not in town.run_folder("shop").status, "the active party chooses"


@pytest.mark.parametrize(("protocol", "probed"), [("lattice", True), ("plain", False)])
def test_a_line_is_measured_only_for_a_protocol_that_adapts_to_it(protocol: str, probed: bool, town: Town) -> None:
    with written_job(town, protocol) as job:
        done = Federation(job, town.folder / "bank.toml").train()
    assert (done.layout is not None) == probed
    assert any(entry.message == "Probe" for entry in read_transcript(done.run / "transcript")) == probed


def test_a_party_does_not_echo_long_probes(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    def long_probe(peers: Peers) -> Network:
        padding = np.zeros(PROBE_BYTES + 1, dtype=np.uint8)
        peers.ask(dict.fromkeys(peers.names, Probe(padding)), Probe)
        raise AssertionError("it was answered")

    monkeypatch.setattr(vertical, "measured_line", long_probe)
    with written_job(town) as job, pytest.raises(UnexpectedMessage, match="out of order"):
        Federation(job, town.folder / "bank.toml").train()
