"""Who may do what in the console, and what a hostile web site, peer or guest cannot do."""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path

import pytest

from console_client import BASE, PASSWORD, console_of, csrf_of, logged_in, stranger
from two_parties import make_two, settings_of
from veilboost.console import sessions
from veilboost.console.app import LARGEST_FORM, MOST_STREAMS, Console, make_app
from veilboost.console.guard import HEADERS, LIVE, PER_MINUTE
from veilboost.console.sessions import FOR_A_NAME, OF_AN_ADDRESS, Sessions
from veilboost.console.users import FILE, Users
from veilboost.errors import DamagedState, ExposedKey, InvalidParameter
from veilboost.party.runs import RunFolder

OPEN = {"/login", "/static/{name}"}
ACTIONS = ("/jobs/job/cancel", "/jobs/job/audit", f"/models/{'0' * 32}/withdraw")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    settings_of(make_two(tmp_path), "shop")
    run = RunFolder.create(tmp_path / "runs-shop", "job")
    run.note(party="shop", role="passive", active="bank", state="parked", since=1.0)
    deployment = tmp_path / "runs-shop" / "deployments" / ("0" * 32)
    deployment.mkdir(parents=True)
    status = {"name": "m", "version": 1, "run": "job", "active": "bank", "parties": ["bank"], "created": 1.0}
    (deployment / "status.json").write_text(json.dumps(status | {"until": 2e10, "trees": 1, "format": 1}))
    return tmp_path / "shop.toml"


@pytest.fixture
def console(config: Path) -> Console:
    return console_of(config)


def state_of(config: Path) -> str:
    return RunFolder(config.parent / "runs-shop" / "job").state


def test_no_page_without_a_login(console: Console) -> None:
    client = stranger(console)
    checked = 0
    for route in make_app(console).routes:
        path = getattr(route, "path", "")
        for method in getattr(route, "methods", ()):
            if path in OPEN:
                continue
            address = re.sub(r"\{\w+\}", "job", path)
            answer = client.request(method, address)
            assert (answer.status_code, answer.headers.get("location")) in ((303, "/login"), (401, None)), path
            assert client.request(method, address, headers={"Cookie": f"{console.cookie}=00"}).status_code in (303, 401)
            checked += 1
    assert checked >= 14
    assert client.get("/jobs", headers={"Accept": "*/*"}).status_code == 401


def test_a_session_has_a_cookie_that_scripts_and_other_sites_cannot_use(console: Console) -> None:
    answer = stranger(console).post("/login", data={"name": "anna", "password": PASSWORD})
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("veilboost-shop=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    console.secure = True
    answer = stranger(console).post("/login", data={"name": "anna", "password": PASSWORD})
    assert "; secure" in answer.headers["set-cookie"].lower()
    assert "max-age" in answer.headers["strict-transport-security"]


def test_every_answer_has_the_headers(console: Console) -> None:
    client = logged_in(console)
    for path in ("/jobs", "/nothing", "/static/console.css", "/login", "/jobs/job/report", "/jobs/none"):
        answer = client.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, path
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", [*ACTIONS, "/logout"])
def test_a_form_without_the_token_of_the_session_is_refused(console: Console, config: Path, path: str) -> None:
    client, other = logged_in(console), logged_in(console)
    for given in ({"reason": "x"}, {"csrf": ""}, {"csrf": csrf_of(other)}, {"csrf": "é"}):
        assert client.post(path, data=given).status_code == 403
    assert client.post(path, content=b"").status_code == 400
    assert client.post(path, json={"csrf": csrf_of(client)}).status_code == 400
    assert client.get("/jobs").status_code == 200
    assert state_of(config) == "parked"


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_a_form_of_another_site_is_refused(console: Console, config: Path, headers: dict[str, str]) -> None:
    client = logged_in(console)
    given = {"csrf": csrf_of(client)}
    assert client.post("/jobs/job/cancel", data=given, headers=headers).status_code == 403
    assert state_of(config) == "parked"
    credentials = {"name": "anna", "password": PASSWORD}
    assert client.post("/login", data=credentials, headers=headers).status_code == 403
    assert client.post("/jobs/job/cancel", data=given, headers={"Origin": BASE}).status_code == 303
    assert state_of(config) == "ended"


def test_a_name_of_another_host_is_refused(console: Console) -> None:
    """So a web site cannot reach the console by letting its own name point to this machine."""
    client = logged_in(console)
    assert client.get("/jobs", headers={"Host": "evil.example:8090"}).status_code == 400
    assert client.get("/jobs", headers={"Host": "localhost:1"}).status_code == 200


@pytest.mark.parametrize("path", ACTIONS)
def test_a_viewer_only_reads(console: Console, config: Path, path: str) -> None:
    client = logged_in(console, "vera")
    answer = client.post(path, data={"csrf": csrf_of(client)})
    assert answer.status_code == 403
    assert "vera is a viewer" in answer.text
    assert state_of(config) == "parked"
    for page in ("/jobs/job", "/models"):
        text = client.get(page).text
        assert text.count("<form") == 1  # to log out
        assert 'class="danger"' not in text


def test_an_approver_cancels_and_withdraws(console: Console, config: Path) -> None:
    client = logged_in(console)
    given = {"csrf": csrf_of(client)}
    assert "Withdraw m" in client.get("/models").text
    assert client.post(ACTIONS[2], data=given).status_code == 303
    assert "withdrawn" in client.get("/models").text
    assert "Cancel job" in client.get("/jobs/job").text
    assert client.post(ACTIONS[0], data=given).headers["location"] == "/jobs/job"
    assert state_of(config) == "ended"
    assert client.post(ACTIONS[0], data=given).status_code == 400  # it has ended


HOSTILE_PATHS = (
    "..%2f..%2fshop.toml", "%2e%2e", "..", ".job.lock", "job%00", "job%2fstatus.json", "%2fetc%2fpasswd", "a" * 300,
    "deployments", "ledger.sqlite",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_PATHS)
def test_no_path_leads_out_of_the_runs_folder(console: Console, config: Path, name: str) -> None:
    client = logged_in(console)
    secret = config.parent / "status.json"
    secret.write_text(json.dumps({"party": "secret", "state": "finished"}))  # what .. would open
    given = {"csrf": csrf_of(client)}
    for path in (f"/jobs/{name}", f"/jobs/{name}/report", f"/static/{name}", f"/errors/{name}", f"/events?job={name}"):
        answer = client.get(path)
        assert answer.status_code in (303, 404), (path, answer.status_code)  # 303: /jobs/.. is /
        assert "secret" not in answer.text
    for action in (f"/jobs/{name}/cancel", f"/jobs/{name}/audit", f"/models/{name}/withdraw"):
        assert client.post(action, data=given).status_code in (400, 404, 405), action


def test_passwords_cannot_be_guessed_quickly(console: Console) -> None:
    client = stranger(console)
    wrong = {"name": "anna", "password": "wrong"}
    answers = [client.post("/login", data=wrong) for _ in range(OF_AN_ADDRESS.amount + 2)]
    assert [each.status_code for each in answers] == [403] * OF_AN_ADDRESS.amount + [429] * 2
    assert (
        client.post("/login", data={"name": "anna", "password": PASSWORD}).status_code == 429
    )  # not even the right one
    assert "set-cookie" not in answers[-1].headers


def test_passwords_of_one_name_cannot_be_guessed_from_many_addresses() -> None:
    attempts = sessions.Attempts()
    for number in range(FOR_A_NAME.amount):
        attempts.count(f"10.0.0.{number}", "anna")
    with pytest.raises(sessions.LimitReached):
        attempts.count("10.1.0.1", "anna")
    attempts.count("10.1.0.2", "vera")


def test_an_unknown_name_and_a_wrong_password_look_alike(console: Console) -> None:
    client = stranger(console)
    texts = {client.post("/login", data={"name": name, "password": "wrong"}).text for name in ("anna", "nobody")}
    assert len(texts) == 1


def test_one_address_has_a_limit(console: Console) -> None:
    client = stranger(console)
    found = [client.get("/static/console.js").status_code for _ in range(PER_MINUTE + 50)]
    assert 429 in found  # even if a minute begins in between


def test_a_session_ends_when_nobody_uses_it(config: Path) -> None:
    now = [0.0]
    console = console_of(config, sessions=Sessions(lambda: now[0]))
    client = logged_in(console)
    for _ in range(3):
        now[0] += sessions.IDLE_SECONDS - 1
        assert client.get("/jobs").status_code == 200
    now[0] += sessions.IDLE_SECONDS - 1
    assert client.get("/jobs", headers={LIVE: "1"}).status_code == 200  # a script, not a person
    now[0] += 2
    assert client.get("/jobs").status_code == 303
    client = logged_in(console)
    for _ in itertools.takewhile(lambda _: now[0] < 2 * sessions.LONGEST_SECONDS, itertools.count()):
        now[0] += sessions.IDLE_SECONDS / 2
        if client.get("/jobs").status_code == 303:
            break
    assert now[0] < 2 * sessions.LONGEST_SECONDS


def test_leaving_and_being_removed_end_a_session(console: Console) -> None:
    client = logged_in(console)
    key = client.cookies[console.cookie]
    assert client.post("/logout", data={"csrf": csrf_of(client)}).headers["location"] == "/login"
    assert client.get("/jobs", headers={"Cookie": f"{console.cookie}={key}"}).status_code == 303
    client = logged_in(console, "vera")
    console.users.remove("vera")
    assert client.get("/jobs").status_code == 303


def test_a_changed_password_or_role_ends_sessions_and_counts_at_once(console: Console) -> None:
    client = logged_in(console, "vera")
    console.users.add("vera", "approver", PASSWORD)
    assert client.get("/jobs").status_code == 303
    assert "Cancel this job" in logged_in(console, "vera").get("/jobs/job").text


def test_large_and_strange_forms_are_refused(console: Console) -> None:
    client = logged_in(console)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for content in (b"csrf=" + b"x" * LARGEST_FORM, b"\xff=\xff", b"&".join([b"a=b"] * 21), b"csrf"):
        assert client.post("/logout", content=content, headers=form).status_code in (400, 403), content[:9]
    assert client.get("/jobs").status_code == 200


def test_streams_are_limited(console: Console) -> None:
    client = logged_in(console)
    console.streams = MOST_STREAMS
    assert client.get("/events").status_code == 400


def test_a_stream_tells_of_changes_and_ends_with_the_console(console: Console) -> None:
    client = logged_in(console)
    console.stop()
    assert client.get("/events").text == "event: over\ndata: over\n\n"


def test_users_are_stored_as_hashes_in_a_private_file(tmp_path: Path) -> None:
    users = Users(tmp_path / FILE)
    assert users.add("anna", "approver", PASSWORD)
    assert not users.add("anna", "viewer", PASSWORD + "2")
    content = (tmp_path / FILE).read_text()
    assert "$argon2id$" in content
    assert PASSWORD not in content
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    assert users.admit("anna", PASSWORD + "2") == users.all["anna"]
    for name, password in (("anna", PASSWORD), ("anna", ""), ("", ""), ("bob", PASSWORD), ("anna", "x" * 5000)):
        assert users.admit(name, password) is None
    for name, role, password in (("a/b", "viewer", PASSWORD), ("anna", "king", PASSWORD), ("anna", "viewer", "short")):
        with pytest.raises(InvalidParameter):
            users.add(name, role, password)
    with pytest.raises(InvalidParameter):
        users.remove("bob")
    os.chmod(tmp_path / FILE, 0o644)
    with pytest.raises(ExposedKey):
        _ = Users(tmp_path / FILE).all
    os.chmod(tmp_path / FILE, 0o600)
    (tmp_path / FILE).write_text('{"users": {"anna": {"role": "king", "hash": ""}}}')
    with pytest.raises(DamagedState):
        _ = Users(tmp_path / FILE).all
