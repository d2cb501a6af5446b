"""Every protocol between real processes over mutual TLS; the exact ones give the model of `plain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from parties import CONFIG, PARTIES, Town, make_certificates
from support import QUICK_OPTIONS
from veilboost.errors import UnsupportedCombination
from veilboost.protocols.registry import protocols_of
from veilboost.protocols.validation import ResolvedJob, validate

SPECS = [spec for spec in protocols_of("vertical").values() if spec.name != "plain"]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Daemons that serve all jobs of this file, one after another."""
    certificates = make_certificates(tmp_path_factory.mktemp("authority") / "certs")
    made = Town(tmp_path_factory.mktemp("town"), certificates)
    names = tuple(spec.name for spec in SPECS)
    for party in PARTIES:
        made.settle(party, policy={"protocols": names, "allow_unprotected": names})
    made.serve("shop", "telecom")
    yield made
    made.close()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_job_over_tls(town: Town, spec) -> None:
    config = replace(CONFIG, n_estimators=3, options=QUICK_OPTIONS.get(spec.name, {}))
    try:
        validate(ResolvedJob(spec, config))
    except UnsupportedCombination:
        config = replace(config, categories="ordinal")
    addresses = {party: town.address(party) for party in ("shop", "telecom")}
    job = town.write_job(addresses, spec.name, config, protocol=spec.name)
    done = town.answer("train", job.name, "--config", "bank.toml")
    assert done["rounds"] == 3
    if spec.exact or spec.name in QUICK_OPTIONS:
        assert town.sha(spec.name) == town.simulated(replace(config, options={}))
