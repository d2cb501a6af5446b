"""FedXGBoost-SMM between processes over mutual TLS: the model of `plain` in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from parties import CONFIG, PARTIES, Town, make_certificates

BOTH = ("smm1", "smm2")


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path, make_certificates(tmp_path / "certs"))
    for party in PARTIES:
        made.settle(party, policy={"protocols": BOTH, "allow_unprotected": BOTH})
    yield made
    made.close()


def test_over_tls_the_model_is_that_of_plain(town: Town) -> None:
    addresses = town.serve("shop", "telecom")
    config = replace(CONFIG, n_estimators=2)
    expected = town.simulated(config)
    for protocol in BOTH:
        job = town.write_job(addresses, protocol, config, protocol=protocol)
        town.answer("train", job.name, "--config", "bank.toml")
        assert town.sha(protocol) == expected
    exchanges = town.answer("transcript", "runs-shop/smm2")["exchanges"]
    assert {"Smm2Kernels", "Smm2Masked", "Smm2Gains"} <= {each["message"] for each in exchanges}
