"""A job at a party that answers: several at once, cancelled by the owner, parked without a driver, expired."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from test_host import Asker, bank, certificates, code_of, host, job, propose  # noqa: F401 - fixtures

from veilboost.durable import Locks, holder
from veilboost.errors import CheckpointFailed, InvalidParameter
from veilboost.party import lifecycle
from veilboost.party.messages import BeginAlignment
from veilboost.party.runs import RunFolder
from veilboost.protocols import memory
from veilboost.wire.rpc import Kind

pytestmark = pytest.mark.fast


def run_of(host, name="first"):  # noqa: F811
    return RunFolder.open(host.settings.runs, name)


def begun(host, bank, name="first", link=None):  # noqa: F811
    """A job whose alignment has begun."""
    ask = Asker(host, bank, os.urandom(16))
    assert ask(propose(job(name=name))).kind is Kind.ANSWER
    assert ask(BeginAlignment()).kind is Kind.ANSWER
    host._sessions[ask.session].link = link
    return ask


def older(run, days):
    """A run that was last changed so many days ago."""
    status = {**run.status, "updated": run.status["updated"] - days * lifecycle.DAY}
    (run.path / "status.json").write_text(json.dumps(status))


def silent(host, factor=2.0):  # noqa: F811
    for session in host._sessions.values():
        session.last_request -= factor * host.settings.limits.wait_seconds


def test_the_owner_ends_a_running_job_and_its_driver_is_told(host, bank):  # noqa: F811
    ask = begun(host, bank)
    assert lifecycle.cancel(host.settings, "first") == "stops"
    refused = ask(BeginAlignment())
    assert code_of(refused) == "VB-1705"
    assert b"the owner of shop has ended the job" in refused.body
    run = run_of(host)
    assert run.status["state"] == "ended"
    assert run.key is None
    assert not host._sessions
    again = Asker(host, bank, os.urandom(16))(propose(job(), resume=True))
    assert code_of(again) == "VB-1705", "an ended job is not resumed"
    with pytest.raises(InvalidParameter, match="already ended"):
        lifecycle.cancel(host.settings, "first")
    assert Asker(host, bank, os.urandom(16))(propose(job())).kind is Kind.ANSWER, "a new job of this name is a new job"


def test_the_owner_ends_a_job_that_sends_no_request(host, bank):  # noqa: F811
    begun(host, bank)
    lifecycle.cancel(host.settings, "first")
    host.tidy()
    assert run_of(host).status["state"] == "ended"
    assert not host._sessions


def test_the_owner_ends_a_job_that_is_not_running(host, bank):  # noqa: F811
    begun(host, bank)
    host.close()
    assert run_of(host).status["state"] == "parked"
    assert lifecycle.cancel(host.settings, "first") == "ended"
    assert run_of(host).status["state"] == "ended"


def test_other_jobs_are_not_disturbed(host, bank):  # noqa: F811
    begun(host, bank, "first")
    other = begun(host, bank, "second")
    lifecycle.cancel(host.settings, "first")
    host.tidy()
    assert [session.job.name for session in host._sessions.values()] == ["second"]
    host._sessions[other.session].last_request -= 2 * host.settings.limits.wait_seconds
    host.tidy()
    assert run_of(host, "second").status["state"] == "parked"


def test_a_job_whose_driver_is_gone_is_parked_and_resumed(host, bank):  # noqa: F811
    link = SimpleNamespace(closed=False)
    ask = begun(host, bank, link=link)
    silent(host)
    host.tidy()
    assert host._sessions, "the driver is connected and waits for another party"
    link.closed = True
    host.tidy()
    assert host._sessions, "it may connect again"
    host._sessions[ask.session].last_link -= 2 * host.settings.limits.wait_seconds
    host.tidy()
    assert not host._sessions
    assert run_of(host).status["state"] == "parked"
    assert code_of(ask(BeginAlignment())) == "VB-1408"
    assert Asker(host, bank, os.urandom(16))(propose(job(), resume=True)).kind is Kind.ANSWER
    assert run_of(host).status["state"] == "proposed"


def test_a_driver_that_is_connected_and_sends_nothing_does_not_keep_a_table_for_ever(host, bank):  # noqa: F811
    begun(host, bank, link=SimpleNamespace(closed=False))
    limits = host.settings.limits
    next(iter(host._sessions.values())).last_request -= limits.request_seconds + limits.wait_seconds + 1
    host.tidy()
    assert run_of(host).status["state"] == "parked"


def test_a_job_of_a_killed_daemon_is_parked_when_it_starts_again(host, bank):  # noqa: F811
    begun(host, bank)
    assert run_of(host).status["state"] == "aligning"
    lifecycle.park_interrupted(host.settings)
    assert run_of(host).status["state"] == "parked"


def test_a_session_that_another_replaced_does_not_park_the_job(host, bank):  # noqa: F811
    begun(host, bank)
    second = Asker(host, bank, os.urandom(16))
    assert second(propose(job())).kind is Kind.ANSWER
    assert run_of(host).status["state"] == "proposed"
    assert list(host._sessions) == [second.session]


def test_a_parked_job_expires(host, bank):  # noqa: F811
    begun(host, bank)
    host.close()
    host._sessions.clear()
    days = host.settings.policy.resume_days
    older(run_of(host), days - 1)
    assert lifecycle.expire(host.settings) == []
    older(run_of(host), days + 1)
    refused = Asker(host, bank, os.urandom(16))(propose(job(), resume=True))
    assert code_of(refused) == "VB-1703", "also before the daemon has looked"
    older(run_of(host), days + 1)
    assert lifecycle.expire(host.settings) == ["first"]
    assert run_of(host).status["state"] == "expired"
    assert run_of(host).key is None
    assert code_of(Asker(host, bank, os.urandom(16))(propose(job(), resume=True))) == "VB-1703"
    assert lifecycle.expire(host.settings) == []


def test_a_job_of_the_same_name_of_another_driver_is_refused(host, bank, certificates):  # noqa: F811
    from veilboost.party.identity import peer_identity

    host.settings = replace(
        host.settings,
        policy=replace(host.settings.policy, peers={"bank": ("any",), "stranger": ("any",)}),
    )
    begun(host, bank)
    stranger = peer_identity((certificates / "stranger.crt").read_bytes())
    text = job().replace("[parties.bank]", "[parties.stranger]")
    assert code_of(Asker(host, stranger, os.urandom(16))(propose(text))) == "VB-1704"
    assert len(host._sessions) == 1


def test_a_job_that_needs_more_memory_than_is_free_is_refused(host, bank, monkeypatch):  # noqa: F811
    from veilboost.party import session

    ask = begun(host, bank)
    running = host._sessions[ask.session]
    monkeypatch.setattr(session, "free_memory", lambda: 1e9)
    running._check_memory(10_000_000, 20)
    monkeypatch.setattr(session, "free_memory", lambda: 1e8)
    with pytest.raises(Exception, match=r"VB-1701: the job needs about .* MB of memory, and 100 MB are free"):
        running._check_memory(10_000_000, 20)
    monkeypatch.setattr(session, "free_memory", lambda: None)
    running._check_memory(10_000_000, 20)


def test_the_memory_of_a_control_group_counts(tmp_path, monkeypatch):
    whole = memory.free_memory()
    assert whole is None or whole > 1e6
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.free_memory() == 2e6


def test_what_the_owner_decided_outlives_a_killed_daemon(host, bank):  # noqa: F811
    begun(host, bank)
    assert lifecycle.cancel(host.settings, "first") == "stops"
    for session in host._sessions.values():
        session._transcript.close()
    host._sessions.clear()  # the daemon is killed before it has acted
    assert code_of(Asker(host, bank, os.urandom(16))(propose(job(), resume=True))) == "VB-1705"
    lifecycle.park_interrupted(host.settings)
    assert run_of(host).status["state"] == "ended"
    assert run_of(host).key is None


def test_a_disk_that_is_full_when_the_owner_ends_a_job_keeps_no_lock(host, bank, monkeypatch):  # noqa: F811
    begun(host, bank, "first")
    begun(host, bank, "second")
    for name in ("first", "second"):
        lifecycle.cancel(host.settings, name)

    def full(self, **changes):
        raise CheckpointFailed("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "note", full)
        host.tidy()
    assert not host._sessions
    assert [holder(run_of(host, name).lock) for name in ("first", "second")] == [None, None]
    assert code_of(Asker(host, bank, os.urandom(16))(propose(job("second"), resume=True))) == "VB-1705"


def test_a_job_that_is_being_resumed_does_not_expire(host, bank):  # noqa: F811
    begun(host, bank)
    host.close()
    run = run_of(host)
    older(run, host.settings.policy.resume_days + 1)
    locks = Locks()
    locks.take(run.lock, "testing")
    try:
        assert lifecycle.expire(host.settings) == []
    finally:
        locks.release(run.lock)
    assert lifecycle.expire(host.settings) == ["first"]
