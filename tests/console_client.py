"""A console within the test's process, and browsers without a screen that use it."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.testclient import TestClient

from veilboost.console.app import Console, make_app
from veilboost.console.data import ConsoleData
from veilboost.console.guard import LOOPBACK
from veilboost.console.sessions import Sessions
from veilboost.console.users import FILE, Users
from veilboost.party.settings import PartySettings, load_party

PASSWORD = "correct horse battery"  # noqa: S105
BASE = "http://127.0.0.1:8090"


def open_console(settings: PartySettings, config: Path, trial: tuple[Path, ...] = (), sessions: Sessions | None = None):
    """A console with a viewer `vera` and an approver `anna`."""
    users = Users(settings.runs / FILE)
    if not users.all:
        users.add("vera", "viewer", PASSWORD)
        users.add("anna", "approver", PASSWORD)
    return Console(ConsoleData(settings, config, trial), users, sessions)


def console_of(config: Path, **options: object) -> Console:
    return open_console(load_party(config), config, **options)  # pyright: ignore[reportArgumentType]


def stranger(console: Console) -> TestClient:
    return TestClient(
        make_app(console, LOOPBACK),
        BASE,
        headers={"Accept": "text/html"},
        follow_redirects=False,
        client=("10.0.0.1", 1),
    )


def logged_in(console: Console, name: str = "anna") -> TestClient:
    client = stranger(console)
    answer = client.post("/login", data={"name": name, "password": PASSWORD})
    assert answer.status_code == 303, answer.text
    return client


def csrf_of(client: TestClient) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', client.get("/policy").text)
    assert found is not None
    return found[1]
