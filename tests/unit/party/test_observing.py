"""What an operator sees of a party: its log, its metrics, its health, and the state of the party and its peers."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import CONFIG, Town, free_port, make_certificates
from veilboost import Federation, logs
from veilboost.durable import Locks, holder
from veilboost.errors import VeilBoostError
from veilboost.party import hub, monitor, ping, status
from veilboost.party.certs import issue
from veilboost.party.daemon import Daemon
from veilboost.party.hub import LinkHub, tls_files
from veilboost.party.identity import PeerIdentity, describe, peer_identity, server_name
from veilboost.party.messages import Pong, Propose
from veilboost.party.metrics import Metrics
from veilboost.party.runs import RunFolder
from veilboost.party.settings import DataSettings, LoggingSettings, PartySettings, PeerSettings, load_party
from veilboost.party.vertical_session import VerticalSession
from veilboost.privacy.event import Adjacency, Duchi
from veilboost.privacy.ledger import Ledger
from veilboost.wire.grpc import HEALTH, HELLO_BYTES, SERVICE, Greeting, LinkLimits, dial
from veilboost.wire.message import encode
from veilboost.wire.rpc import Kind, Packet

pytestmark = pytest.mark.fast
MARK = "zebra"  # in all names and values of the tables
FEW = replace(CONFIG, n_estimators=3, max_depth=2)
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def town(tmp_path: Path, certificates: Path) -> Iterator[Town]:
    made = Town(tmp_path, certificates, rows=200, overlap=False)
    yield made
    made.close()


@contextmanager
def logged(level: str = "debug", format: str = "json") -> Iterator[list[dict[str, Any]]]:
    """The records of a block, all parties together, as they are written."""
    records: list[dict[str, Any]] = []
    with redirect_stderr(io.StringIO()) as stream:
        with logs.logging_to_stderr(level, format):
            yield records
        records += map(json.loads, stream.getvalue().splitlines())


@contextmanager
def served(town: Town, **changes: Any) -> Iterator[Daemon]:
    town.settle("shop", **changes)
    daemon = Daemon(load_party(town.folder / "shop.toml"))
    try:
        yield daemon
    finally:
        daemon.stop()


def federation(town: Town, daemon: Daemon, name: str = "credit") -> Federation:
    job = town.write_job({"shop": f"127.0.0.1:{daemon.port}"}, name=name, config=FEW)
    return Federation(job, town.folder / "bank.toml")


def fetched(address: str | None, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}/{page}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(daemon: Daemon) -> dict[str, float]:
    text = fetched(daemon.monitor.address, "metrics")[1]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


# --- logs -------------------------------------------------------------------------------------------------


def mark_tables(town: Town) -> None:
    """Tables whose ids, columns, categories and classes all have the mark."""
    rng = np.random.default_rng(3)
    ids, number = [f"{MARK}-id-{at}" for at in range(200)], rng.normal(size=200)
    words = np.array([f"{MARK}-a", f"{MARK}-b"])
    shop = {f"{MARK}_id": ids, f"{MARK}_n": number, f"{MARK}_text": words[rng.integers(2, size=200)]}
    bank = {f"{MARK}_id": ids, f"{MARK}_n": rng.normal(size=200), f"{MARK}_label": words[(number > 0).astype(int)]}
    for party, table in (("shop", shop), ("bank", bank)):
        pq.write_table(pa.table(table), town.folder / f"{party}.parquet")
        label = f"{MARK}_label" if party == "bank" else None
        town.settle(party, data=DataSettings(Path(f"{party}.parquet"), id=f"{MARK}_id", label=label))


def test_a_job_is_logged_at_both_parties_without_anything_of_their_tables(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_tables(town)
    with logged() as records:
        daemon = Daemon(load_party(town.folder / "shop.toml"))
        try:
            driven = federation(town, daemon)
            driven.train(progress=False)
            driven.predict(town.folder / "bank.parquet")

            def fail(*_: object) -> None:
                raise ValueError(f"could not convert '{MARK}-b' in column '{MARK}_n'")

            with monkeypatch.context() as patched:
                patched.setattr(VerticalSession, "_begin_alignment", fail)
                with pytest.raises(VeilBoostError):
                    federation(town, daemon, "second").train(progress=False)
            broken = pq.read_table(town.folder / "shop.parquet").set_column(1, f"{MARK}_n", pa.array([1.0] * 200))
            pq.write_table(broken, town.folder / "shop.parquet")
            with pytest.raises(VeilBoostError):
                federation(town, daemon, "third").train(progress=False)
            pq.write_table(broken.drop([f"{MARK}_text"]), town.folder / "shop.parquet")
            with pytest.raises(VeilBoostError):
                driven.predict(town.folder / "bank.parquet")
        finally:
            daemon.stop()
    assert MARK not in json.dumps(records)
    assert MARK in RunFolder.open(town.folder / "runs-shop", "third").status["error"], "the owner finds it there"
    here = [each["event"] for each in records if each.get("job") == "credit" and "peer" in each]
    there = [each["event"] for each in records if each.get("job") == "credit" and "peer" not in each]
    assert [event for event in here if event.startswith(("job", "pred")) and event != "job_proposed"] == [
        "job_accepted", "job_begun", "job_finished", "prediction_accepted", "prediction_answered", "prediction_accepted"
    ]  # fmt: skip
    assert here.count("ledger_spent") > 1
    assert [event for event in there if event.startswith("job")] == ["job_proposed", "job_begun", "job_finished"]
    assert there.count("round_finished") == FEW.n_estimators
    failed = {(each["job"], each["code"]) for each in records if each["event"] == "request_refused"}
    assert failed == {("second", "VB-1707"), ("third", "VB-1107"), ("credit", "VB-1107")}
    assert [each["job"] for each in records if each["event"] == "job_failed"] == ["second"] * 2 + ["third"] * 2
    for each in records:
        assert each["event"] in logs.EVENTS
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["time"])
        if each["event"].startswith(("job", "ledger", "prediction")):
            assert each["job"] in {"credit", "second", "third"}
            assert re.fullmatch("[0-9a-f]{8}", each["session"])


def test_a_refused_job_is_logged_with_its_code_and_full_reason(town: Town) -> None:
    with served(town, policy={"max_trees": 2}) as daemon, logged() as records, pytest.raises(VeilBoostError):
        federation(town, daemon).train(progress=False)
    refused = next(each for each in records if each["event"] == "job_refused")
    assert (refused["job"], refused["peer"], refused["code"]) == ("credit", "bank", "VB-1612")
    assert "max_trees" in refused["message"]


def test_a_job_that_fails_at_its_driver_before_it_is_proposed_is_logged_there(town: Town) -> None:
    mark_tables(town)
    table = pq.read_table(town.folder / "bank.parquet")
    pq.write_table(table.set_column(1, f"{MARK}_n", pa.array([1.0] * 200)), town.folder / "bank.parquet")
    job = town.write_job({"shop": "127.0.0.1:1"}, config=FEW)
    with logged() as records, pytest.raises(VeilBoostError):
        Federation(job, town.folder / "bank.toml").train(progress=False)
    assert [(each["event"], each["job"], each["code"]) for each in records] == [("job_failed", "credit", "VB-1107")]
    assert MARK not in json.dumps(records)


def test_a_resumed_and_a_parked_job_are_logged(town: Town) -> None:
    with served(town) as daemon, logged() as records:
        job = federation(town, daemon)

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("veilboost.party.coordinator.Coordinator._after_round", stop)
            with pytest.raises(KeyboardInterrupt):
                job.train(progress=False)
        job.train(resume=True, progress=False)
        leave_job(daemon, town)
    ended = {each["event"] for each in records if "peer" in each}
    assert {"job_cancelled", "job_resumed", "job_finished", "job_parked"} <= ended


def leave_job(daemon: Daemon, town: Town) -> None:
    """A job that is accepted and whose driver never comes back, at a daemon that is stopped then."""
    text = town.write_job({"shop": "127.0.0.1:1"}, name="left", config=FEW).read_text()
    bank = peer_identity(load_party(town.folder / "bank.toml").certificates.cert.read_bytes())
    body = encode(Propose(text, dry_run=False, resume=False))
    assert daemon.host.handle(bank, Packet(Kind.REQUEST, b"x" * 16, 1, body, b"digest")).kind is Kind.ANSWER
    daemon.host.close()


def test_ledger_entries_are_logged_with_kind_and_epsilon(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    event = Duchi(0.5, what=MARK, adjacency=Adjacency.LABEL, adversary="shop", protocol="ldp", release="round 1")
    with logged("info") as records:
        number = ledger.reserve("credit/1", float("inf"), 1e-5, lambda: None)
        ledger.append("credit/1", event)
        ledger.append("credit/1", event)  # a retry books nothing
        ledger.close("credit/1", number)
        ledger.close("credit/1", number)
    assert [each["event"] for each in records] == ["ledger_reserved", "ledger_spent", "ledger_closed"]
    assert records[0]["epsilon"] == "inf"
    assert [records[1][key] for key in ("kind", "receiver", "epsilon")] == ["duchi", "shop", 0.5]
    assert MARK not in json.dumps(records)


def test_text_is_one_printable_line_and_exceptions_lose_their_text() -> None:
    logger = logging.getLogger("grpc._server")  # whose errors may have the text of ours
    with redirect_stderr(io.StringIO()) as stream, logs.logging_to_stderr("warning", "text"):
        with logs.bound(peer="bank"), logs.bound(job="credit"):
            logs.EventLogger("veilboost.test").warning("job_refused", "a\nb\x1b[31m")
            logs.EventLogger("veilboost.test").info("job_begun", "below the level")
        try:
            raise ValueError(MARK)
        except ValueError:
            logger.exception("failed")
        thread = threading.Thread(target=dict[str, str]().popitem)
        thread.start()
        thread.join()
    first, second, third = stream.getvalue().splitlines()
    assert re.fullmatch(r"\S+Z WARNING job_refused job=credit peer=bank: a\?b\?\[31m", first)
    assert re.fullmatch(r"\S+Z ERROR grpc._server: failed: ValueError at \S+", second)
    assert " internal_error: a thread ended: KeyError" in third


def test_commands_log_at_the_level_of_the_settings_and_train_is_quiet_by_default(town: Town) -> None:
    town.settle("bank", logging=LoggingSettings())
    with served(town) as daemon:
        job = federation(town, daemon).job.name
        code, _, err = town.run("train", f"{job}.toml", "--config", "bank.toml")
        assert code == 0, err
        assert "job_proposed" not in err
        town.settle("bank", logging=LoggingSettings("info", "json"))
        town.write_job({"shop": f"127.0.0.1:{daemon.port}"}, name="loud", config=FEW)
        err = town.run("train", "loud.toml", "--config", "bank.toml")[2]
    events = [json.loads(line)["event"] for line in err.splitlines() if line.startswith("{")]
    assert {"job_proposed", "job_begun", "job_finished"} <= set(events)


# --- refused peers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "code"),
    [("unknown", "VB-1607"), ("revoked", "VB-1608"), ("expired", "VB-1603"), ("release", "VB-1404")],
)
def test_every_refusal_of_a_peer_is_logged_and_counted(
    town: Town, monkeypatch: pytest.MonkeyPatch, why: str, code: str
) -> None:
    own = LinkHub(load_party(town.folder / "bank.toml")).identity
    release = b"9.9.9" if why == "release" else hub.__version__.encode()
    policy = {"peers": {"telecom": ("any",)}} if why == "unknown" else {}

    def bank(certificate: bytes) -> PeerIdentity:
        found = peer_identity(certificate)
        return replace(found, not_after=datetime.now(UTC) - timedelta(days=1)) if why == "expired" else found

    monkeypatch.setattr(hub, "peer_identity", bank)
    if why == "revoked":
        serial = peer_identity(own.certificate).serial
        monkeypatch.setattr(hub, "revoked_at", lambda settings: frozenset({serial}))
    with served(town, policy=policy, metrics="127.0.0.1:0") as daemon, logged("warning") as records:
        greeting = Greeting("shop", bytes(HELLO_BYTES) + release, lambda proof: None, 5.0)
        with pytest.raises(VeilBoostError):
            dial(f"127.0.0.1:{daemon.port}", tls_files(own), server_name("shop"), LinkLimits(1 << 20), greeting)
        assert samples(daemon)[f'veilboost_refusals_total{{code="{code}"}}'] == 1
    (record,) = records
    assert (record["event"], record["code"]) == ("peer_refused", code)
    assert "bank" in json.dumps(record)


def test_a_peer_that_this_party_dials_in_vain_is_logged_once(town: Town) -> None:
    town.settle("shop", peers={"bank": PeerSettings(f"127.0.0.1:{free_port()}", "out")})
    tried, dialled = threading.Semaphore(0), LinkHub.dial

    def dial_and_count(*arguments: Any, **options: Any) -> Any:
        tried.release()
        return dialled(*arguments, **options)

    with pytest.MonkeyPatch.context() as patched, logged("warning") as records:
        patched.setattr(LinkHub, "dial", dial_and_count)
        daemon = Daemon(load_party(town.folder / "shop.toml"))
        assert all(tried.acquire(timeout=30) for _ in range(3))
        daemon.stop()
    assert [(each["event"], each["peer"], each["code"]) for each in records] == [
        ("peer_unreachable", "bank", "VB-1409")
    ]


# --- metrics and health -----------------------------------------------------------------------------------


def test_metrics_count_rounds_bytes_and_jobs_of_one_daemon_and_name_no_job(town: Town) -> None:
    town.settle("telecom", metrics="127.0.0.1:0")
    idle = Daemon(load_party(town.folder / "telecom.toml"))
    try:
        with served(town, metrics="127.0.0.1:0", policy={"epsilon_total": 8.0}) as daemon:
            done = federation(town, daemon).train(progress=False)
            federation(town, daemon).predict(town.folder / "bank.parquet")
            found, other = samples(daemon), samples(idle)
            text = fetched(daemon.monitor.address, "metrics")[1]
    finally:
        idle.stop()
    assert found["veilboost_rounds_total"] == FEW.n_estimators
    assert found["veilboost_predicted_rows_total"] == 200
    assert found['veilboost_exchange_seconds_count{message="Checkpoint",peer="bank"}'] == FEW.n_estimators
    assert found['veilboost_jobs{state="finished"}'] == 1
    assert found["veilboost_ledger_epsilon_left"] == 8
    assert 360 < found['veilboost_certificate_expiry_days{certificate="own"}'] < 366
    assert found["process_resident_memory_bytes"] > 1e6
    assert done.traffic is not None
    assert found['veilboost_peer_bytes_total{direction="received",peer="bank"}'] > done.traffic["shop"]["bytes_sent"]
    assert found['veilboost_peer_bytes_total{direction="sent",peer="bank"}'] > done.traffic["shop"]["bytes_received"]
    assert other["veilboost_rounds_total"] == 0
    assert "credit" not in text


@pytest.fixture
def settings(town: Town) -> PartySettings:
    town.settle("shop", metrics="127.0.0.1:0")
    made = load_party(town.folder / "shop.toml")
    made.runs.mkdir()
    return made


@pytest.mark.parametrize(
    ("check", "code"), [(None, None), ("runs", "VB-1702"), ("ledger", "VB-1801"), ("certificate", "VB-1602")]
)
def test_readiness_names_the_check_that_fails_and_nothing_else(
    settings: PartySettings, check: str | None, code: str | None
) -> None:
    certificate = settings.runs.parent / "own.crt"
    shutil.copy(settings.certificates.cert, certificate)
    settings = replace(settings, certificates=replace(settings.certificates, cert=certificate))
    if check == "runs":
        settings.runs.rmdir()
    elif check == "ledger":
        settings.ledger_file.write_text("no ledger at all, " * 100)
    elif check == "certificate":
        certificate.write_text("no certificate")
    watched = monitor.Monitor(settings, Metrics(settings))
    try:
        number, text = fetched(watched.address, "readyz")
        assert fetched(watched.address, "healthz")[0] == 200, "a supervisor must not restart it for that"
        assert fetched(watched.address, "etc")[0] == 404
        assert fetched(watched.address, "metrics")[0] == 200
    finally:
        watched.close()
    assert (number, watched.ready()) == ((503, False) if check else (200, True))
    assert {name: found for name, found in json.loads(text)["checks"].items() if found} == (
        {check: code} if check else {}
    )
    assert "ledger.sqlite" not in text


def test_a_scrape_that_fails_is_logged_without_its_text(
    settings: PartySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError(MARK)

    monkeypatch.setattr(monitor, "generate_latest", fail)
    with logged("warning") as records:
        watched = monitor.Monitor(settings, Metrics(settings))
        try:
            with pytest.raises(ConnectionError):
                fetched(watched.address, "metrics")
            assert fetched(watched.address, "healthz")[0] == 200
        finally:
            watched.close()
    assert [each["event"] for each in records] == ["internal_error"]
    assert MARK not in json.dumps(records)


def test_an_occupied_port_of_metrics_is_a_coded_error_and_frees_the_runs_folder(
    settings: PartySettings, town: Town
) -> None:
    watched = monitor.Monitor(settings, Metrics(settings))
    try:
        with pytest.raises(VeilBoostError, match=r"VB-1409: cannot listen on .* for metrics"):
            Daemon(replace(settings, metrics=watched.address))
    finally:
        watched.close()
    Daemon(settings).stop()


def health_of(town: Town, party: str, port: int, service: str) -> Any:
    own = LinkHub(load_party(town.folder / f"{party}.toml")).identity
    credentials = grpc.ssl_channel_credentials(own.ca, own.key, own.certificate)
    name = (("grpc.ssl_target_name_override", server_name("shop")),)
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=name) as channel:
        request = b"" if not service else b"\x0a" + bytes([len(service)]) + service.encode()
        try:
            return channel.unary_unary(f"/{HEALTH}/Check")(request, timeout=10)
        except grpc.RpcError as error:
            return error.code()


def test_the_grpc_health_service_answers_admitted_peers(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_READY_AGE", 0.0)
    with served(town, policy={"peers": {"bank": ("any",)}}) as daemon:
        assert health_of(town, "bank", daemon.port, "") == b"\x08\x01"
        assert health_of(town, "bank", daemon.port, SERVICE) == b"\x08\x01"
        assert health_of(town, "bank", daemon.port, "another") is grpc.StatusCode.NOT_FOUND
        assert health_of(town, "telecom", daemon.port, "") is grpc.StatusCode.PERMISSION_DENIED
        daemon.settings.ledger_file.write_text("no ledger at all, " * 100)
        assert health_of(town, "bank", daemon.port, "") == b"\x08\x02"


@pytest.mark.parametrize(("days", "warned"), [(29, True), (60, False)])
def test_certificates_that_expire_soon_are_logged(
    settings: PartySettings, tmp_path: Path, days: int, warned: bool
) -> None:
    folder = tmp_path / "authority"
    make_certificates(folder)
    issue(folder, "shop", ["localhost"], days, force=True)
    files = replace(settings.certificates, cert=folder / "shop.crt", ca=folder / "ca.crt")
    with logged("warning") as records:
        monitor.warn_about_certificates(replace(settings, certificates=files))
    assert [(each["event"], each["certificate"], round(each["days"])) for each in records] == (
        [("certificate_expires", "own", days)] if warned else []
    )
    assert describe(files.cert).party == "shop"


# --- party status -----------------------------------------------------------------------------------------


def test_status_of_a_party_and_of_its_peers(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with served(town) as daemon:
        address = f"127.0.0.1:{daemon.port}"
        town.settle("bank", peers={"shop": PeerSettings(address)}, limits={"connect_seconds": 1.0})
        federation(town, daemon).train(progress=False)
        own = town.answer("party", "status", "--config", "shop.toml")
        assert own["daemon"].startswith(f"the process {os.getpid()} (the daemon, since ")
        assert (own["problems"], own["jobs"]["finished"]) == ([], 1)
        assert own["disk_free"] > 0
        code, out, _ = town.run("party", "status", "--config", "bank.toml", "--peers", "--json")
        found = json.loads(out)
        assert (code, found["problems"]) == (1, ["the daemon does not run: start it with veilboost party serve"])
        (peer,) = found["peers"]
        assert (peer["peer"], peer["release"], peer["problems"]) == ("shop", hub.__version__, [])
        assert 360 < peer["certificate_days"] < 366
        assert peer["round_trip_ms"] > 0
        assert abs(peer["clock_difference"]) <= 1
        bank = load_party(town.folder / "bank.toml")
        assert not daemon.host._sessions, "a ping leaves no session behind"

        monkeypatch.setattr(ping.PingSession, "_act", lambda *_: Pong("0.2.0", 0))
        (late, gone) = ping.peer_status(bank, {"shop": address, "telecom": nobody})
    assert "its clock differs by" in late.problems[0]
    assert gone.problems[0].startswith("VB-1409: telecom did not answer")
    job = town.write_job({"shop": nobody}, name="other")
    code, out, _ = town.run("party", "status", "--config", "bank.toml", "--job", job.name)
    assert code == 1
    assert "VB-1409: shop did not answer" in " ".join(out.split())


def test_status_lists_running_jobs_and_last_errors(settings: PartySettings) -> None:
    for name, about in {
        "going": {"state": "training", "active": "bank", "since": 1.0},
        "killed": {"state": "training", "pid": 2**22 + 1},
        "bad": {"state": "failed", "error": "VB-1107: why"},
    }.items():
        run = RunFolder.create(settings.runs, name)
        run.note(party="shop", **about)
        run.save_job("a job")
    (RunFolder.create(settings.runs, "torn").path / "status.json").write_text("{")
    found = status.party_status(settings)
    assert {state: number for state, number in found.jobs.items() if number} == {
        "training": 1, "interrupted": 1, "failed": 1, "damaged": 1
    }  # fmt: skip
    assert [(job.job, job.driver) for job in found.running] == [("going", "bank")]
    assert found.running[0].since == 1.0
    assert {job.job for job in found.errors} == {"bad", "torn"}
    assert any("daemon does not run" in problem for problem in found.problems)


def test_the_holder_of_a_lock(tmp_path: Path) -> None:
    lock, locks = tmp_path / "a.lock", Locks()
    assert holder(lock) is None
    locks.take(lock, "testing")
    assert (holder(lock) or "").startswith(f"the process {os.getpid()} (testing, since ")
    locks.release(lock)
    lock.write_text(str(os.getpid()))  # left by a killed process whose number is in use again
    assert holder(lock) is None
    lock.write_text(str(2**22 + 1))
    assert holder(lock) is None
    Locks().take(lock, "testing")


# --- documentation ----------------------------------------------------------------------------------------


def test_the_page_lists_every_event_and_every_metric(settings: PartySettings) -> None:
    page = (ROOT / "docs" / "how-to" / "monitor-a-party.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", page, re.MULTILINE))
    assert {name: told.get(name) for name in logs.EVENTS} == logs.EVENTS
    metrics = Metrics(settings)
    for family in metrics.registry.collect():
        if family.name.startswith("veilboost_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert told.get(name) == family.documentation.rstrip("."), name


def test_every_event_in_the_code_is_declared_and_every_declared_one_is_used() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py") if path.name != "logs.py")
    states = {"job_finished", "job_failed", "job_cancelled"}  # made from the state of a job, or of a deployment
    states |= {"deployment_withdrawn", "deployment_expired"}
    used = {name for name in logs.EVENTS if f'"{name}"' in code} | states | {"internal_error"}
    assert used == set(logs.EVENTS)
    literal = set(re.findall(r"\.(?:debug|info|warning)\(\s*\"([a-z]+_[a-z]+)\"", code))
    assert literal <= set(logs.EVENTS)
