"""Parties as processes, each on an engine of its own choice: nobody else notices, and a killed driver goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parties import CONFIG, Town, make_certificates
from veilboost.party.settings import ProtocolSettings


def test_every_party_chooses_its_own_engine(tmp_path: Path) -> None:
    (tmp_path / "town").mkdir()
    (tmp_path / "rows").mkdir()
    town = Town(tmp_path / "town", make_certificates(tmp_path / "certs"), rows=300)
    engines = {"bank": f"disk:{tmp_path / 'rows'}", "shop": "disk", "telecom": "local"}
    try:
        for party, engine in engines.items():
            town.settle(party, {"protocols": ("lattice",), "accept_exposed": ("lattice",)}, engine=engine)
        config = replace(CONFIG, n_estimators=6)
        job = town.write_job(town.serve("shop", "telecom"), config=config, protocol=ProtocolSettings("lattice"))
        driver = town.train(job)
        town.until_round(2, driver)
        town.kill(driver)
        town.trained(town.train(job, "--resume"))
        assert town.sha() == town.simulated(config)
    finally:
        town.close()


def test_an_engine_that_cannot_run_the_protocol_refuses_the_job(tmp_path: Path) -> None:
    (tmp_path / "town").mkdir()
    town = Town(tmp_path / "town", make_certificates(tmp_path / "certs"), rows=100)
    try:
        for party in ("bank", "shop", "telecom"):
            engine = "disk" if party == "shop" else "local"
            town.settle(party, {"protocols": ("smm1",), "accept_exposed": ("smm1",)}, engine=engine)
        job = town.write_job(town.serve("shop", "telecom"), protocol=ProtocolSettings("smm1"))
        refused = town.refused("train", job, "--config", town.folder / "bank.toml")
        assert "VB-1004" in refused
        assert "smm1 does not run on the engine disk" in refused
    finally:
        town.close()
