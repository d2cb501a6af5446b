"""`veilboost prepare`, and what a daemon says of serving users when it starts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from parties import CONFIG, Town, make_certificates
from support import SHORT_KEY
from veilboost.cli.main import app
from veilboost.cli.party import _tell
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.party.hub import own_identity
from veilboost.party.settings import load_party

pytestmark = pytest.mark.fast


@pytest.fixture
def town(tmp_path: Path):
    town = Town(tmp_path, make_certificates(tmp_path / "certs"), rows=30)
    yield town
    town.close()


def prepare(town, *more, **options):
    training = dataclasses.replace(CONFIG, categories="ordinal", options=options)
    job = town.write_job({"shop": "127.0.0.1:1"}, config=training, protocol="elxgb")
    return CliRunner().invoke(app, ["prepare", str(job), "--config", str(town.folder / "bank.toml"), *more])


def test_preparing_says_what_lies_where_in_words_and_as_json(town):
    told = json.loads(prepare(town, "--json", **SHORT_KEY).stdout)
    assert told["ids"] is None, "ecdh hashes none"
    made = told["encryption"]
    assert (made["encryptions"], made["key_bits"]) == (27, 512)
    assert made["seconds"] > 0
    assert Path(made["file"]).exists()
    again = prepare(town, "--trees", "3", **SHORT_KEY)
    assert again.exit_code == 0
    assert again.stdout.startswith("computed 81 encryptions with a key of 512 bits in ")
    assert isinstance(prepare(town, backend="lattice").exception, UnsupportedCombination)
    assert prepare(town, "--trees", "0", **SHORT_KEY).exit_code == 2
    assert isinstance(prepare(town, "--only", "everything", **SHORT_KEY).exception, InvalidParameter)


def test_the_old_name_says_the_new_one():
    old = CliRunner().invoke(app, ["elxgb", "prepare", "job.toml", "--config", "bank.toml"])
    assert isinstance(old.exception, InvalidParameter)
    assert "veilboost prepare JOB" in str(old.exception)


def test_a_daemon_says_whose_users_it_serves_and_who_may_deploy(town, capsys):
    town.settle("shop", policy={"serve_users": ("bank",)})
    town.settle("telecom", policy={"deploy_to": ("bank",), "predictions_per_day": 50, "explanations": "party"})
    deploys = "the policy lets bank keep models deployed, at most 50 scores a day; explanations: party"
    for name, data, words in (
        ("shop", True, "the policy lets bank serve users with its encrypted splits"),
        ("telecom", True, deploys),
        ("bank", True, None),
        ("bank", False, "this party can be a server, an authority, a csp or a comparer"),
    ):
        settings = load_party(town.folder / f"{name}.toml")
        if not data:
            settings = dataclasses.replace(settings, data=None)
        daemon = SimpleNamespace(port=1, identity=own_identity(settings), monitor=SimpleNamespace(address=None))
        _tell(daemon, settings, as_json=False)
        said = capsys.readouterr().out
        assert (words in said) if words else not any(each in said for each in ("users", "authority", "deployed"))
    assert "serve_users" in CliRunner().invoke(app, ["party", "serve", "--help"]).stdout
