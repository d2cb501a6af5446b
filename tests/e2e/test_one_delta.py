"""A job's delta is the one of its owner's policy: noise is made for it, epsilon is booked at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parties import Town, make_certificates
from veilboost.config import TrainingConfig
from veilboost.errors import AgainstPolicy, PeerRefused
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.policy import Policy
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.privacy.event import Event, ExactRelease
from veilboost.privacy.ledger import Ledger, worst_epsilon
from veilboost.protocols.sealed.parameters import SealedOptions
from veilboost.protocols.sealed.spec import SPEC as SEALED
from veilboost.types import Role

CONFIG = TrainingConfig(objective="binary", max_bin=8)


class Pair:
    """A bank that drives and a shop that answers, over TLS; their policies name sealed and are default otherwise."""

    def __init__(self, folder: Path, certificates: Path) -> None:
        self.folder = folder
        self.town = Town(folder, certificates, rows=300)

    def train(
        self, bank: dict[str, Any] | None = None, shop: dict[str, Any] | None = None, **options: Any
    ) -> TrainingConfig:
        """The configuration that the model was trained with."""
        for party, policy in (("bank", bank), ("shop", shop)):
            sealed = {"protocols": ("sealed",), "allow_unprotected": ("sealed",)}
            self.town.settle(party, policy=sealed | (policy or {}))
        daemon = Daemon(load_party(self.folder / "shop.toml"))
        try:
            address = {"shop": f"127.0.0.1:{daemon.port}"}
            job = load_job(self.town.write_job(address, config=replace(CONFIG, options=options)))
            job = replace(job, protocol="sealed")
            with coordinate(load_party(self.folder / "bank.toml"), job) as driver:
                _, outcome = driver.train()
        finally:
            daemon.stop()
        assert outcome.share.skeleton is not None
        return outcome.share.skeleton.config

    def noised(self, party: str, delta: float) -> float:
        """The epsilon of what a party released with noise."""
        return epsilon_of_noise(Ledger(self.folder / f"runs-{party}" / "ledger.sqlite").events(), delta)


def epsilon_of_noise(events: Iterable[Event], delta: float) -> float:
    return worst_epsilon([event for event in events if not isinstance(event, ExactRelease)], delta)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def pair(tmp_path: Path, certificates: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, certificates)
    yield made
    made.town.close()


@pytest.mark.fast
def test_one_default() -> None:
    assert Policy().delta == SealedOptions().delta == SealedOptions().delta_features == DEFAULT_DELTA


def test_an_epsilon_of_one_runs_under_a_limit_of_one(pair: Pair) -> None:
    pair.train(bank={"epsilon_per_job": 1.0}, eps=1.0)
    assert 0.95 < pair.noised("bank", DEFAULT_DELTA) <= 1.0
    shown = pair.town.answer("ledger", "show", "--party", "bank.toml")
    assert shown["delta"] == DEFAULT_DELTA
    assert f"{shown['spent']:.3f}" == "1.000"


def test_noise_is_made_for_the_delta_of_the_policy(pair: Pair) -> None:
    config = pair.train(bank={"epsilon_per_job": 1.0, "delta": 1e-7}, eps=1.0)
    assert config.options["delta"] == 1e-7
    assert 0.95 < pair.noised("bank", 1e-7) <= 1.0


def test_a_job_with_another_delta_than_its_owner_is_refused_before_anybody_is_asked(pair: Pair) -> None:
    with pytest.raises(AgainstPolicy) as refused:
        pair.train(bank={"delta": 1e-7}, delta=1e-5)
    assert "set delta = 1e-07 under [training.options] in the job file" in refused.value.remedy
    assert not (pair.folder / "runs-bank").exists()
    assert pair.train(bank={"delta": 1e-7}, delta=1e-07).options["delta"] == 1e-7


def test_a_passive_owner_says_which_delta_to_put_into_the_job(pair: Pair) -> None:
    with pytest.raises(PeerRefused) as refused:
        pair.train(shop={"delta": 1e-6}, eps_features=8.0)
    assert "set delta_features = 1e-06 under [training.options] in the job file" in refused.value.remedy
    assert not list((pair.folder / "runs-shop").glob("[!.]*"))
    config = pair.train(shop={"delta": 1e-6}, eps_features=8.0, delta_features=1e-6)
    rows = len(RunFolder(pair.folder / "runs-shop" / "credit").alignment)
    planned = epsilon_of_noise(SEALED.plan(config, rows, Role.PASSIVE, 3), 1e-6)
    assert 7.0 < planned <= 8.0 * (1 + 1e-9)  # sums of squares are rounded
    assert 0.0 < pair.noised("shop", 1e-6) <= planned  # where noise lets a tree end early, less is released


def test_a_passive_delta_means_nothing_where_statistics_have_no_noise(pair: Pair) -> None:
    pair.train(shop={"delta": 1e-6})
