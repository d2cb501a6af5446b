"""A party that answers, without sockets: every refusal leaves it alive and able to do the next job."""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import os
import time
import typing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veilboost.errors import AgainstPolicy, DamagedState
from veilboost.party.certs import init_authority, issue
from veilboost.party.daemon import SESSIONS, PartyHost, session_for
from veilboost.party.hub import admit_peer
from veilboost.party.identity import peer_identity
from veilboost.party.job import read_job
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    BeginAlignment,
    Checkpoint,
    Finish,
    OpenService,
    Propose,
    ProposePrediction,
)
from veilboost.party.predicting import PREDICTIONS_FILE, spend_predictions, spent_today
from veilboost.party.settings import load_party
from veilboost.protocols.plain.messages import PlainRound
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.vertical.messages import BeginTraining, StatisticsRequest
from veilboost.secure_inference import session as service_session
from veilboost.secure_inference.messages import DirectoryRequest
from veilboost.wire.message import Catalogue, Done, decode, decode_all, encode, join_frames
from veilboost.wire.rpc import Kind, Packet

pytestmark = pytest.mark.fast

JOB = """
name = "{name}"
alignment = "prealigned"
protocol = "{protocol}"
[parties.bank]
role = "active"
[parties.shop]
address = "127.0.0.1:1"
[training]
objective = "binary"
n_estimators = {trees}
"""


RESERVED = ("ledger.sqlite", "Ledger.SQLITE-wal", "ledger.sqlite.head", "predictions.json", "prepared", "a.partial")
RESERVED += ("lookups.json", "console.json", "deployments", "Approvals")


def job(name="first", protocol="plain", trees=3):
    return JOB.format(name=name, protocol=protocol, trees=trees)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    init_authority(folder)
    for party in ("bank", "shop", "stranger"):
        issue(folder, party, ["localhost"])
    return folder


@pytest.fixture
def host(tmp_path, certificates):
    rng = np.random.default_rng(0)
    table = pa.table({"id": np.arange(200), "x": rng.normal(size=200), "z": rng.normal(size=200)})
    pq.write_table(table, tmp_path / "shop.parquet")
    (tmp_path / "shop.toml").write_text(f"""
name = "shop"
runs = "runs"
[certificates]
cert = "{certificates}/shop.crt"
key = "{certificates}/shop.key"
ca = "{certificates}/ca.crt"
[data]
path = "shop.parquet"
id = "id"
[policy]
protocols = ["plain"]
allow_unprotected = ["plain"]
max_trees = 50
[policy.peers]
bank = ["any"]
""")
    party = PartyHost(load_party(tmp_path / "shop.toml"), lambda name, seconds: None)
    yield party
    party.close()


@pytest.fixture
def bank(certificates):
    return peer_identity((certificates / "bank.crt").read_bytes())


class Asker:
    def __init__(self, host, peer, session=b"a" * 16):
        self.host, self.peer, self.session, self.number = host, peer, session, 0

    def __call__(self, *messages, number=None):
        self.number = self.number + 1 if number is None else number
        body = join_frames([encode(message) for message in messages])
        digest = hashlib.sha256(body).digest()
        return self.host.handle(self.peer, Packet(Kind.REQUEST, self.session, self.number, body, digest))


def code_of(packet):
    assert packet.kind is Kind.FAILURE
    return packet.body.decode().split("\n")[0]


def propose(text, dry_run=False, resume=False):
    return Propose(text, dry_run, resume)


def test_a_job_within_the_policy_is_accepted(host, bank):
    assert Asker(host, bank)(propose(job())).kind is Kind.ANSWER


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (job(trees=51), "VB-1612"),
        (job(protocol="nonsense"), "VB-1001"),
        ("not toml [", "VB-1610"),
        ("name = 3", "VB-1611"),
        (job().replace("[parties.shop]", "[parties.other]"), "VB-1612"),
        (job().replace("[parties.bank]", "[parties.it]").replace("[parties.shop]", "[parties.bank]"), None),
        (job(name="../../escape"), "VB-1611"),
        *((job(name=name), "VB-1611") for name in RESERVED),
        ("a = " + "[" * 5000, "VB-1610"),
        ("a = 1" + "0" * 5000, "VB-1610"),
        (job().replace("n_estimators = 3", f"n_estimators = 0x{'f' * 5000}"), "VB-1611"),
        (job().replace("n_estimators = 3", f"weighted_bins = 0x{'f' * 5000}"), "VB-1611"),
        (job().replace("n_estimators = 3", f"learning_rate = 0x{'f' * 5000}"), "VB-1611"),
        (job().replace("n_estimators = 3", f"options = {{ a = 0x{'f' * 5000} }}"), "VB-1002"),
        (job().replace("n_estimators = 3", f"n_estimators = [0x{'f' * 5000}]"), "VB-1611"),
        (job().replace('name = "first"', f"name = 0x{'f' * 5000}"), "VB-1611"),
    ],
)
def test_a_job_outside_the_policy_is_refused_before_anything_is_written(host, bank, tmp_path, text, code):
    answer = Asker(host, bank)(propose(text))
    assert answer.kind is Kind.FAILURE
    if code is not None:
        assert code_of(answer) == code
    assert not (tmp_path / "runs").exists()
    assert Asker(host, bank, b"b" * 16)(propose(job())).kind is Kind.ANSWER


def test_a_dry_run_keeps_nothing(host, bank, tmp_path):
    assert Asker(host, bank)(propose(job(), dry_run=True)).kind is Kind.ANSWER
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_dry_run_cannot_become_a_job(host, bank):
    """Tables that are aligned already are compared within the dry run, so its session stays open."""
    asker = Asker(host, bank)
    assert asker(propose(job(), dry_run=True)).kind is Kind.ANSWER
    assert code_of(asker(propose(job()))) == "VB-1403"
    training = Asker(host, bank, b"b" * 16)
    assert training(propose(job())).kind is Kind.ANSWER
    assert code_of(training(propose(job(), dry_run=True))) == "VB-1403"


def test_a_repeated_request_gets_the_stored_answer(host, bank):
    ask = Asker(host, bank)
    first = ask(propose(job()))
    assert ask(propose(job()), number=1) is first
    assert code_of(ask(propose(job(trees=9)), number=1)) == "VB-1407"
    assert ask(BeginAlignment(), number=2).kind is Kind.ANSWER
    assert code_of(ask(propose(job()), number=1)) == "VB-1407", "an old request does not come back"


def test_a_session_that_is_not_known_or_over_is_stale(host, bank):
    ask = Asker(host, bank)
    assert code_of(ask(BeginAlignment())) == "VB-1408"
    ask(propose(job()))
    last = ask(Finish(completed=False))
    assert last.kind is Kind.ANSWER
    assert ask(Finish(completed=False), number=ask.number) is last, "the last answer can still be repeated"
    assert code_of(ask(BeginAlignment())) == "VB-1408"


def test_messages_out_of_turn_are_refused(host, bank):
    ask = Asker(host, bank)
    ask(propose(job()))
    assert code_of(ask(Checkpoint(1))) == "VB-1403"
    assert code_of(ask(Done())) == "VB-1403"
    assert ask(BeginAlignment()).kind is Kind.ANSWER


def test_several_jobs_use_one_table(host, bank):
    asks = [Asker(host, bank, bytes([at]) * 16) for at in range(3)]
    for at, ask in enumerate(asks):
        assert ask(propose(job(name=f"job{at}"))).kind is Kind.ANSWER
    assert all(ask(BeginAlignment()).kind is Kind.ANSWER for ask in asks)


def test_a_busy_table_refuses_another_job_until_it_is_free(host, bank):
    host.settings = replace(host.settings, limits=replace(host.settings.limits, max_jobs=1))
    first = Asker(host, bank)
    first(propose(job()))
    second = Asker(host, bank, b"b" * 16)
    assert code_of(second(propose(job(name="second")))) == "VB-1701"
    assert first(BeginAlignment()).kind is Kind.ANSWER, "the running job is not disturbed"
    first(Finish(completed=False))
    assert second(propose(job(name="second"))).kind is Kind.ANSWER


def test_a_refused_proposal_does_not_keep_the_table(host, bank):
    assert code_of(Asker(host, bank)(propose(job(), resume=True))) == "VB-1703"
    assert Asker(host, bank, b"b" * 16)(propose(job(name="second"))).kind is Kind.ANSWER


def test_the_same_job_proposed_again_takes_its_table_back(host, bank):
    Asker(host, bank)(propose(job()))
    assert Asker(host, bank, b"b" * 16)(propose(job())).kind is Kind.ANSWER


def aligned(host, bank, rows=200):
    """A host that is ready to train; the bank's side of the alignment is played here."""
    from veilboost.party.vertical_session import VerticalSession

    ask = Asker(host, bank)
    assert ask(propose(job(trees=2))).kind is Kind.ANSWER
    session = host._sessions[ask.session]
    assert isinstance(session, VerticalSession)
    session._decide(bank, rows)
    session._run.save_alignment([np.arange(rows)])
    session._start_training(session._run)
    return ask


def begin(config, rows=200):
    return BeginTraining(json.dumps(config), rows, 1, 0, np.empty(0, np.uint8), np.empty(0))


def gradients(number, rows=200):
    return PlainRound(number, np.empty(0, np.uint8), True, np.empty(0, np.int32), np.ones((1, rows, 2), np.int32))


def level(depth, rows=200):
    """Sums of the first node; every level sends one of its rows right."""
    none, bits, first = np.empty(0, np.int32), np.empty(0, np.uint8), np.zeros(1, np.int32)
    if depth == 0:
        return StatisticsRequest(0, none, bits, bits, first)
    left = np.ones(rows - depth + 1, np.uint8)
    left[-1] = 0
    return StatisticsRequest(depth, first, np.packbits(left), bits, first)


def test_the_driver_is_held_to_what_was_agreed(host, bank):
    agreed = protocol_named("plain").settled(read_job(job(trees=2)).training)
    ask = aligned(host, bank)
    for change in ({"n_estimators": 9999}, {"max_depth": 16}, {"max_bin": 1024}):
        assert code_of(ask(begin(agreed.to_dict() | change))) == "VB-1403"
    assert ask(begin(agreed.to_dict())).kind is Kind.ANSWER
    for number in range(agreed.n_estimators):
        assert ask(gradients(number)).kind is Kind.ANSWER
        for depth in range(agreed.max_depth):
            assert ask(level(depth)).kind is Kind.ANSWER
        assert code_of(ask(level(agreed.max_depth))) == "VB-1403"
    assert code_of(ask(gradients(agreed.n_estimators))) == "VB-1403"


def test_requests_of_one_packet_are_handled_in_order_and_recorded_each(host, bank):
    agreed = protocol_named("plain").settled(read_job(job(trees=2)).training)
    ask = aligned(host, bank)
    assert ask(begin(agreed.to_dict())).kind is Kind.ANSWER
    session = host._sessions[ask.session]
    before = len(session._transcript.entries)
    answer = ask(gradients(0), level(0))
    found = [message.type_name() for message, _ in decode_all(answer.body, session.catalogue)]
    assert found == ["Done", "PlainSums"]
    recorded = [(entry.direction, entry.message) for entry in session._transcript.entries[before:]]
    assert recorded == [
        ("received", "PlainRound"), ("received", "StatisticsRequest"), ("sent", "Done"), ("sent", "PlainSums"),
    ]  # fmt: skip
    assert ask(gradients(0), level(0), number=ask.number) is answer, "a repeated packet is not handled again"
    assert code_of(ask(level(1), level(1))) == "VB-1403", "one that is refused refuses the packet"
    assert code_of(ask(*[level(2)] * 33)) == "VB-1401"
    assert code_of(ask(Finish(completed=False), level(2))) == "VB-1403", "nothing follows the end"


def test_what_the_job_fixes_cannot_be_sent_otherwise(host, bank):
    agreed = protocol_named("plain").settled(read_job(job(trees=2)).training)
    assert agreed.objective == "binary"
    ask, text = aligned(host, bank), json.dumps(agreed.to_dict())
    bits, none = np.empty(0, np.uint8), np.empty(0)
    for wrong in (
        BeginTraining(text, 200, 10_000, 0, bits, none),  # as many trees in a round as classes
        BeginTraining(text, 200, 1, 0, bits, np.ones(200)),  # weighted_bins is off
        BeginTraining(text, 201, 1, 0, bits, none),
        BeginTraining("[" * 100_000, 200, 1, 0, bits, none),
        BeginTraining('{"max_depth": 1e999}', 200, 1, 0, bits, none),
    ):
        assert code_of(ask(wrong)) in ("VB-1401", "VB-1002")
    assert ask(begin(agreed.to_dict())).kind is Kind.ANSWER
    assert ask(gradients(0)).kind is Kind.ANSWER
    for build in (np.zeros(10**6, np.int32), np.arange(10**6, dtype=np.int32)):
        level_0 = StatisticsRequest(0, np.empty(0, np.int32), bits, bits, build)
        assert code_of(ask(level_0)) == "VB-1401"
    assert ask(level(0)).kind is Kind.ANSWER


@pytest.mark.parametrize("rows", [99, 100_000_001])
def test_rows_outside_the_policy_are_refused_once_they_are_counted(host, bank, rows):
    with pytest.raises(AgainstPolicy):
        aligned(host, bank, rows)


def test_a_run_belongs_to_its_active_party(host, bank, tmp_path):
    Asker(host, bank)(propose(job()))
    from veilboost.party.runs import RunFolder

    RunFolder(tmp_path / "runs" / "first").note(active="somebody else")
    for resume in (True, False):
        answer = Asker(host, bank, os.urandom(16))(propose(job(), resume=resume))
        assert code_of(answer) == "VB-1704"


@pytest.mark.parametrize("name", ["status.json", "job.key"])
@pytest.mark.parametrize("content", [b"", b"[]"])
def test_a_truncated_file_is_damage_and_not_another_job(host, bank, tmp_path, name, content):
    ask = aligned(host, bank)
    session = host._sessions[ask.session]
    session._begin_run(session._run, session._booking.randomness.key)
    ask(Finish(completed=False))
    file = tmp_path / "runs" / "first" / name
    assert file.exists()
    file.write_bytes(content)
    answer = Asker(host, bank, b"b" * 16)(propose(job(trees=2), resume=True))
    assert code_of(answer) == "VB-1711"
    assert b"runs" not in answer.body, "no path is sent"
    again = Asker(host, bank, b"c" * 16)(propose(job(trees=2)))
    if name == "job.key":
        assert again.kind is Kind.ANSWER, "a new start draws a new key"
    else:
        assert code_of(again) == "VB-1711", "it may be the status of a finished model"


def test_other_parameters_are_not_resumed(host, bank):
    ask = aligned(host, bank)
    session = host._sessions[ask.session]
    session._begin_run(session._run, session._booking.randomness.key)
    ask(Finish(completed=False))
    assert code_of(Asker(host, bank, b"b" * 16)(propose(job(trees=3), resume=True))) == "VB-1710"
    assert Asker(host, bank, b"c" * 16)(propose(job(trees=2), resume=True)).kind is Kind.ANSWER


def test_a_count_of_predictions_that_cannot_be_read_refuses_predictions(host, bank, tmp_path):
    (tmp_path / "runs").mkdir()
    file = tmp_path / "runs" / "predictions.json"
    spend_predictions(host.settings, bank, 10)
    assert json.loads(file.read_text())["rows"] == 10
    for content in ("", '{"day": "2026', "{}", "[]"):
        file.write_text(content)
        with pytest.raises(DamagedState, match=r"predictions\.json cannot be read"):
            spend_predictions(host.settings, bank, 10)
    file.unlink()
    spend_predictions(host.settings, bank, 10)


def test_a_peer_cannot_use_up_what_others_may_predict(host, bank, tmp_path):
    (tmp_path / "runs").mkdir()
    telecom = replace(bank, party="telecom")
    peers = {**host.settings.policy.peers, "telecom": (telecom.fingerprint,)}
    policy = replace(host.settings.policy, peers=peers, predictions_per_day=25, predictions_per_peer=15)
    settings = replace(host.settings, policy=policy)
    spend_predictions(settings, bank, 15)
    with pytest.raises(AgainstPolicy, match="rule predictions_per_peer refuses"):
        spend_predictions(settings, bank, 1)
    spend_predictions(settings, telecom, 10)
    with pytest.raises(AgainstPolicy, match="rule predictions_per_day refuses"):
        spend_predictions(settings, telecom, 1)
    assert spent_today(settings, PREDICTIONS_FILE) == (25, {"bank": 15, "telecom": 10})


def test_a_count_without_peers_was_written_by_an_older_release(host, bank, tmp_path):
    (tmp_path / "runs").mkdir()
    file = tmp_path / "runs" / PREDICTIONS_FILE
    file.write_text(json.dumps({"day": time.strftime("%Y-%m-%d"), "rows": 7}))
    spend_predictions(host.settings, bank, 10)
    assert spent_today(host.settings, PREDICTIONS_FILE) == (17, {"bank": 10})


def test_refused_requests_leave_nothing_behind(host, bank):
    for _ in range(50):
        assert code_of(Asker(host, bank, os.urandom(16))(BeginAlignment())) == "VB-1408"
    assert not host._conversations
    assert not host._sessions


@pytest.fixture
def busy(host, bank):
    """A host whose peer has as many sessions as it may have."""
    tight = replace(host.settings, limits=replace(host.settings.limits, max_sessions=3))
    host.settings = tight
    for at in range(3):
        assert Asker(host, bank, bytes([at]) * 16)(OpenService("credit", "bank", "bank")).kind is Kind.ANSWER
    return host


def test_a_peer_has_so_many_sessions_and_no_more(busy, bank, certificates):
    ask = Asker(busy, bank)
    refused = ask(propose(job()))
    assert code_of(refused) == "VB-1412"
    assert b"bank has 3 sessions open here" in refused.body
    other = peer_identity((certificates / "stranger.crt").read_bytes())
    assert Asker(busy, other, b"o" * 16)(OpenService("credit", "bank", "bank")).kind is Kind.ANSWER
    last = Asker(busy, bank, bytes(16))
    last.number = 1
    assert last(Finish(completed=True)).kind is Kind.ANSWER
    assert ask(propose(job())).kind is Kind.ANSWER, "a session that has ended makes room"


def test_idle_sessions_make_room(busy, bank):
    for session in busy._sessions.values():
        session.last_request -= 2 * busy.settings.limits.wait_seconds
    assert Asker(busy, bank)(propose(job())).kind is Kind.ANSWER
    assert len(busy._sessions) == len(busy._conversations) == 1


def test_silence_of_a_proposer_without_a_link_begins_with_its_last_request(busy):
    for session in busy._sessions.values():
        session.last_request -= 1e9  # longer than any machine runs, whose clock begins when it starts
        assert session.silence() >= 1e9


def test_a_session_that_works_for_long_is_not_idle(busy, bank):
    for session in busy._sessions.values():
        session.last_request -= 2 * busy.settings.limits.wait_seconds
    with busy._conversations[bytes(16), "bank"].lock:  # as while its request is answered
        assert Asker(busy, bank)(propose(job())).kind is Kind.ANSWER
    assert set(busy._sessions) == {bytes(16), b"a" * 16}


def test_answers_of_a_session_that_another_replaced_are_forgotten(host, bank):
    for _ in range(3):
        Asker(host, bank, os.urandom(16))(propose(job()))
    assert len(host._sessions) == len(host._conversations) == 1


def finished(host, name="first"):
    from veilboost.party.runs import RunFolder

    RunFolder.create(host.settings.runs, name).note(active="bank", state="finished")


def test_a_finished_run_stays_what_it_is(host, bank):
    """Also for a driver that has lost its own run, and for one that resumes only to stop."""
    from veilboost.party.runs import RunFolder

    finished(host)
    run = RunFolder(host.settings.runs / "first")
    run.save_job(read_job(job(trees=2)).text())
    assert code_of(Asker(host, bank, b"1" * 16)(propose(job(trees=2)))) == "VB-1704"
    assert code_of(Asker(host, bank, b"2" * 16)(propose(job(trees=3), resume=True))) == "VB-1710"
    ask = Asker(host, bank)
    assert ask(propose(job(trees=2), resume=True)).kind is Kind.ANSWER
    assert code_of(ask(BeginAlignment())) == "VB-1704"
    assert ask(Finish(completed=False)).kind is Kind.ANSWER
    assert run.status["state"] == "finished"


def test_predictions_of_no_rows_are_refused_and_hold_no_file(host, bank):
    finished(host)
    for rows in (0, -1):
        answer = Asker(host, bank, os.urandom(16))(ProposePrediction("first", job(), rows))
        assert code_of(answer) == "VB-1401"
    assert not (host.settings.runs / "first" / "predictions").exists()


@pytest.mark.parametrize(
    "opening", [lambda run: ProposePrediction(run, job(), 1), lambda run: OpenService(run, "a", "b")]
)
def test_a_run_is_named_and_never_a_path(host, bank, tmp_path, opening):
    finished(host)
    outside = tmp_path / "outside"
    finished(replace_runs(host, outside), "model")
    for run in (str(outside / "model"), "../outside/model", "first/../../outside/model", ".", "", "ledger.sqlite"):
        answer = Asker(host, bank, os.urandom(16))(opening(run))
        assert code_of(answer) == "VB-1706"
        assert str(tmp_path).encode() not in answer.body
    assert not (outside / "model" / "predictions").exists()


def replace_runs(host, runs):
    return SimpleNamespace(settings=replace(host.settings, runs=runs))


def test_names_of_services_that_do_not_exist_take_no_memory(host, bank, tmp_path):
    authority = PartyHost(replace(host.settings, data=None), lambda name, seconds: None)
    for number in range(20):
        ask = Asker(authority, bank, session=number.to_bytes(16))
        ask(OpenService(f"run-{number}", "shop", "csp"))
        assert code_of(ask(DirectoryRequest())) == "VB-1403"
        ask(Finish(False))
    authority.close()
    gc.collect()
    assert len(service_session._locks) == 0
    assert not list((tmp_path / "runs").glob("run-*"))


def test_nobody_else_drives_a_job(host, bank, certificates):
    ask = Asker(host, bank)
    ask(propose(job()))
    stranger = peer_identity((certificates / "stranger.crt").read_bytes())
    assert code_of(Asker(host, stranger)(BeginAlignment())) == "VB-1403"
    assert code_of(Asker(host, stranger, b"c" * 16)(propose(job()))) == "VB-1612"


def test_a_disk_that_cannot_be_written_is_a_coded_error(host, bank, tmp_path):
    (tmp_path / "runs").write_text("a file where a folder should be")
    assert code_of(Asker(host, bank)(propose(job()))) == "VB-1702"


def test_an_error_of_its_own_does_not_end_the_party(host, bank, monkeypatch, caplog):
    def explode(*_):
        raise RuntimeError("a secret value 4711")

    ask = Asker(host, bank)
    ask(propose(job()))
    monkeypatch.setattr("veilboost.party.vertical_session.VerticalSession._begin_alignment", explode)
    answer = ask(BeginAlignment())
    assert code_of(answer) == "VB-1707"
    assert b"4711" not in answer.body
    assert "RuntimeError" in caplog.text
    assert "4711" not in caplog.text
    monkeypatch.undo()
    assert ask(BeginAlignment()).kind is Kind.ANSWER


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=120), st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.binary(min_size=16, max_size=16))
def test_whatever_arrives_is_answered(host, bank, body, kind, number, session):
    answer = host.handle(bank, Packet(kind, session, number, body))
    assert answer.kind is Kind.FAILURE
    assert code_of(answer).startswith("VB-")


def test_who_may_speak(host, certificates, tmp_path):
    assert admit_peer(host.settings, (certificates / "bank.crt").read_bytes()).party == "bank"
    for certificate in ((certificates / "stranger.crt").read_bytes(), b"", os.urandom(50)):
        with pytest.raises(Exception, match="VB-16"):
            admit_peer(host.settings, certificate)
    old = tmp_path / "old"
    init_authority(old, now=datetime.now(UTC) - timedelta(days=400))
    issue(old, "bank", ["localhost"], days=1, now=datetime.now(UTC) - timedelta(days=300))
    with pytest.raises(Exception, match="VB-1603"):
        admit_peer(host.settings, (old / "bank.crt").read_bytes())


def test_an_accepted_job_says_which_release(host, bank):
    answer = Asker(host, bank)(propose(job()))
    assert decode(answer.body, Catalogue(CONTROL_MESSAGES)).release


@pytest.mark.parametrize("opening", SESSIONS, ids=lambda opening: opening.__name__)
def test_an_opening_names_a_session_that_can_be_made_of_it(opening):
    factory = session_for(object.__new__(opening))
    _context, proposal = inspect.signature(factory).parameters.values()
    hints = typing.get_type_hints(factory if inspect.isfunction(factory) else factory.__init__)
    accepted = hints[proposal.name]
    assert opening in (typing.get_args(accepted) or (accepted,))
    assert opening in CONTROL_MESSAGES
