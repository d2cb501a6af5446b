"""Who may do what in the console, and what a hostile web site, peer or guest cannot do."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h11
import httpx
import pytest
import uvicorn
from starlette.routing import Route
from starlette.testclient import TestClient

from console_client import BASE, PASSWORD, console_of, csrf_of, hold, logged_in, stranger
from parties import until
from slow_clients import until_closed
from two_parties import make_two, settings_of
from veilboost.console import app, data, sessions
from veilboost.console.app import LARGEST_FORM, MOST_STREAMS, Console, make_app
from veilboost.console.guard import EVENTS, HEADERS, LIVE, LOOPBACK, PER_MINUTE
from veilboost.console.sessions import FOR_A_NAME, OF_AN_ADDRESS, Sessions
from veilboost.console.users import FILE, Users
from veilboost.errors import DamagedState, ExposedKey, InvalidParameter, OversizedMessage
from veilboost.party.approvals import list_proposals
from veilboost.party.deployment_folder import LIVE as LIVE_DEPLOYMENT
from veilboost.party.deployment_folder import DeploymentFolder
from veilboost.party.runs import RunFolder
from veilboost.service import protocol
from veilboost.service.server import server_config

OPEN = {"/login", "/static/{name}"}
OF_EVERYBODY = {"/login", "/logout"}  # forms that need no approver
DEPLOYMENT = "0" * 32


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A job, a proposal and a deployment, which wait for what a person does."""
    settings_of(make_two(tmp_path), "shop")
    hold(tmp_path / "shop.toml")
    run = RunFolder.create(tmp_path / "runs-shop", "job")
    run.note(party="shop", role="passive", active="bank", state="parked", since=1.0)
    deployment = tmp_path / "runs-shop" / "deployments" / DEPLOYMENT
    deployment.mkdir(parents=True)
    status = {"name": "m", "version": 1, "run": "job", "active": "bank", "parties": ["bank"], "created": 1.0}
    (deployment / "status.json").write_text(json.dumps(status | {"until": 2e10, "trees": 1, "format": 1}))
    return tmp_path / "shop.toml"


@pytest.fixture
def console(config: Path) -> Console:
    return console_of(config)


def routes_of(console: Console) -> dict[tuple[str, str], str]:
    """Every route of the console as (method, path), with its address for a thing that exists."""
    (held,) = list_proposals(console.data.settings)
    ids = {"/inbox/{id}": held.id, "/models/{id}/withdraw": DEPLOYMENT}
    names = {"/static/{name}": "console.js", "/errors/{code}": "VB-1001"}
    found: dict[tuple[str, str], str] = {}
    for route in make_app(console).routes:
        assert isinstance(route, Route), route
        name = ids[route.path] if "{id}" in route.path else names.get(route.path, "job")
        for method in route.methods or ():
            found[method, route.path] = re.sub(r"\{\w+\}", name, route.path)
    return found


def forms_of(console: Console) -> dict[str, str]:
    """The addresses of all forms that do something, by path."""
    return {path: address for (method, path), address in routes_of(console).items() if method == "POST"}


def state_of(config: Path) -> str:
    return RunFolder(config.parent / "runs-shop" / "job").state


def untouched(console: Console) -> bool:
    """Whether nothing was decided, cancelled, withdrawn or audited."""
    settings = console.data.settings
    (held,), folder = list_proposals(settings), DeploymentFolder.at(settings, DEPLOYMENT)
    states = held.state, RunFolder(settings.runs / "job").state, folder.status.now
    return states == ("pending", "parked", LIVE_DEPLOYMENT) and console.data.audits.state("job") == (False, None)


def test_no_page_without_a_login(console: Console) -> None:
    client, routes = stranger(console), routes_of(console)
    assert len(routes) >= 20
    for (method, path), address in routes.items():
        if path in OPEN:
            continue
        for headers in ({}, {"Cookie": f"{console.cookie}=00"}, {"Cookie": f"{console.cookie}="}):
            answer = client.request(method, address, headers=headers)
            page = method == "GET"
            assert (answer.status_code, answer.headers.get("location")) == ((303, "/login") if page else (401, None)), (
                path
            )
    assert client.get("/jobs", headers={"Accept": "*/*"}).status_code == 401
    assert {method for method, _ in routes} == {"GET", "POST"}
    assert untouched(console)


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


def test_a_form_without_the_token_of_the_session_is_refused(console: Console) -> None:
    client, other = logged_in(console), logged_in(console)
    forms = forms_of(console)
    assert len(forms) >= 6
    for path, address in forms.items():
        if path == "/login":  # refused by its origin: there is no session yet
            continue
        for given in ({"reason": "x"}, {"csrf": ""}, {"csrf": csrf_of(other)}, {"csrf": "é"}):
            assert client.post(address, data={"decision": "approve", **given}).status_code == 403, path
        assert client.post(address, content=b"").status_code == 400, path
        assert client.post(address, json={"csrf": csrf_of(client)}).status_code == 400, path
    assert client.get("/jobs").status_code == 200
    assert untouched(console)


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


def test_a_viewer_only_reads(console: Console) -> None:
    client = logged_in(console, "vera")
    given = {"csrf": csrf_of(client), "decision": "approve", "reason": "x"}
    for path, address in forms_of(console).items():
        if path not in OF_EVERYBODY:
            answer = client.post(address, data=given)
            assert answer.status_code == 403, path
            assert "vera is a viewer" in answer.text, path
    assert untouched(console)
    for (method, path), address in routes_of(console).items():
        if method == "GET" and path not in OPEN | {EVENTS, "/"}:  # the stream has no end
            answer = client.get(address)
            if "attachment" not in answer.headers.get("content-disposition", ""):
                assert answer.text.count("<form") == 1, path  # to log out
                assert 'class="danger"' not in answer.text, path


def test_an_approver_decides_cancels_and_withdraws(console: Console, config: Path) -> None:
    client = logged_in(console)
    given = {"csrf": csrf_of(client)}
    (held,) = list_proposals(console.data.settings)
    assert "Approve</button>" in client.get(f"/inbox/{held.id}").text
    assert client.post(f"/inbox/{held.id}", data={**given, "decision": "approve"}).status_code == 303
    assert list_proposals(console.data.settings)[0].state == "approved"
    assert "Withdraw m" in client.get("/models").text
    assert client.post(f"/models/{DEPLOYMENT}/withdraw", data=given).status_code == 303
    assert "withdrawn" in client.get("/models").text
    assert "Cancel job" in client.get("/jobs/job").text
    assert client.post("/jobs/job/cancel", data=given).headers["location"] == "/jobs/job"
    assert state_of(config) == "ended"
    assert client.post("/jobs/job/cancel", data=given).status_code == 400  # it has ended


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


def test_a_session_cannot_be_planted(console: Console) -> None:
    """The key of a session is new at each login, whatever the browser has sent; the one before it ends."""
    client = stranger(console)
    client.cookies.set(console.cookie, "planted", domain="127.0.0.1")
    keys = list[str]()
    for name in ("vera", "anna"):
        answer = client.post("/login", data={"name": name, "password": PASSWORD})
        keys.append(answer.headers["set-cookie"].partition(";")[0].partition("=")[2])
        client = stranger(console)
        client.cookies.set(console.cookie, keys[-1], domain="127.0.0.1")
        assert f"{name} (" in client.get("/jobs").text
    assert len({"planted", *keys}) == 3
    assert all(len(bytes.fromhex(key)) == 32 for key in keys)
    for old in ("planted", keys[0]):
        assert stranger(console).get("/jobs", headers={"Cookie": f"{console.cookie}={old}"}).status_code == 303


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
    answer = client.post("/logout", data={"csrf": csrf_of(client), "reason": "x" * LARGEST_FORM})
    assert (answer.status_code, OversizedMessage.code in answer.text) == (400, True)
    answer = stranger(console).post("/login", data={"name": "anna", "password": "x" * LARGEST_FORM})
    assert (answer.status_code, OversizedMessage.code in answer.text) == (400, True)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for content in (b"\xff=\xff", b"&".join([b"a=b"] * 21), b"csrf"):
        assert client.post("/logout", content=content, headers=form).status_code in (400, 403), content[:9]
    assert client.get("/jobs").status_code == 200


def test_streams_are_limited(console: Console) -> None:
    client = logged_in(console)
    console.streams = MOST_STREAMS
    console.stop()  # a stream that is opened anyway ends at once
    assert client.get("/events").status_code == 400


def test_a_stream_ends_with_the_console(console: Console) -> None:
    client = logged_in(console)
    console.stop()
    assert client.get("/events").text == "event: over\ndata: over\n\n"


@pytest.mark.parametrize("job", [None, "job"])
def test_a_stream_tells_of_changes(
    console: Console, config: Path, monkeypatch: pytest.MonkeyPatch, job: str | None
) -> None:
    monkeypatch.setattr(app, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(data, "SCAN_AGE", 0.0)
    key = logged_in(console).cookies[console.cookie]

    async def told() -> list[str]:
        changes = app._changes(console, key, job)
        first = await anext(changes)
        RunFolder(config.parent / "runs-shop" / "job").note(state="failed")
        second = await anext(changes)
        await changes.aclose()
        return [first, second]

    found = asyncio.run(asyncio.wait_for(told(), 60))
    assert len(set(found)) == 2
    assert all(re.fullmatch(r"data: -?[0-9a-f]+\n\n", each) for each in found), found
    assert console.streams == 0


def log_out(console: Console, client: TestClient) -> None:
    client.post("/logout", data={"csrf": csrf_of(client)})


def remove_user(console: Console, client: TestClient) -> None:
    console.users.remove("vera")


def change_password(console: Console, client: TestClient) -> None:
    console.users.add("vera", "viewer", PASSWORD + "2")


@pytest.mark.parametrize("end", [log_out, remove_user, change_password])
def test_a_stream_ends_with_its_session(
    console: Console, monkeypatch: pytest.MonkeyPatch, end: Callable[[Console, TestClient], None]
) -> None:
    monkeypatch.setattr(app, "LOOK_SECONDS", 0.01)
    client, page = logged_in(console, "vera"), stranger(console)
    cookie = {"Cookie": f"{console.cookie}={client.cookies[console.cookie]}"}
    with ThreadPoolExecutor() as pool:
        try:
            stream = pool.submit(page.get, "/events", headers=cookie)
            until(lambda: console.streams == 1, "the stream is open")
            end(console, client)
            assert stream.result(60).text.endswith("event: over\ndata: over\n\n")
        finally:
            console.stop()
    assert console.streams == 0


# --- over the network ------------------------------------------------------------------------------------


@contextlib.contextmanager
def listening(console: Console) -> Iterator[int]:
    """The port of a console that runs in a thread, as `veilboost console` runs it."""
    server = uvicorn.Server(server_config(make_app(console, LOOPBACK), "127.0.0.1", 0, None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the console listens")
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)


def test_an_address_cannot_be_claimed(console: Console) -> None:
    """So nobody has more attempts by naming another address in each of them."""
    with listening(console) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        answers = [
            client.post(
                "/login",
                data={"name": f"user-{number}", "password": "wrong"},
                headers={"X-Forwarded-For": f"10.0.0.{number}", "Forwarded": f"for=10.0.0.{number}"},
            ).status_code
            for number in range(OF_AN_ADDRESS.amount + 2)
        ]
    assert answers == [403] * OF_AN_ADDRESS.amount + [429] * 2


FORM = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"


@pytest.mark.parametrize(
    "start", [b"", FORM, FORM + b"Content-Length: 9000\r\n\r\nname="], ids=["nothing", "headers", "body"]
)
def test_a_client_that_sends_slowly_is_dropped(console: Console, monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    monkeypatch.setattr(protocol, "SECONDS", {h11.IDLE: 0.3, h11.SEND_BODY: 0.3})
    with listening(console) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
        slow.sendall(start)
        assert httpx.get(f"http://127.0.0.1:{port}/login").status_code == 200
        assert until_closed(slow) == b""


def test_headers_without_an_end_are_refused(console: Console) -> None:
    with listening(console) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        with contextlib.suppress(OSError):  # closed before all was sent
            for _ in range(200):
                client.sendall(b"X-A: " + b"x" * 4096 + b"\r\n")
        assert until_closed(client)[:12] in (b"", b"HTTP/1.1 400")


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
