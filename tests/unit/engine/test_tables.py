"""Tables read by shard are the tables that are read whole."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from support import sha
from veilboost.config import TrainingConfig
from veilboost.data.load import load_table
from veilboost.engine.pool import SerialPool
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.tables import table_in_place
from veilboost.errors import ConstantColumn, InfiniteValues, UnreadableFile, UnsupportedCombination
from veilboost.party.simulation import simulate_training

ROWS = 230


def shards(count: int) -> ShardedEngine:
    return ShardedEngine(SerialPool(), count, "ray")


def columns(**changes):
    rng = np.random.default_rng(4)
    values = {
        "age": rng.normal(size=ROWS).astype(np.float32),
        "town": np.array(["ulm", "aachen", "köln"])[np.sort(rng.integers(3, size=ROWS))],  # not all in every shard
        "spent": np.where(rng.random(ROWS) < 0.1, np.nan, rng.random(ROWS)),
        "weight": rng.random(ROWS),
        "label": rng.integers(2, size=ROWS).astype(np.float64),
    }
    return values | changes


def write(folder, values, cuts=(0, 37, 38, 150, ROWS)):
    folder.mkdir()
    for number, (low, high) in enumerate(itertools.pairwise(cuts)):
        part = pa.table({name: column[low:high] for name, column in values.items()})
        parquet.write_table(part, folder / f"part-{number}.parquet", row_group_size=29)
    return folder


@pytest.mark.parametrize("count", [1, 3, 11])
def test_the_same_columns_and_the_same_model(tmp_path, count):
    folder = write(tmp_path / "bank", columns())
    roles = {"label": "label", "weight": "weight"}
    whole, parts = load_table(folder, **roles), table_in_place(shards(count), folder, **roles)
    assert parts.names == whole.names
    assert parts.rows == whole.rows
    for one, other in zip(parts.columns, whole.columns, strict=True):
        assert one.categories == other.categories
        np.testing.assert_array_equal(np.asarray(one.values), other.values)
    np.testing.assert_array_equal(np.asarray(parts.label), whole.label)
    config = TrainingConfig(n_estimators=2, max_depth=3, max_bin=8)
    expected = simulate_training({"bank": whole}, "bank", "plain", config)
    assert sha(simulate_training({"bank": parts}, "bank", "plain", config, engine=shards(count))) == sha(expected)


def test_what_is_refused_whole_is_refused_by_shard(tmp_path):
    constant = write(tmp_path / "constant", columns(age=np.ones(ROWS)))
    with pytest.raises(ConstantColumn):
        table_in_place(shards(3), constant)
    infinite = columns()["spent"].copy()
    infinite[200] = np.inf
    with pytest.raises(InfiniteValues):
        table_in_place(shards(3), write(tmp_path / "infinite", columns(spent=infinite)))
    with pytest.raises(UnsupportedCombination, match="labels"):
        table_in_place(shards(3), write(tmp_path / "text", columns()), label="town")
    with pytest.raises(UnreadableFile, match="no folder"):
        table_in_place(shards(3), tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableFile, match=r"no \.parquet file"):
        table_in_place(shards(3), tmp_path / "empty")


def test_a_column_that_is_constant_in_every_shard_is_not_constant(tmp_path):
    folder = write(tmp_path / "bank", columns(age=np.sort(np.arange(ROWS) // 115).astype(np.float32)))
    assert "age" in table_in_place(shards(2), folder).names
