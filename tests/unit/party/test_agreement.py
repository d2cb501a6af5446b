"""Parties that resume or end a job hold the same trees of the same rows, or say which of them does not."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from parties import CONFIG, Town, make_certificates
from veilboost import Federation
from veilboost.boost.booster import RoundResult
from veilboost.cli.main import app
from veilboost.errors import CheckpointFailed, DamagedState, FolderLocked, JobExists, PeerRefused, StateDiffers
from veilboost.model.share import SplitRecords
from veilboost.party.checkpoints import Checkpoints
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.party.vertical_session import VerticalSession
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.wire.transcript import Transcript, read_transcript

pytestmark = pytest.mark.fast
FEW = replace(CONFIG, n_estimators=5, max_depth=2)
PARTIES = ("bank", "shop")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


class Pair:
    """A bank that drives and a shop that answers, in this process over TLS."""

    def __init__(self, folder: Path, certificates: Path) -> None:
        self.town = Town(folder, certificates, rows=200)
        self.daemon = Daemon(load_party(folder / "shop.toml"))
        self.job = self.town.write_job({"shop": f"127.0.0.1:{self.daemon.port}"}, config=FEW)
        self.expected = self.town.simulated(FEW, PARTIES)

    def folder(self, party: str) -> Path:
        return self.town.folder / f"runs-{party}" / "credit"

    def train(self, *, resume: bool = False, after: Callable[[int], None] = lambda rounds: None) -> None:
        """`after` is called with the number of finished rounds."""

        def watch(result: RoundResult) -> None:
            after(result.number + 1)

        settings = load_party(self.town.folder / "bank.toml")
        with coordinate(settings, load_job(self.job), Watch(round=watch)) as driver:
            driver.train(resume)

    def stopped_after(self, rounds: int, after: Callable[[int], None] = lambda rounds: None) -> None:
        def stop(number: int) -> None:
            after(number)
            if number == rounds:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.train(after=stop)

    def resumes(self) -> None:
        self.train(resume=True)
        self.is_usable()

    def is_usable(self) -> None:
        assert [self.town.run_folder(party).status["state"] for party in PARTIES] == ["finished", "finished"]
        assert self.town.sha(parties=PARTIES) == self.expected
        rows = Federation(self.job, self.town.folder / "bank.toml").predict(self.town.folder / "common.parquet")
        assert len(rows.scores) == 20

    def write_common_rows(self) -> None:
        tables = {party: pq.read_table(self.town.folder / f"{party}.parquet") for party in PARTIES}
        common = np.intersect1d(*(table.column("id").to_numpy(zero_copy_only=False) for table in tables.values()))
        ids = tables["bank"].column("id").to_numpy(zero_copy_only=False)
        rows = tables["bank"].take(np.flatnonzero(np.isin(ids, common[:20])))
        pq.write_table(rows, self.town.folder / "common.parquet")

    def close(self) -> None:
        self.daemon.stop()
        self.town.close()


@pytest.fixture
def pair(tmp_path: Path, certificates: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, certificates)
    made.write_common_rows()
    yield made
    made.close()


# --- trees ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("party", PARTIES)
def test_a_party_that_lost_its_last_tree_takes_all_parties_back_by_one(pair: Pair, party: str) -> None:
    copy = pair.town.folder / "copy"
    folder = pair.folder(party) / "checkpoint"
    pair.stopped_after(4, lambda rounds: shutil.copytree(folder, copy) and None if rounds == 3 else None)
    shutil.rmtree(folder)
    copy.rename(folder)
    pair.resumes()


@pytest.mark.parametrize(("rounds", "has"), [(1, 1), (0, 0)])
def test_parties_without_a_common_tree_say_who_has_what(pair: Pair, rounds: int, has: int) -> None:
    copy = pair.town.folder / "copy"
    copy.mkdir()
    folder = pair.folder("shop") / "checkpoint"
    pair.stopped_after(
        4, lambda number: shutil.copytree(folder, copy, dirs_exist_ok=True) and None if number == rounds else None
    )
    shutil.rmtree(folder)
    copy.rename(folder)
    with pytest.raises(StateDiffers, match=f"bank has 4 trees, shop has {has}"):
        pair.train(resume=True)
    pair.train()  # as the error advises
    pair.is_usable()


def test_trees_of_another_attempt_are_not_continued(pair: Pair) -> None:
    pair.stopped_after(3)
    kept = pair.town.folder / "kept"
    shutil.copytree(pair.folder("bank"), kept)
    pair.stopped_after(3)  # a new attempt of the same job, with the same trees and another key
    shutil.rmtree(pair.folder("bank"))
    kept.rename(pair.folder("bank"))
    with pytest.raises(StateDiffers, match="bank has 3 trees, shop has 3, or the trees are of different attempts"):
        pair.train(resume=True)


def test_a_driver_that_stopped_before_its_first_checkpoint_resumes(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    save = Checkpoints.save

    def killed(self: Checkpoints, *args: object) -> str:
        if len(args) > 3:  # the driver's, with margins
            raise KeyboardInterrupt
        return save(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            pair.train()
    assert [len(pair.town.run_folder(party).checkpoints.kept()) for party in PARTIES] == [0, 1]
    pair.resumes()
    sent = [entry.message for entry in read_transcript(pair.folder("bank") / "transcript") if entry.direction == "sent"]
    assert sent.count("ResumeTraining") == 1, "also after no tree"


# --- rows and settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("party", "change"), [("shop", "order"), ("bank", "value"), ("shop", "alignment")])
def test_other_rows_are_refused_at_the_party_that_has_them(pair: Pair, party: str, change: str) -> None:
    pair.stopped_after(2)
    file = pair.town.folder / f"{party}.parquet"
    table = pq.read_table(file)
    if change == "order":
        table = table.sort_by("id")
    elif change == "value":
        column = table.column(1).to_numpy().copy()
        column[pair.town.run_folder(party).alignment[0]] += 1
        table = table.set_column(1, table.column_names[1], [column])
    else:
        rows = pair.folder(party) / "alignment" / "0.npy"
        np.save(rows, np.load(rows)[::-1])
    pq.write_table(table, file)
    with pytest.raises(StateDiffers if party == "bank" else PeerRefused) as refused:
        pair.train(resume=True)
    assert "VB-1710" in str(refused.value)
    if party == "shop":
        assert "common rows" not in str(refused.value)
        assert "common rows, has changed" in pair.town.run_folder("shop").status["error"]


def test_other_settings_are_refused_by_the_party_that_began_with_others(pair: Pair) -> None:
    pair.stopped_after(2)
    for party in PARTIES:  # the bank alone would refuse by itself
        job = pair.folder(party) / "job.toml"
        if party == "bank":
            job.write_text(re.sub(r"max_depth = 2", "max_depth = 3", job.read_text()))
    pair.job.write_text(re.sub(r"max_depth = 2", "max_depth = 3", pair.job.read_text()))
    with pytest.raises(PeerRefused, match=r"shop refused \(VB-1710"):
        pair.train(resume=True)


# --- the end ----------------------------------------------------------------------------------------------


def test_a_job_is_not_finished_with_a_party_that_lacks_a_split(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    end = VerticalPassive._end_training

    def forgetful(self: VerticalPassive, message: object) -> object:
        answer = end(self, message)
        _, *others = self.records().rules().items()
        self.restore(SplitRecords.of(dict(others)))
        return answer

    monkeypatch.setattr(VerticalPassive, "_end_training", forgetful)
    with pytest.raises(PeerRefused, match="the splits that shop stored are not those of the model of bank"):
        pair.train()
    assert [pair.town.run_folder(party).status["state"] for party in PARTIES] == ["failed", "failed"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_that_stopped_while_it_told_the_others_resumes_to_the_end(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, "release", lambda *_, **__: None)  # a killed process tells nobody
        if moment == "before":
            patched.setattr("veilboost.party.vertical.VerticalCoordinator._finish", killed)
        else:
            forget = RunFolder.forget_key
            patched.setattr(
                RunFolder, "forget_key", lambda run: killed() if run.status["role"] == "active" else forget(run)
            )
        with pytest.raises(KeyboardInterrupt):
            pair.train()
    assert pair.town.run_folder("shop").status["state"] == ("training" if moment == "before" else "finished")
    pair.resumes()
    assert not list(pair.town.folder.glob("runs-*/credit/job.key"))


def test_a_finished_run_is_not_opened_again(pair: Pair) -> None:
    pair.train()
    before = pair.town.run_folder("bank").status
    # The driver lost the last moments of the job, and its rows have changed since.
    pair.town.run_folder("bank").note(state="training", closing=None)
    with pytest.raises(PeerRefused, match="shop has finished the run"):
        pair.train(resume=True)
    assert pair.town.run_folder("shop").status["state"] == "finished", "the release of a stopped job changes nothing"
    pair.town.run_folder("bank").note(**before)
    pair.is_usable()
    with pytest.raises(JobExists):
        pair.train()


def test_the_digest_of_a_table_tells_nothing_without_the_jobs_key(pair: Pair) -> None:
    """It stays in the run folder, which owners may combine for a report: guesses about rows must not be testable."""
    digests: list[str] = []
    for _ in range(2):  # the same rows, under another key
        pair.stopped_after(1)
        digests += [digest for party in PARTIES for digest in pair.town.run_folder(party).status["table"].values()]
    assert len(set(digests)) == 4


def test_a_truncated_key_stops_a_resume_and_not_a_new_start(pair: Pair) -> None:
    pair.stopped_after(1)
    (pair.folder("bank") / "job.key").write_bytes(b"")
    with pytest.raises(DamagedState, match=r"job\.key is damaged"):
        pair.train(resume=True)
    pair.train()
    pair.is_usable()


# --- one writer -------------------------------------------------------------------------------------------


def test_a_second_driver_and_a_second_daemon_are_refused_at_once(pair: Pair) -> None:
    def again(rounds: int) -> None:
        if rounds == 2:
            for resume in (False, True):
                with pytest.raises(FolderLocked, match=f"process {os.getpid()}"):
                    pair.train(resume=resume)

    pair.train(after=again)
    pair.is_usable()
    settings = load_party(pair.town.folder / "shop.toml")
    with pytest.raises(FolderLocked, match=f"process {os.getpid()}"):
        Daemon(settings)
    pair.daemon.stop()
    pair.daemon = Daemon(settings)
    assert not list(pair.town.folder.glob("runs-*/.credit.lock")), "a lock ends with the job"


def test_a_session_has_its_run_to_itself(pair: Pair) -> None:
    held = RunFolder(pair.folder("shop")).lock

    def locked(rounds: int) -> None:
        assert held.read_text().startswith(f"the process {os.getpid()} (the job credit of bank, since ")

    pair.stopped_after(1, locked)
    assert not held.exists()


# --- stops ------------------------------------------------------------------------------------------------


def test_a_refused_start_discards_no_tree(pair: Pair) -> None:
    pair.stopped_after(2)
    text = pair.job.read_text()
    pair.town.settle("bank", policy={"max_trees": 10_000})
    pair.job.write_text(text.replace("n_estimators = 5", "n_estimators = 9999"))
    with pytest.raises(PeerRefused, match="max_trees"):
        pair.train()
    pair.job.write_text(text)
    rounds: list[int] = []
    pair.train(resume=True, after=rounds.append)
    assert rounds == [3, 4, 5]
    pair.is_usable()


@pytest.mark.parametrize(("kind", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_parks_the_job_and_tells_the_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, kind: signal.Signals, code: int
) -> None:
    add = RunFolder.add_metric

    def interrupted(run: RunFolder, result: RoundResult) -> None:
        add(run, result)
        if result.number == 1:
            os.kill(os.getpid(), kind)

    before = signal.getsignal(signal.SIGTERM)
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background ignore it
    try:
        with monkeypatch.context() as patched:
            patched.setattr(RunFolder, "add_metric", interrupted)
            done = CliRunner().invoke(app, ["train", str(pair.job), "--config", str(pair.town.folder / "bank.toml")])
    finally:
        signal.signal(signal.SIGINT, ours)
    assert done.exit_code == code
    assert signal.getsignal(signal.SIGTERM) == before
    assert [pair.town.run_folder(party).status["state"] for party in PARTIES] == ["cancelled", "cancelled"]
    pair.resumes()


@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("what", ["transcript", "checkpoint"])
def test_a_full_disk_is_a_coded_error_at_both_ends(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, party: str, what: str
) -> None:
    begun: list[int] = []

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    record, save = Transcript.record, Checkpoints.save

    def recorded(self: Transcript, *args: object) -> None:
        if begun and what == "transcript" and self.owner == party:
            self.close()
            self._lines = Mock(write=full)
        record(self, *args)

    def saved(self: Checkpoints, *args: object) -> str:
        mine = (len(args) > 3) == (party == "bank")
        return (full if begun and what == "checkpoint" and mine else save)(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Transcript, "record", recorded)
        patched.setattr(Checkpoints, "save", saved)
        with pytest.raises(CheckpointFailed if party == "bank" else PeerRefused) as failed:
            pair.train(after=begun.append)
    assert "VB-1702" in str(failed.value)
    assert "No space left" in str(pair.town.run_folder(party).status["error"])
    pair.resumes()


def test_the_sessions_of_a_stopped_job_have_ended(pair: Pair) -> None:
    pair.stopped_after(1)
    assert not [each for each in pair.daemon.host._sessions.values() if isinstance(each, VerticalSession)]
