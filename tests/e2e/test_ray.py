"""A real Ray cluster of several worker processes on this machine: the same model, also when a worker is killed."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from sharded_parties import Lotted, lotted_certificates
from support import make_columns, make_labels, sha, split_among, train
from veilboost.align.clear import align_by_id, meet_in_place
from veilboost.cli.main import app
from veilboost.config import TrainingConfig
from veilboost.data.load import load_table
from veilboost.engine import cuts, shard_ops
from veilboost.engine import pool as pools
from veilboost.engine.api import lasting_engine
from veilboost.engine.pool import RayPool
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.tables import table_in_place
from veilboost.errors import MalformedMessage, WorkersLost
from veilboost.estimators import VerticalClassifier
from veilboost.party import batches

pytest.importorskip("ray")
CONFIG = TrainingConfig(n_estimators=1, max_depth=3, max_bin=16)
WORKERS = 3


@pytest.fixture(scope="module")
def pool():
    made = RayPool(WORKERS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def tables():
    columns = make_columns(7, 1200, numeric=4, missing=0.05)
    return split_among(columns, make_labels(7, columns), 2)


@pytest.mark.parametrize("protocol", ["plain", "lattice", "paillier"])
def test_every_exact_protocol_gives_the_model_of_one_machine(pool, tables, protocol):
    config = CONFIG
    if protocol == "plain":
        config = replace(CONFIG, n_estimators=2)
    if protocol == "paillier":
        config = replace(CONFIG, max_depth=2)
        tables = {name: table.take(range(100)) for name, table in tables.items()}
    expected = sha(train(tables, config, protocol))
    for shards in (1, 2, 3, 7):
        run = train(tables, config, protocol, engine=ShardedEngine(pool, shards, "ray"))
        assert sha(run) == expected
        assert run.engine == "ray"
    assert run.workers > 1, "seven shards keep more than one worker busy"


def test_cuts_are_found_by_counting_in_workers(pool, tables, monkeypatch):
    """As for columns of very many rows, of which no worker holds one whole."""
    expected = sha(train(tables, CONFIG))
    monkeypatch.setattr(cuts, "FEW_ROWS", 0)
    assert sha(train(tables, CONFIG, engine=ShardedEngine(pool, 7, "ray"))) == expected


def test_folders_are_read_and_meet_in_workers(pool, tmp_path):
    rng = np.random.default_rng(3)
    values = rng.normal(size=(900, 4)).astype(np.float32)
    label = (values.sum(axis=1) > 0).astype(np.float64)
    loaded, spread, engine = {}, {}, ShardedEngine(pool, 3, "ray")
    for number, name in enumerate(("bank", "shop")):
        known = rng.permutation(900)[:800]
        table = {"id": known} | {f"x{k}": values[known, k] for k in (2 * number, 2 * number + 1)}
        table |= {"y": label[known]} if name == "bank" else {}
        (tmp_path / name).mkdir()
        for part, rows in enumerate(np.split(np.arange(800), [300])):
            parquet.write_table(
                pa.table({key: v[rows] for key, v in table.items()}), tmp_path / name / f"{part}.parquet"
            )
        roles = {"id": "id", "label": "y" if name == "bank" else None}
        loaded[name] = load_table(tmp_path / name, **roles)
        spread[name] = table_in_place(engine, tmp_path / name, **roles)
    met = train(meet_in_place(spread), CONFIG, "lattice", engine=engine)
    assert sha(met) == sha(train(align_by_id(loaded), CONFIG, "lattice"))


def test_daemons_leave_their_tables_in_workers_and_align_by_batches(pool, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_ROWS", 100)
    town = Lotted(tmp_path, lotted_certificates(tmp_path / "certs"))
    lasting_engine.cache_clear()  # no engine of an earlier cluster
    try:
        for owner in ("bank", "shop"):
            town.settle(owner, engine="ray")
        assert town.train("first", protocol="lattice") == town.simulated("lattice")
        assert town.run("shop", "first").batches == 4
    finally:
        town.close()
        lasting_engine.cache_clear()


class Killing(RayPool):
    """Hands some kinds of work to a worker that kills itself the first time, as the system would."""

    def __init__(self, folder: Path) -> None:
        super().__init__(WORKERS)
        self._folder = folder
        self.killed: set[str] = set()

    def _doomed(self, function):
        if function not in {shard_ops.histogram, shard_ops.combined, shard_ops.on_grid}:
            return function
        name, mark = function.__name__, self._folder / function.__name__
        self.killed.add(name)

        def once(*arguments):
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        return once

    def call(self, function, *arguments):
        return super().call(self._doomed(function), *arguments)

    def call_for(self, count, function, *arguments):
        return super().call_for(count, self._doomed(function), *arguments)


@pytest.mark.parametrize(("protocol", "kinds"), [("lattice", 3), ("ldp", 2)])
def test_a_worker_killed_in_a_level_changes_nothing(pool, tables, tmp_path, protocol, kinds):
    """Also where noise is drawn: it follows from the request, so work that runs again meets the same."""
    killing = Killing(tmp_path)
    config = CONFIG if protocol != "ldp" else replace(CONFIG, max_depth=2, options={"mechanism": "laplace"})
    run = train(tables, config, protocol, engine=ShardedEngine(killing, 3, "ray"), unsafe_noise_seed=0)
    assert len(killing.killed) == len(list(tmp_path.iterdir())) == kinds
    assert sha(run) == sha(train(tables, config, protocol, unsafe_noise_seed=0))


def test_errors_of_workers_arrive_as_they_left(pool):
    def refuse():
        raise MalformedMessage("no", "nothing")

    with pytest.raises(MalformedMessage, match=r"^VB-1401: no; nothing$"):
        pool.get([pool.call(refuse)])


def test_work_that_always_kills_its_worker_ends_with_a_code(pool, monkeypatch):
    monkeypatch.setattr(pools, "RETRIES", 1)
    with pytest.raises(WorkersLost, match="VB-1708"):
        pool.get([pool.call(os._exit, 1)])


def test_the_estimator_and_the_command_line_name_the_engine(pool, tables, tmp_path):
    """They join the cluster that this process has started."""
    columns = {column.name: column.values for table in tables.values() for column in table.columns}
    pandas = pytest.importorskip("pandas")
    frame, label = pandas.DataFrame(columns), tables["p0"].label
    here, there = (
        VerticalClassifier(n_estimators=1, max_depth=2, engine=engine).fit(frame, label) for engine in ("local", "ray")
    )
    assert here.model_sha256_ == there.model_sha256_
    assert there.simulation_.engine == "ray"
    frame.assign(y=label).to_csv(tmp_path / "t.csv", index=False)
    options = ["--data", str(tmp_path / "t.csv"), "--label", "y", "--trees", "1", "--json", "--no-baselines"]
    said = [
        json.loads(CliRunner().invoke(app, ["simulate", *options, *engine]).stdout)
        for engine in ([], ["--engine", "ray", "--workers", "2"])
    ]
    assert [each["engine"] for each in said] == ["local", "ray"]
    assert said[0]["workers"] == 1
    assert said[1]["workers"] >= 1  # that really had work; the cluster has three
    assert said[0]["model_sha256"] == said[1]["model_sha256"]


def test_threads_share_a_pool(pool):
    """As the parties of one process do."""

    def ask(number):
        return len(pool.get([pool.call(shard_ops.count_up, number % 7)])[0])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(600))) == [number % 7 for number in range(600)]
    assert pool.workers >= 1


def test_work_that_fails_is_told_to_whoever_asks_for_it_alone(pool):
    def refuse():  # within the test: workers cannot import its module
        raise MalformedMessage("this piece of work fails")

    failing = pool.call(shard_ops.done, pool.call(refuse))
    for number in range(2 * pools.LOOK_EVERY):
        assert len(pool.get([pool.call(shard_ops.count_up, number)])[0]) == number
    assert pool.workers >= 1
    with pytest.raises(MalformedMessage, match="this piece of work fails"):
        pool.get([failing])
