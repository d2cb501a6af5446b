"""A job with local noise that is interrupted goes on to the same model, and spends nothing twice."""

from __future__ import annotations

from typing import ClassVar

import pytest

from support import make_columns, make_labels, split_among
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.model.joined import join
from veilboost.party.training import PassiveSession, Resumed, TrainingJob, train_active
from veilboost.privacy.event import MemoryAccount
from veilboost.protocols.registry import protocol_named
from veilboost.wire.channel import MemoryChannel, Peers
from veilboost.wire.message import Catalogue
from veilboost.wire.transcript import Transcript

pytestmark = pytest.mark.fast

CASES = {
    "ldp": {"epsilon": 1.0},
    "ldp per node": {"epsilon": 1.0, "per_node": True, "mechanism": "laplace"},
    "federboost": {"epsilon": 1.0},
}


class Interrupted(Exception):
    pass


class Keeper:
    digests: ClassVar[dict[str, str]] = {}

    def __init__(self, kept, stops_after):
        self.state, self.stops_after = kept, stops_after

    def resumed(self):
        return self.state

    def store(self, trees):
        pass

    def chose(self, what):
        pass

    def keep(self, progress, records):
        self.peers.flush()  # a checkpoint is a request, with which everything that is held is sent
        self.state = Resumed(progress, records, {})
        if len(progress.history) == self.stops_after:
            raise Interrupted

    def bring_back(self, error, begin):
        return False


@pytest.mark.parametrize("case", CASES)
def test_the_same_noise_after_an_interruption(case):
    spec = protocol_named(case.split()[0])
    columns = make_columns(3, rows=120, numeric=4, missing=0.1)
    tables = split_among(columns, make_labels(3, columns), 3)
    config = TrainingConfig(
        objective="binary", n_estimators=4, max_depth=3, max_bin=8, categories="ordinal", options=CASES[case]
    )

    def run(accounts, keeper, records):
        keys = {name: JobRandomness(name.encode().ljust(32, b".")) for name in tables}
        sessions = {
            name: PassiveSession(spec, name, table, 1, None, keys[name], accounts[name])
            for name, table in tables.items()
            if name != "p0"
        }
        for name, kept in records.items():
            sessions[name].side.restore(kept)
        catalogue, here = Catalogue(spec.messages), Transcript("p0")
        peers = Peers(
            {name: MemoryChannel(s.side.handle, catalogue, here, Transcript(name)) for name, s in sessions.items()}
        )
        keeper.peers = peers
        try:
            outcome = train_active(
                TrainingJob(spec, config, tuple(tables)),
                "p0",
                tables["p0"],
                peers,
                keeper=keeper,
                randomness=keys["p0"],
                account=accounts["p0"],
            )
        except Interrupted:
            return {name: session.side.records() for name, session in sessions.items()}
        parts = {"p0": outcome.share} | {name: session.share() for name, session in sessions.items()}
        return join({name: parts[name] for name in tables}).sha256()

    whole = {name: MemoryAccount() for name in tables}
    expected = run(whole, Keeper(None, 0), {})
    broken = {name: MemoryAccount() for name in tables}
    first = Keeper(None, 2)
    records = run(broken, first, {})
    assert run(broken, Keeper(first.state, 0), records) == expected
    for name in tables:
        assert broken[name].events == whole[name].events
    assert sum(len(account.events) for account in whole.values()) > 0
