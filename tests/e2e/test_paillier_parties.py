"""`paillier` between processes over mutual TLS: the model of `plain`, also when the driver is killed in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parties import CONFIG, Town, make_certificates

SHORT = {"key_bits": 512, "allow_insecure_key": True}


def test_parties_over_tls_train_the_model_of_plain_and_resume(tmp_path: Path) -> None:
    (tmp_path / "town").mkdir()
    town = Town(tmp_path / "town", make_certificates(tmp_path / "certs"), rows=150)
    try:
        for party in ("bank", "shop", "telecom"):
            town.settle(party, policy={"protocols": ("paillier",), "allow_unprotected": ("paillier",)})
        plain = replace(CONFIG, n_estimators=12)
        job = town.write_job(
            town.serve("shop", "telecom"),
            config=replace(plain, options=SHORT),
            protocol="paillier",
        )
        driver = town.train(job)
        town.until_round(2, driver)
        town.kill(driver)
        town.trained(town.train(job, "--resume"))  # with a new key
        assert town.sha() == town.simulated(plain)
    finally:
        town.close()
