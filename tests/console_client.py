"""A console within the test's process, and browsers without a screen that use it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from parties import until
from veilboost.console.app import Console, make_app
from veilboost.console.data import ConsoleData
from veilboost.console.guard import LOOPBACK
from veilboost.console.sessions import Sessions
from veilboost.console.users import FILE, Users
from veilboost.errors import ApprovalPending
from veilboost.party.approvals import Proposal, list_proposals, require_approval
from veilboost.party.identity import PeerIdentity
from veilboost.party.proposals import Subject
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


def computed(client: TestClient, path: str, sign: str) -> str:
    """The page, as soon as what a thread computes for it is there."""
    until(lambda: sign in client.get(path).text, sign)
    return client.get(path).text


def hold(config: Path, name: str = "income", **changes: object) -> Proposal:
    """A proposal of the bank that waits for a decision, with this name wherever a peer or a table gives one."""
    text = config.read_text()
    if 'approval = "ask"' not in text:
        config.write_text(text.replace("[policy]\n", '[policy]\napproval = "ask"\n'))
    settings = load_party(config)
    claim = {"victim": "passive", "data": name, "adversary": "x", "status": "broken", "why": "y", "attack": None}
    subject = Subject(
        kind="training",
        role="passive",
        job="credit",
        protocol="plain",
        settings={name: name},
        table="main",
        columns=(name, "income"),
        rows=180,
        statements=(claim,),
        reveals=({"what": name, "to": "active"},),
        epsilon=1.5,
        epsilon_left=6.5,
        size={"trees": 2, "depth": 2, "bins": 16, "parties": 2},
        assignments=4,
    )
    subject = replace(subject, **changes)  # pyright: ignore[reportArgumentType]
    peer = PeerIdentity("bank", "ab" * 32, datetime(2100, 1, 1, tzinfo=UTC), 1)
    with pytest.raises(ApprovalPending):
        require_approval(settings, peer, "digest", lambda: subject)
    (held,) = list_proposals(settings)
    return held


class Reader(HTMLParser):
    """Collects what a page would load, run or send, and what a person needs to use it without a mouse."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self.labelled: set[str] = set()
        self.inputs: list[str] = []
        self.levels: list[int] = []
        self.landmarks: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loaded += [str(given[key]) for key in ("src", "href", "action", "data", "srcset") if key in given]
        self.inline += [f"{tag} {key}" for key in given if key == "style" or key.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)
        if tag == "label":
            self.labelled.add(str(given["for"]))
        if tag in ("input", "textarea") and given.get("type") != "hidden":
            self.inputs.append(str(given.get("id")))
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag in ("main", "nav", "header", "footer"):
            self.landmarks.append(tag)


def check_page(text: str) -> None:
    """A page loads nothing from elsewhere, and can be used without a mouse and with a screen reader."""
    found = Reader(text)
    assert [each for each in found.loaded if not re.match(r"/(?!/)|#", each)] == []
    assert found.inline == []
    assert set(found.inputs) <= found.labelled
    assert found.levels[0] == 1
    assert found.levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(found.levels, found.levels[1:], strict=False))
    assert {"main", "nav", "header", "footer"} <= set(found.landmarks)
    assert 'class="skip" href="#content"' in text
    assert '<html lang="en">' in text
