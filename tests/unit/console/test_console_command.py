"""`veilboost console` and its users, as commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from command_line import call
from console_client import PASSWORD
from two_parties import make_two, settings_of
from veilboost.console.users import FILE, Users
from veilboost.party.settings import load_party
from veilboost.service import server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    settings_of(make_two(tmp_path), "shop")
    return tmp_path


def refused(folder: Path, *arguments: object) -> str:
    done = call("console", *arguments, "--config", "shop.toml", folder=folder)
    assert done.returncode == 2, done.stdout
    return done.stderr


def told(folder: Path, *arguments: object) -> dict[str, object]:
    done = call("console", *arguments, "--config", "shop.toml", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_users_are_added_listed_and_removed(folder: Path) -> None:
    password = folder / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    made = told(folder, "add-user", "anna", "--role", "approver", "--password-file", password)
    assert made == {"user": "anna", "role": "approver", "new": True}
    token = told(folder, "add-user", "bot", "--token")["token"]
    assert len(str(token)) == 64
    assert str(token) not in (folder / "runs-shop" / "console.json").read_text()
    assert told(folder, "users")["users"] == [{"user": "anna", "role": "approver"}, {"user": "bot", "role": "viewer"}]
    told(folder, "remove-user", "anna")
    assert "anna" not in call("console", "users", "--config", "shop.toml", folder=folder).stdout
    assert "VB-1004" in refused(folder, "add-user", "x", "--token", "--password-file", password)
    password.chmod(0o644)
    assert "VB-1605" in refused(folder, "add-user", "x", "--password-file", password)


def test_an_address_that_others_reach_needs_tls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "run_server", lambda *_: None)  # it would not end
    assert "passwords would be sent without TLS" in refused(folder, "--listen", "0.0.0.0:0")
    assert "TLS needs --tls-cert and --tls-key" in refused(folder, "--listen", "0.0.0.0:0", "--tls-cert", "shop.crt")
    assert "is not an address" in refused(folder, "--listen", "somewhere")
    assert "--config is missing" in call("console", "--listen", "127.0.0.1:0", folder=folder).stderr


def test_with_tls_the_cookie_is_secure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apps: list[Any] = []
    monkeypatch.setattr(server, "run_server", lambda app, *_: apps.append(app))
    settings = load_party(folder / "shop.toml")
    Users(settings.runs / FILE).add("anna", "viewer", PASSWORD)
    files = ("--tls-cert", settings.certificates.cert, "--tls-key", settings.certificates.key)
    for options in ((), ("--listen", "0.0.0.0:0", *files)):
        done = call("console", "--config", "shop.toml", *options, folder=folder)
        assert done.returncode == 0, done.stderr
    cookies = [
        TestClient(app, "https://127.0.0.1")
        .post("/login", data={"name": "anna", "password": PASSWORD}, follow_redirects=False)
        .headers["set-cookie"]
        for app in apps
    ]
    assert ["; secure" in each.lower() for each in cookies] == [False, True]
