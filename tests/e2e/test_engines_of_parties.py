"""Parties as processes, each on an engine of its own choice: nobody else notices, and a killed driver goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from parties import CONFIG, Town, make_certificates
from veilboost.party.settings import DataSettings


def test_every_party_chooses_its_own_engine(tmp_path: Path) -> None:
    (tmp_path / "town").mkdir()
    (tmp_path / "rows").mkdir()
    town = Town(tmp_path / "town", make_certificates(tmp_path / "certs"), rows=300)
    engines = {"bank": f"disk:{tmp_path / 'rows'}", "shop": "disk", "telecom": "local"}
    try:
        for party, engine in engines.items():
            town.settle(party, {"protocols": ("lattice",), "allow_unprotected": ("lattice",)}, engine=engine)
        config = replace(CONFIG, n_estimators=6)
        job = town.write_job(town.serve("shop", "telecom"), config=config, protocol="lattice")
        driver = town.train(job)
        town.until_round(2, driver)
        town.kill(driver)
        town.trained(town.train(job, "--resume"))
        assert town.sha() == town.simulated(config)
    finally:
        town.close()


def test_tables_that_are_folders_stay_where_they_are(tmp_path: Path) -> None:
    """Both are read by shard; a party that is killed while it trains comes back to the rows it had found."""
    (tmp_path / "town").mkdir()
    town = Town(tmp_path / "town", make_certificates(tmp_path / "certs"), rows=300)
    try:
        for party in ("bank", "shop"):
            whole = pq.read_table(town.folder / f"{party}.parquet")
            (town.folder / party).mkdir()
            for number, first in enumerate(range(0, whole.num_rows, 100)):
                pq.write_table(whole.slice(first, 100), town.folder / party / f"{number}.parquet")
            data = DataSettings(Path(party), id="id", label="label" if party == "bank" else None)
            town.settle(party, engine="disk", data=data)
        driver = town.train(town.write_job(town.serve("shop")))
        town.until_round(2, driver)
        town.kill(town.daemons["shop"])
        town.serve("shop")
        town.trained(driver)
        both = ("bank", "shop")
        assert [town.run_folder(party).batches for party in both] == [1, 1]
        assert town.sha(parties=both) == town.simulated(parties=both)
    finally:
        town.close()


def test_an_engine_that_cannot_run_the_protocol_refuses_the_job(tmp_path: Path) -> None:
    (tmp_path / "town").mkdir()
    town = Town(tmp_path / "town", make_certificates(tmp_path / "certs"), rows=150)
    try:
        for party in ("bank", "shop", "telecom"):
            engine = "disk" if party == "shop" else "local"
            town.settle(party, {"protocols": ("smm1",), "allow_unprotected": ("smm1",)}, engine=engine)
        job = town.write_job(town.serve("shop", "telecom"), protocol="smm1")
        refused = town.refused("train", job, "--config", town.folder / "bank.toml")
        assert "VB-1004" in refused
        assert "two settings cannot be combined" in refused, "which, the owner reads"
    finally:
        town.close()
