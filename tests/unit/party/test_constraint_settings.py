"""Constraints of a bank and a shop with settings of their own: over TLS, each tells the other no name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from two_parties import job_with, make_two, running, settings_of, trained
from veilboost.align.clear import align_by_id
from veilboost.config import TrainingConfig
from veilboost.data.constraints import NO_CONSTRAINTS
from veilboost.errors import MissingColumn, PeerRefused, VeilBoostError
from veilboost.model.joined import join
from veilboost.party.federation import coordinate
from veilboost.party.runs import RunFolder
from veilboost.party.sections import commented_toml
from veilboost.party.settings import load_party
from veilboost.party.simulation import simulate_training

DIRECTIONS = "[data.monotone_constraints]\nx_shop = -1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_two(tmp_path_factory.mktemp("two"))


def constrained_job(daemon, name, column="x_bank"):
    job = job_with(daemon, name)
    return replace(job, training=replace(job.training, monotone_constraints={column: 1}))


def test_each_party_sets_those_of_its_own_columns(folder: Path):
    bank, shop = settings_of(folder, "bank"), settings_of(folder, "shop", more=DIRECTIONS)
    with running(shop) as daemon:
        run = trained(bank, constrained_job(daemon, "limited"))
        free = trained(bank, job_with(daemon, "halfway"))
    theirs = RunFolder(shop.runs / "limited")
    found = join({"bank": run.load_share(), "shop": theirs.load_share()}).sha256()
    tables = align_by_id({"bank": bank.own_data.load(), "shop": shop.own_data.load().without_label()})
    bare = {name: replace(table, constraints=NO_CONSTRAINTS) for name, table in tables.items()}

    def simulated(**directions):
        config = TrainingConfig(n_estimators=2, max_depth=2, monotone_constraints=directions)
        return simulate_training(bare, "bank", "plain", config).model.sha256()

    assert found == simulated(x_bank=1, x_shop=-1) != simulated()
    halfway = join({"bank": free.load_share(), "shop": RunFolder(shop.runs / "halfway").load_share()}).sha256()
    assert halfway == simulated(x_shop=-1)
    assert "x_bank" not in theirs.job_text
    assert not any(b"x_bank" in each.read_bytes() for each in theirs.path.rglob("*") if each.is_file())
    assert not any(b"x_shop" in each.read_bytes() for each in run.path.rglob("*") if each.is_file())


def test_a_misspelt_column_is_refused_at_its_owner_and_only_there(folder: Path):
    shop = settings_of(folder, "shop", more="[data.monotone_constraints]\nx_shup = -1\n")
    with pytest.raises(MissingColumn, match="x_shop"):
        shop.own_data.load()
    report = shop.own_data.check()
    assert [error.code for error in report.errors] == [MissingColumn.code]
    assert report.table is None
    bank = settings_of(folder, "bank")
    with running(shop) as daemon, pytest.raises(PeerRefused) as refused:
        trained(bank, job_with(daemon, "misspelt"))
    assert "x_sh" not in str(refused.value)
    with running(settings_of(folder, "shop")) as daemon:
        job = constrained_job(daemon, "misspelt2", "x_benk")
        with coordinate(bank, job) as coordinator, pytest.raises(MissingColumn, match="x_bank"):
            coordinator.train()


def test_a_column_of_categories_is_refused_before_the_job(folder: Path):
    shop = settings_of(folder, "shop", more="[data.monotone_constraints]\nshade = 1\n")
    with running(shop) as daemon, coordinate(settings_of(folder, "bank"), job_with(daemon, "shades")) as coordinator:
        readiness = coordinator.check()
        assert readiness.errors["shop"] is not None
        assert "shade" not in str(readiness.errors["shop"])
        with pytest.raises(VeilBoostError):
            coordinator.train()


def test_settings_are_written_as_they_are_read(folder: Path):
    file = folder / "written.toml"
    settings = settings_of(folder, "shop", more=DIRECTIONS + '[data.interaction_constraints]\nspending = ["x_shop"]\n')
    file.write_text(commented_toml(settings, "The shop."))
    again = load_party(file).own_data
    assert again.monotone_constraints == {"x_shop": -1}
    assert again.interaction_constraints == {"spending": ("x_shop",)}
    assert again.load().constraints.sets == {"spending": ("x_shop",)}
