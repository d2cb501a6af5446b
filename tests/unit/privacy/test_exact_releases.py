"""What leaves without noise stands in the ledger, beside what has an epsilon."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from support import make_columns, make_labels, split_among
from veilboost.config import TrainingConfig
from veilboost.party.simulation import simulate_training
from veilboost.privacy.event import Adjacency, ExactRelease, Gaussian, MemoryAccount, event_from_dict
from veilboost.privacy.ledger import Ledger, worst_epsilon
from veilboost.protocols.registry import protocol_named, protocols_of
from veilboost.protocols.vertical.roles import ExactReleases
from veilboost.types import Role

ABOUT = {"adjacency": Adjacency.LABEL, "adversary": "shop", "protocol": "plain", "release": "all", "what": "gradients"}
OPTIONS = {
    "paillier": {"key_bits": 512, "allow_insecure_key": True},
    "elxgb": {"backend": "lattice"},
    "sealed": {"least_rows": 5},
    "masked": {},
}
SUMS, ASSIGNMENTS = "sums of gradients", "the left/right assignment"
ROUNDS = 3


@pytest.mark.parametrize(
    ("protocol", "active", "passive"),
    [
        ("plain", ["gradient and hessian of every row", "rows share a node"], [SUMS, ASSIGNMENTS]),
        ("lattice", ["rows share a node"], [SUMS, ASSIGNMENTS]),
        ("paillier", ["rows share a node"], [SUMS, ASSIGNMENTS]),
        ("smm1", ["rows share a node", "vectors orthogonal"], [SUMS, "which bin", ASSIGNMENTS]),
        ("smm2", ["rows share a node", "under a mask"], ["vectors orthogonal", "loss reduction", ASSIGNMENTS]),
        ("masked", ["rows share a node", "gradients under masks"], ["noise vectors", ASSIGNMENTS]),
        ("ldp", ["rows share a node"], ["best candidate", ASSIGNMENTS]),
        ("elxgb", ["rows share a node"], [SUMS, "best gain", ASSIGNMENTS]),
        ("federboost", ["split which node"], []),
        ("sealed", [], [SUMS, ASSIGNMENTS]),
    ],
)
def test_every_protocol_books_what_it_shows(protocol: str, active: list[str], passive: list[str]) -> None:
    columns = make_columns(3, 120, 4)
    tables = split_among(columns, make_labels(3, columns), 2)
    config = TrainingConfig(
        objective="binary", n_estimators=ROUNDS, max_depth=2, max_bin=8, options=OPTIONS.get(protocol, {})
    )
    if protocol in {"ldp", "masked"}:
        config = replace(config, categories="ordinal")
    run = simulate_training(tables, "p0", protocol, config)
    for name, expected in (("p0", active), ("p1", passive)):
        exact = [event for event in run.accounts[name].events if isinstance(event, ExactRelease)]
        for words in expected:
            found = [event for event in exact if words in event.what]
            assert found, (name, words)
        assert bool(exact) == bool(expected)
        by_rounds = [event for event in exact if event.release.startswith("rounds")]
        for what in {event.what for event in by_rounds}:
            group = [event for event in by_rounds if event.what == what]
            if protocol != "elxgb":
                assert sum(event.count for event in group) == ROUNDS
            assert {event.rows for event in group} == {120}
            assert {event.bins for event in group} <= {None, 16}
            assert {event.adversary for event in group} == {"p1" if name == "p0" else "the active party"}


@pytest.mark.fast
def test_every_vertical_protocol_says_what_it_shows() -> None:
    for name, spec in protocols_of("vertical").items():
        config = TrainingConfig(options={"backend": "lattice"} if name == "elxgb" else {})
        shown = spec.exact_messages(config, 0)
        assert set(shown) <= set(spec.messages)
        assert all(any(item.exact for item in message.reveals) for message in shown)
        assert shown, name


@pytest.mark.fast
def test_rounds_are_booked_in_groups_that_double_and_before_they_begin() -> None:
    account = MemoryAccount()
    book = ExactReleases(protocol_named("lattice"), Role.PASSIVE, account, ("bank",))
    config = TrainingConfig(n_estimators=100)
    commits = 0
    for number in range(100):
        before = len(account.events)
        book.before_round(config, number, 500, 64, 1)
        commits += len(account.events) > before
        sums = [event for event in account.events if isinstance(event, ExactRelease) and event.bins == 64]
        assert number < sum(event.count for event in sums) <= 2 * number + 1
    assert commits == 7
    again = ExactReleases(protocol_named("lattice"), Role.PASSIVE, account, ("bank",))
    booked = account.events
    again.before_round(config, 37, 500, 64, 1)  # resumed there
    assert account.events == booked
    assert not any(event.counted for event in booked if isinstance(event, ExactRelease))


@pytest.mark.fast
def test_limits_count_what_they_counted_before() -> None:
    noised = Gaussian(1.0, **ABOUT)
    assert worst_epsilon([noised, ExactRelease(**ABOUT, counted=False)], 1e-5) == worst_epsilon([noised], 1e-5)
    assert worst_epsilon([noised, ExactRelease(**ABOUT)], 1e-5) == float("inf")
    account = MemoryAccount()
    book = ExactReleases(protocol_named("sealed"), Role.PASSIVE, account, ("bank",))
    book.before_round(TrainingConfig(objective="binary", n_estimators=100), 0, 500, 64, 1)
    assert all(isinstance(event, ExactRelease) and event.counted for event in account.events)


@pytest.mark.fast
def test_what_earlier_releases_wrote_is_read_and_spelled_alike(tmp_path) -> None:
    old = {"kind": "exact", "count": 2, "content": "", "paper_epsilon": None, "paper_delta": None, **ABOUT}
    event = event_from_dict(json.loads(json.dumps(old)))
    assert event == ExactRelease(**ABOUT, count=2)
    assert event.to_dict() == old
    full = ExactRelease(**ABOUT, rows=5, bins=7, counted=False)
    assert event_from_dict(full.to_dict()) == full
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert ledger.append("a/1", event, full)
    assert not ledger.append("a/1", event, full)
    assert ledger.append("a/2", full)
    (shown,) = ledger.exact()
    assert (shown.to, shown.rows, shown.bins, shown.times, shown.jobs) == ("shop", 5, 7, 4, 2)
    assert ledger.verify().rows == 3
