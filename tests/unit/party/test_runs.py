"""A job's folder: what is kept comes back, and what cannot be written harms nothing that was."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost.boost.booster import Progress, RoundResult
from veilboost.config import TrainingConfig
from veilboost.errors import JobExists, NothingToResume, UnknownRun
from veilboost.party.runs import RunFolder, list_runs

pytestmark = pytest.mark.fast


def trained():
    columns = make_columns(1, 120)
    tables = split_among(columns, make_labels(1, columns), 2)
    return train(tables, TrainingConfig(objective="binary", n_estimators=3))


def test_a_checkpoint_comes_back(tmp_path):
    run = RunFolder.create(tmp_path, "first")
    part = trained().shares["p0"]
    margin = np.random.default_rng(0).normal(size=(1, 120))
    for kept in (1, 3):
        history = [RoundResult(n, 0.1, None) for n in range(kept)]
        skeleton = part.skeleton
        trees = list(skeleton.trees)[:kept]
        shorter = type(part)(
            part.party, part.columns, part.records, type(skeleton)(**vars(skeleton) | {"trees": tuple(trees)})
        )
        run.save_checkpoint(shorter, Progress(trees, margin * kept, history))
    progress, back = run.load_progress()
    assert len(progress.trees) == 3
    np.testing.assert_array_equal(progress.margin, margin * 3)
    assert [r.number for r in progress.history] == [0, 1, 2]
    np.testing.assert_array_equal(back.records.threshold, part.records.threshold)
    assert [path.name for path in (run.path / "checkpoint").glob("margin-*")] == ["margin-3.npy"]
    (run.path / "checkpoint" / "margin-3.npy").unlink()
    with pytest.raises(NothingToResume):
        run.load_progress()


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


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from veilboost.errors import CheckpointFailed
from veilboost.model.store import load_share
from veilboost.party.runs import RunFolder
run = RunFolder(Path(sys.argv[1]))
part = load_share(run.path / "checkpoint")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))  # as on a disk with no room, writing fails half-way
for write in (lambda: run.save_checkpoint(part), lambda: run.save_share(part), lambda: run.note(state="x" * 500)):
    try:
        write()
    except CheckpointFailed as error:
        print(error.code)
print(len(load_share(run.path / "checkpoint").records.tree) > 0, run.status["state"])
"""


def test_a_full_disk_is_a_coded_error_and_the_last_checkpoint_stays(tmp_path):
    run = RunFolder.create(tmp_path, "first")
    run.note(state="training")
    run.save_checkpoint(trained().shares["p1"])
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(run.path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["VB-1702", "VB-1702", "VB-1702", "True", "training"]
