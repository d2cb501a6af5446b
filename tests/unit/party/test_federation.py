"""A federation as a program drives it, what it shows while it goes, and what its transcripts say."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from parties import CONFIG, Town, free_port, make_certificates
from veilboost import Federation
from veilboost.boost.booster import RoundResult
from veilboost.errors import PeerUnreachable, StaleSession, UnknownRun, UnreadableFile
from veilboost.party import federation as federation_module
from veilboost.party.daemon import Daemon
from veilboost.party.federation import LiveView
from veilboost.party.identity import PeerIdentity
from veilboost.party.messages import Accepted, BeginAlignment, Checkpoint, Propose
from veilboost.party.runs import RunFolder, read_entries, read_exchanges
from veilboost.party.settings import load_party
from veilboost.party.vertical_session import VerticalSession
from veilboost.protocols.vertical.messages import BeginRound
from veilboost.wire.message import Done, Message
from veilboost.wire.transcript import ENTRIES, Transcript, shown_to, traffic_by_peer, turns

pytestmark = pytest.mark.fast
KINDS = {
    "plain": ("PlainRound", "StatisticsRequest", "SplitRequest", "Checkpoint"),
    "lattice": ("LatticeRound", "SplitRequest", "Checkpoint"),
    "smm2": ("Smm2Round", "SplitRequest", "Checkpoint"),
}
ROUNDS = (*KINDS["plain"], "PlainSums", "SplitAnswer", "CheckpointStored")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def town(tmp_path: Path, certificates: Path) -> Iterator[Town]:
    made = Town(tmp_path, certificates)
    yield made
    made.close()


# --- driven from Python -----------------------------------------------------------------------------------


def test_a_federation_checks_trains_and_reports_what_was_sent(town: Town) -> None:
    daemon = Daemon(load_party(town.folder / "shop.toml"))
    try:
        job = town.write_job({"shop": f"127.0.0.1:{daemon.port}"}, validation=0.2)
        federation = Federation(job, town.folder / "bank.toml")
        assert repr(federation) == "Federation('credit': bank, shop; here bank)"
        with pytest.raises(UnknownRun):
            _ = federation.run
        assert federation.check().errors == {"bank": None, "shop": None}
        shown = io.StringIO()
        done = federation.train(console=Console(file=shown))
        assert (done.rounds, done.metric, done.run) == (CONFIG.n_estimators, "auc", federation.run.path)
        assert done.validation is not None
        stages = ["reading the table", "asking the parties", "preparing ids", "aligning rows", "training"]
        assert list(done.seconds_by_stage) == stages
        assert shown.getvalue().splitlines() == list(done.seconds_by_stage)
        rows = federation.transcript()
        assert sum(row["bytes"] for row in rows) == sum(
            counted["bytes_sent"] + counted["bytes_received"] for counted in (done.traffic or {}).values()
        )
        assert {(row["sender"], row["receiver"]) for row in rows} == {("bank", "shop"), ("shop", "bank")}
        packets = turns([each for each in read_entries(done.run) if each.message in ROUNDS]) / 2
        assert packets <= CONFIG.n_estimators * (CONFIG.max_depth + 1), "one exchange a level, and one for the leaves"
        assert json.dumps(done.to_dict())
        assert json.dumps(rows)
    finally:
        daemon.stop()


def test_a_party_that_is_not_there_is_named(town: Town) -> None:
    town.settle("bank", limits={"wait_seconds": 0.3, "connect_seconds": 0.3})
    federation = Federation(town.write_job({"shop": f"127.0.0.1:{free_port()}"}), town.folder / "bank.toml")
    answers = federation.check().errors
    assert (answers["shop"] or "").startswith("VB-1409: shop did not answer")
    shown = io.StringIO()
    with pytest.raises(PeerUnreachable, match="shop"):
        federation.train(console=Console(file=shown, width=200))
    assert "waiting for shop: " in shown.getvalue()
    assert federation.run.status["state"] == "failed"


@pytest.mark.parametrize(
    ("passive", "depth", "protocol"),
    [
        (("shop",), 3, "plain"),
        (("shop", "telecom"), 3, "plain"),
        (("shop",), 10, "plain"),
        (("shop", "telecom"), 3, "lattice"),
        (("shop",), 3, "smm2"),
    ],
    ids=["one", "two", "short trees", "with a key", "with a scale"],
)
def test_parties_lost_at_any_moment_of_a_round_come_back_to_the_same_model(
    town: Town, monkeypatch: pytest.MonkeyPatch, passive: tuple[str, ...], depth: int, protocol: str
) -> None:
    """Each kind of request fails once as it does at a party that was started anew."""
    for party in ("bank", *passive):
        town.settle(party, policy={"protocols": (protocol,), "allow_unprotected": (protocol,)})
    lost: set[tuple[str, str]] = set()
    config = replace(CONFIG, n_estimators=6, max_depth=depth)
    handle = VerticalSession.handle

    def forgetful(session: VerticalSession, peer: PeerIdentity, requests: list[tuple[Message, bytes]]) -> bytes:
        for message, _ in requests:
            kind = session.settings.name, message.type_name()
            if kind not in lost and session.began and message.type_name() in KINDS[protocol]:
                lost.add(kind)
                raise StaleSession("it was started anew")
            session.began = session.began or message.type_name() == "Checkpoint"
        return handle(session, peer, requests)

    monkeypatch.setattr(VerticalSession, "handle", forgetful)
    monkeypatch.setattr(VerticalSession, "began", False, raising=False)
    daemons = {party: Daemon(load_party(town.folder / f"{party}.toml")) for party in passive}
    try:
        job = town.write_job(
            {party: f"127.0.0.1:{daemon.port}" for party, daemon in daemons.items()}, config=config, protocol=protocol
        )
        assert Federation(job, town.folder / "bank.toml").train(progress=False).rounds == config.n_estimators
    finally:
        for daemon in daemons.values():
            daemon.stop()
    assert lost == {(party, kind) for party in daemons for kind in KINDS[protocol]}
    assert town.sha(parties=("bank", *passive)) == town.simulated(config, ("bank", *passive), protocol)


# --- what is shown ----------------------------------------------------------------------------------------


def test_the_live_view_shows_stage_rounds_metric_and_whom_it_waits_for() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with LiveView(40, console) as view:
        watch = view.watch
        assert watch.waiting is not None
        watch.stage("training")
        watch.round(RoundResult(11, 0.1, 0.87654, "auc"))
        watch.waiting("shop", "connection refused")
        with console.capture() as drawn:
            console.print(view._draw())
        for words in (
            "training",
            "round 12 of 40",
            "0:00:00 elapsed",
            "left",
            "auc 0.8765 on validation rows",
            "waiting for shop: connection refused",
        ):
            assert words in drawn.get()
        watch.round(RoundResult(12, 0.1, None))
        with console.capture() as drawn:
            console.print(view._draw())
        assert "waiting" not in drawn.get()
    assert (view.round, list(view.seconds)) == (13, ["training"])


def test_without_a_terminal_a_line_says_how_far_training_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for every round of more than ten seconds; of shorter ones, a line every ten seconds."""
    now = 100.0
    monkeypatch.setattr(federation_module.time, "perf_counter", lambda: now)
    file = io.StringIO()
    with LiveView(100, Console(file=file, width=60)) as view:
        now += 5
        view.watch.stage("training")
        view.watch.total(8)  # a protocol may choose fewer rounds for the rows
        for number, seconds, validation in ((2, 12.0, 0.75), (3, 4.0, None), (4, 4.0, None), (5, 4.0, 0.875)):
            now += seconds
            view.watch.round(RoundResult(number, seconds, validation, "auc"))
    assert file.getvalue().splitlines() == [
        "training",
        "training: round 3 of 8, auc 0.7500 on validation rows, 0:00:17 elapsed, 0:01:00 left",
        "training: round 6 of 8, auc 0.8750 on validation rows, 0:00:29 elapsed, 0:00:12 left",
    ]


def test_a_view_that_is_not_shown_says_nothing() -> None:
    file = io.StringIO()
    with LiveView(3, Console(file=file), shown=False) as view:
        view.watch.stage("training")
    assert file.getvalue() == ""


# --- transcripts ------------------------------------------------------------------------------------------


def written_run(folder: Path, *, owner: str = "shop") -> RunFolder:
    run = RunFolder.create(folder, "credit")
    run.note(state="training", party=owner)
    return run


def test_exchanges_are_counted_by_type_with_what_they_reveal(town: Town) -> None:
    run = written_run(town.folder)
    run.save_job(town.write_job({"shop": "127.0.0.1:1"}).read_text())
    transcript = Transcript("shop", run.path / "transcript")
    transcript.record("received", "bank", Propose("", dry_run=False, resume=False), 100)
    for _ in range(3):
        transcript.record("received", "bank", Checkpoint(1), 10)
        transcript.record("sent", "bank", Done(), 7)
    transcript.close()
    owner, found = read_exchanges(run.path)
    assert owner == "shop"
    assert [(item.sender, item.receiver, item.message, item.count, item.size) for item in found] == [
        ("bank", "shop", "Propose", 1, 100),
        ("bank", "shop", "Checkpoint", 3, 30),
        ("shop", "bank", "Done", 3, 21),
    ]
    assert found[1].reveals == (("how many trees are finished", "shop"),)
    assert shown_to("shop", found)[-1] == "how many trees are finished"
    assert shown_to("bank", found) == []
    assert tuple(traffic_by_peer(owner, found)["bank"].values()) == (3, 21, 4, 130)
    assert read_exchanges(run.path / "transcript") == (owner, found)


def test_a_transcript_lists_only_what_was_revealed_in_this_run(town: Town) -> None:
    """Declarations also cover other settings, other roles, and fields that a message leaves empty."""
    run = written_run(town.folder)
    run.save_job(town.write_job({"shop": "127.0.0.1:1"}).read_text())
    transcript = Transcript("shop", run.path / "transcript")
    transcript.record("received", "bank", Propose("", dry_run=False, resume=False), 100)
    transcript.record("sent", "bank", Accepted("0.2.0", aligned=False), 10)
    transcript.record("received", "bank", BeginAlignment(), 10)
    fit = np.empty(0, np.uint8)
    for _ in range(2):
        transcript.record("received", "bank", BeginRound(0, fit, True, np.empty(0, np.int32)), 10)
    assert [[what for what, _ in item.reveals] for item in read_exchanges(run.path)[1]] == [
        ["the job: its name, parties, protocol, alignment and parameters"],
        ["that its policy allows the job, and whether its run folder keeps an alignment"],
        [],
        [],
    ]
    transcript.record("sent", "bank", Propose("", dry_run=False, resume=False), 100)  # bank would pass it on
    transcript.record("sent", "bank", Accepted("0.2.0", False, 3, np.array([4], np.int32), ("ab",)), 10)
    transcript.record("received", "bank", BeginAlignment(3), 10)
    transcript.record("received", "bank", BeginRound(0, np.ones(3, np.uint8), True, np.empty(0, np.int32)), 10)
    transcript.close()
    _, accepted, began, sampled, passed_on = (item.reveals for item in read_exchanges(run.path)[1])
    assert [to for _, to in passed_on] == ["passive"], "no party of the job is a participant"
    assert [len(each) for each in (accepted, began, sampled)] == [3, 1, 2]
    assert {to for what, to in (*began, *sampled)} == {"shop"}


def test_half_a_line_of_a_killed_party_spoils_nothing(tmp_path: Path) -> None:
    run = written_run(tmp_path)
    folder = run.path / "transcript"
    first = Transcript("shop", folder)
    first.record("sent", "bank", Done(), 7)
    # Not closed: what was recorded is on disk already, as it is when a process is killed.
    assert read_exchanges(run.path)[1][0].count == 1
    with (folder / ENTRIES).open("a") as file:
        file.write('{"when":17')
    assert read_exchanges(run.path)[1][0].count == 1
    second = Transcript("shop", folder)
    second.record("sent", "bank", Done(), 7)
    for each in (first, second):
        each.close()
    assert read_exchanges(run.path)[1][0].count == 2


def test_no_run_and_no_transcript_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UnknownRun):
        read_exchanges(tmp_path)
    with pytest.raises(UnreadableFile, match="no transcript"):
        read_exchanges(written_run(tmp_path).path)


def test_a_transcript_is_that_of_the_last_attempt_that_began(tmp_path: Path) -> None:
    run = written_run(tmp_path)

    def attempt(messages: int, *, new: bool = True, begins: bool = True, record: str = "types") -> None:
        transcript = run.transcript("shop", record, new)
        for at in range(messages):
            if at == 1 and begins:
                run.begin("", None, party="shop")  # all parties have accepted the first message
            transcript.record("sent", "bank", Done(), 7)
        transcript.close()

    def counts(*folders: Path) -> list[int]:
        return [read_exchanges(folder)[1][0].count for folder in folders]

    attempt(2)
    attempt(3, begins=False)
    assert counts(run.path) == [2], "its trees are still those of the first"
    attempt(4, new=False, begins=False)
    assert counts(run.path) == [6], "it was resumed"
    attempt(5)
    assert counts(run.path, *run.earlier_transcripts) == [5, 3, 6]
    assert run.earlier_transcripts == [run.path / "transcript.1", run.path / "transcript.2"]
    attempt(2, record="none")
    with pytest.raises(UnreadableFile, match="no transcript"):
        read_exchanges(run.path)
    assert counts(*run.earlier_transcripts) == [3, 6, 5]


def test_a_new_start_takes_away_what_the_old_one_left_but_its_transcript(tmp_path: Path) -> None:
    run = written_run(tmp_path)
    Transcript("shop", run.path / "transcript").close()
    for folder in ("checkpoint", "alignment", "share"):
        (run.path / folder).mkdir()
    for name in ("metrics.jsonl", "cancel", "job.key", "ledger.json", ".job.key.abc.partial"):
        (run.path / name).write_text("[1, 2]")
    again = RunFolder.create(tmp_path, "credit", again=True)
    again.claim()
    assert (again.path / "checkpoint").exists(), "not before the other parties have accepted"
    assert not list(again.path.glob(".*")), "a killed process may have left half a key"
    again.begin("name = 'credit'", None, state="proposed")
    assert sorted(path.name for path in again.path.iterdir()) == ["job.toml", "status.json", "transcript"]
    assert set(again.status) == {"state", "format", "updated"}, "nothing of the old status"
    assert again.status["state"] == "proposed"
