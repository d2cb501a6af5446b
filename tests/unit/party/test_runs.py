"""A job's folder: what is kept comes back, and what cannot be written harms nothing that was."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost.boost.booster import Progress, RoundResult
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.data.table import PartyTable
from veilboost.errors import DamagedState, JobExists, NothingToResume, StateDiffers, StateUnavailable, UnknownRun
from veilboost.model.share import ModelShare, SplitRecords
from veilboost.party.checkpoints import Checkpoints
from veilboost.party.lifecycle import about_all
from veilboost.party.runs import RunFolder, list_runs

pytestmark = pytest.mark.fast
RANDOM = JobRandomness(bytes(32))


def trained():
    columns = make_columns(1, 120)
    tables = split_among(columns, make_labels(1, columns), 2)
    return train(tables, TrainingConfig(objective="binary", n_estimators=3))


def part_after(share: ModelShare, trees: int) -> ModelShare:
    """The active party's share after this many trees."""
    skeleton = replace(share.skeleton, trees=share.skeleton.trees[:trees])
    rules = {key: rule for key, rule in share.records.rules().items() if key[0] < trees}
    return replace(share, records=SplitRecords.of(rules), skeleton=skeleton)


def keep(run: RunFolder, share: ModelShare, trees: int, margin: np.ndarray) -> str:
    history = [RoundResult(n, 0.1, None) for n in range(trees)]
    part = part_after(share, trees)
    progress = Progress(list(part.skeleton.trees), margin * trees, history)
    return run.checkpoints.save(part, trees, RANDOM, {"shop": f"digest {trees}"}, progress)


def test_a_checkpoint_comes_back_and_the_one_before_it(tmp_path):
    run = RunFolder.create(tmp_path, "first")
    share = trained().shares["p0"]
    margin = np.random.default_rng(0).normal(size=(1, 120))
    digests = [keep(run, share, trees, margin) for trees in (1, 2, 3)]
    assert len(set(digests)) == 3
    newest, before = run.checkpoints.kept()
    assert (newest.trees, newest.digest, newest.peers) == (3, digests[2], {"shop": "digest 3"})
    assert (before.trees, before.digest) == (2, digests[1])
    assert run.checkpoints.find(2, digests[1]).trees == 2
    for trees, digest in ((2, digests[2]), (2, ""), (1, digests[0])):
        with pytest.raises(StateDiffers):
            run.checkpoints.find(trees, digest)
    for kept in (newest, before):
        progress, back = kept.progress()
        assert len(progress.trees) == kept.trees
        np.testing.assert_array_equal(progress.margin, margin * kept.trees)
        assert [r.number for r in progress.history] == list(range(kept.trees))
        np.testing.assert_array_equal(back.records.threshold, part_after(share, kept.trees).records.threshold)
    assert run.rounds == 3
    names = sorted(path.name for path in (run.path / "checkpoint").iterdir())
    assert names == ["2.checkpoint", "3.checkpoint"], "older files are removed"
    keep(run, share, 2, margin)  # all parties went back by two trees
    assert [kept.trees for kept in run.checkpoints.kept()] == [2]
    [kept] = run.checkpoints.kept()
    np.testing.assert_array_equal(kept.progress()[0].margin, margin * 2)


@pytest.mark.parametrize("size", [0, 10, 2000, -1000, -64, -1])
def test_a_truncated_checkpoint_is_a_coded_error_that_names_the_file(tmp_path, size):
    run = RunFolder.create(tmp_path, "first")
    keep(run, trained().shares["p0"], 3, np.zeros((1, 120)))
    file = run.path / "checkpoint" / "3.checkpoint"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(DamagedState, match=re.escape(str(file))):
        run.checkpoints.kept()[0].progress()


def test_a_reader_of_a_running_job_misses_what_is_removed_meanwhile(tmp_path, monkeypatch):
    run = RunFolder.create(tmp_path, "first")
    share = trained().shares["p0"]
    keep(run, share, 1, np.zeros((1, 120)))
    monkeypatch.setattr(Checkpoints, "_stored", lambda _: [1, 0])  # 0 was there when the folder was listed
    assert [kept.trees for kept in run.checkpoints.kept()] == [1]
    assert run.rounds == 1


class Killed(BaseException):
    pass


class Operations:
    """Counts the operations on files, and from number `last` on none happens any more, as after SIGKILL."""

    NAMES = ("open", "fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "link", "close")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last, self.count = 10**9, 0
        for name in self.NAMES:
            real = getattr(os, name)
            monkeypatch.setattr(os, name, self.counted((lambda _: None) if name == "fsync" else real))
        monkeypatch.setattr(io, "open", self.counted(io.open))  # what pathlib opens files with

    def counted(self, operation):
        def count(*args, **options):
            self.count += 1
            if self.count > self.last:
                raise Killed
            return operation(*args, **options)

        return count


def test_a_kill_at_any_operation_leaves_the_old_or_the_new_checkpoint(tmp_path, monkeypatch):
    share, margin = trained().shares["p0"], np.ones((1, 120))
    first = RunFolder.create(tmp_path, "first")
    keep(first, share, 1, margin)
    keep(first, share, 2, margin)
    shutil.copytree(first.path, tmp_path / "second")
    operations = Operations(monkeypatch)
    keep(first, share, 3, margin)
    total, seen = operations.count, set()
    assert total > 8
    for again in (3, 2):  # the next tree, and the same tree again
        for last in range(total):
            operations.last = 10**9
            run = RunFolder(shutil.copytree(tmp_path / "second", tmp_path / f"{again} {last}"))
            operations.count, operations.last = 0, last
            with contextlib.suppress(Killed):
                keep(run, share, again, margin)
            operations.last = 10**9
            kept = run.checkpoints.kept()
            for each in kept:
                progress, back = each.progress()
                assert len(progress.trees) == each.trees == len(back.skeleton.trees) == len(progress.history)
                np.testing.assert_array_equal(progress.margin, margin * each.trees)
            seen.add(kept[0].trees)
            assert kept[0].trees >= 2
            keep(run, share, 3, margin)  # and training goes on
            assert not list(run.path.rglob("*.partial"))
    assert seen == {2, 3}


def test_a_file_that_the_system_does_not_read_is_not_taken_for_damage(tmp_path, monkeypatch):
    """Its owner must not be told to delete it."""
    run = RunFolder.create(tmp_path, "first")
    run.note(state="parked", party="shop")
    run.save_key(bytes(32))
    run.save_table_key(bytes(32))
    run.save_alignment([np.arange(5)])
    keep(run, trained().shares["p0"], 1, np.ones((1, 120)))
    [kept] = run.checkpoints.kept()
    table = PartyTable(np.arange(5), ())
    reads = [
        *(lambda: run.status, lambda: run.key, lambda: run.has_table(table), lambda: run.batch(0)),
        *(run.checkpoints.kept, kept.share, kept.progress),
    ]
    for read in reads:
        read()

    def too_many(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    for read in reads:
        with monkeypatch.context() as patch:
            patch.setattr(io, "open", too_many)
            patch.setattr(builtins, "open", too_many)
            with pytest.raises(StateUnavailable, match="Too many open files") as found:
                read()
        assert "do not delete it" in found.value.remedy


def test_no_copy_of_a_key_outlives_its_job(tmp_path):
    run = RunFolder.create(tmp_path, "first")
    run.save_key(bytes(32))
    (run.path / ".job.key.killed.partial").write_bytes(bytes(32))
    written_elsewhere = run.path / ".report.html.other.partial"
    written_elsewhere.write_bytes(b"")
    run.forget_key()
    assert list(run.path.iterdir()) == [written_elsewhere]  # another process may be writing a report


def test_a_writer_removes_what_a_killed_one_left(tmp_path):
    run = RunFolder.create(tmp_path, "first")
    run.note(state="training")
    run.cancel()
    (run.path / ".status.json.killed.partial").write_bytes(b"{")
    run.claim()
    assert [path.name for path in run.path.iterdir()] == ["status.json"]


def test_status_alignment_and_cancel(tmp_path):
    run = RunFolder.create(tmp_path, "first")
    run.note(state="training", party="bank")
    run.note(trees=3)
    assert {key: run.status[key] for key in ("state", "party", "trees")} == {
        "state": "training",
        "party": "bank",
        "trees": 3,
    }
    assert run.alignment is None
    assert run.save_alignment([np.array([3, 1, 2])]) == 3
    assert run.alignment.tolist() == [3, 1, 2]
    assert not run.cancelled
    run.cancel()
    assert run.cancelled
    (run.path / "cancel").unlink()
    assert not run.cancelled
    with pytest.raises(JobExists):
        RunFolder.create(tmp_path, "first")
    with pytest.raises(UnknownRun):
        RunFolder.open(tmp_path, "second")
    assert [found.path.name for found in list_runs(tmp_path)] == ["first"]


@pytest.mark.parametrize("size", [0, 20, 130])
def test_a_truncated_alignment_or_status_is_a_coded_error(tmp_path, size):
    run = RunFolder.create(tmp_path, "first")
    run.note(state="finished", party="bank", role="active")
    run.save_alignment([np.arange(5), np.arange(9)])
    file = run.path / "alignment" / "1.npy"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(NothingToResume, match=r"alignment file 1.npy"):
        _ = run.alignment
    status = run.path / "status.json"
    status.write_bytes(status.read_bytes()[: size // 4])
    for read in (lambda: run.status, lambda: run.note(state="training")):
        with pytest.raises(DamagedState, match=r"status\.json cannot be read"):
            read()
    RunFolder.create(tmp_path, "second").note(state="finished", party="bank", role="active")
    settings: Any = SimpleNamespace(runs=tmp_path)
    assert sorted((each.job, each.state) for each in about_all(settings)) == [
        ("first", "damaged"),
        ("second", "finished"),
    ]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from veilboost.errors import CheckpointFailed
from veilboost.crypto.csprng import JobRandomness
from veilboost.durable import keeping
from veilboost.party.runs import RunFolder
run = RunFolder(Path(sys.argv[1]))
part = run.checkpoints.kept()[0].share()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))  # as on a disk with no room, writing fails half-way
save = run.checkpoints.save
for write in (lambda: save(part, 4, JobRandomness()), lambda: run.save_share(part), lambda: run.note(state="x" * 500)):
    try:
        with keeping("it"):
            write()
    except CheckpointFailed as error:
        print(error.code)
print([each.trees for each in run.checkpoints.kept()], run.status["state"])
"""


def test_a_full_disk_is_a_coded_error_and_the_last_checkpoint_stays(tmp_path):
    run = RunFolder.create(tmp_path, "first")
    run.note(state="training")
    run.checkpoints.save(trained().shares["p1"], 3, RANDOM)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(run.path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["VB-1702", "VB-1702", "VB-1702", "[3]", "training"]
