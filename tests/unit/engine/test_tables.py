"""Tables read by shard are the tables that are read whole."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from support import sha
from veilboost.align.clear import align_by_id, meet_in_place
from veilboost.config import TrainingConfig
from veilboost.data.load import load_table
from veilboost.engine.pool import Pool
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.tables import rows_in_place, table_in_memory, table_in_place
from veilboost.errors import (
    ConstantColumn,
    DuplicateIds,
    EmptyIntersection,
    IdIsFeature,
    InfiniteValues,
    MissingColumn,
    MixedTypes,
    UnreadableFile,
    UnsupportedCombination,
)
from veilboost.party.simulation import simulate_training

ROWS = 230


def shards(count: int) -> ShardedEngine:
    return ShardedEngine(Pool(), count, "ray")


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
    np.testing.assert_array_equal(np.asarray(parts.ids), whole.ids)
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
    several = write(tmp_path / "several", columns())
    with pytest.raises(MissingColumn):
        table_in_place(shards(3), several, id="nobody")
    with pytest.raises(IdIsFeature):
        table_in_place(shards(3), several, id="town", features=["town"])
    mixed = write(tmp_path / "mixed", columns())
    parquet.write_table(pa.table(columns(age=["old"] * ROWS)), mixed / "part-9.parquet")
    with pytest.raises(MixedTypes, match="numbers or text"):
        table_in_place(shards(3), mixed)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.parquet").write_text("no parquet")
    with pytest.raises(UnreadableFile, match="as parquet"):
        table_in_place(shards(3), tmp_path / "broken")
    with pytest.raises(UnreadableFile, match="no folder"):
        table_in_place(shards(3), tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableFile, match=r"no \.parquet file"):
        table_in_place(shards(3), tmp_path / "empty")


def test_labels_of_text_are_classes_of_all_shards(tmp_path):
    folder = write(tmp_path / "bank", columns())
    whole, parts = load_table(folder, label="town"), table_in_place(shards(7), folder, label="town")
    assert parts.label_classes == whole.label_classes == ("aachen", "köln", "ulm")
    np.testing.assert_array_equal(np.asarray(parts.label), whole.label)


def test_one_file_and_an_address_are_read_as_folders_are(tmp_path):
    folder = write(tmp_path / "bank", columns(), cuts=(0, ROWS))
    whole = load_table(folder)
    for source in (folder / "part-0.parquet", folder.as_uri(), (folder / "part-0.parquet").as_uri()):
        assert rows_in_place(source) == ROWS
        for table in (table_in_place(shards(3), source), table_in_memory(source)):
            np.testing.assert_array_equal(np.asarray(table.columns[0].values), whole.columns[0].values)


def test_types_that_differ_between_files_become_one(tmp_path):
    """A column without a value in one file has no type there; whole numbers and others are numbers."""
    values = columns(visits=np.arange(ROWS))
    folder = write(tmp_path / "bank", values, cuts=(0, 100))
    rest = {name: column[100:] for name, column in values.items()}
    rest |= {"town": [None] * (ROWS - 100), "visits": rest["visits"] + 0.5}
    parquet.write_table(pa.table(rest), folder / "part-9.parquet")
    whole, parts = load_table(folder), table_in_place(shards(5), folder)
    for one, other in zip(parts.columns, whole.columns, strict=True):
        assert one.categories == other.categories
        np.testing.assert_array_equal(np.asarray(one.values), other.values)


def test_a_column_that_is_constant_in_every_shard_is_not_constant(tmp_path):
    folder = write(tmp_path / "bank", columns(age=np.sort(np.arange(ROWS) // 115).astype(np.float32)))
    assert "age" in table_in_place(shards(2), folder).names


# --- rows that find each other ----------------------------------------------------------------------------------------


def sampled_ids(seed, numbers, known=0.7):
    """Ids of some of 400 records in any order, and two parties' columns of them."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(400)[: int(400 * known)]
    return chosen, chosen * 7 if numbers else np.array([f"p{k}" for k in chosen])


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("count", [1, 3, 10])
def test_rows_meet_by_id_without_one_process_that_sees_all_ids(tmp_path, numbers, count):
    truth = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    label = (truth.sum(axis=1) > 0).astype(np.float64)
    loaded, spread = {}, {}
    for number, name in enumerate(("bank", "shop")):
        chosen, ids = sampled_ids(number, numbers)
        values = {"id": ids} | {f"x{2 * number + k}": truth[chosen, 2 * number + k] for k in range(2)}
        roles = {"id": "id"} | ({"label": "y"} if name == "bank" else {})
        folder = write(
            tmp_path / name, values | ({"y": label[chosen]} if name == "bank" else {}), (0, 100, len(chosen))
        )
        loaded[name] = load_table(folder, **roles)
        spread[name] = table_in_place(shards(count), folder, **roles)
    whole, met = align_by_id(loaded), meet_in_place(spread)
    assert met["bank"].rows == whole["bank"].rows
    for name in whole:
        assert np.asarray(met[name].ids).tolist() == np.asarray(met["bank"].ids).tolist()
        order, own = np.argsort(whole[name].ids), np.argsort(np.asarray(met[name].ids))
        for one, other in zip(met[name].columns, whole[name].columns, strict=True):
            np.testing.assert_array_equal(np.asarray(one.values)[own], other.values[order])
    config = TrainingConfig(n_estimators=2, max_depth=3, max_bin=8)
    expected = simulate_training(whole, "bank", "lattice", config)
    assert sha(simulate_training(met, "bank", "lattice", config, engine=shards(count))) == sha(expected)


def test_rows_that_cannot_meet_are_refused(tmp_path):
    values = np.arange(40.0)
    same = write(tmp_path / "same", {"id": np.arange(40), "x": values}, (0, 40))
    other = write(tmp_path / "other", {"id": np.arange(40, 80), "z": values}, (0, 40))
    twice = write(tmp_path / "twice", {"id": np.arange(40) % 39, "z": values}, (0, 40))
    read = {folder.name: table_in_place(shards(2), folder, id="id") for folder in (same, other)}
    with pytest.raises(EmptyIntersection):
        meet_in_place(read)
    with pytest.raises(DuplicateIds):
        meet_in_place({"same": read["same"], "twice": table_in_place(shards(2), twice, id="id")})
    with pytest.raises(UnsupportedCombination, match="table_in_place"):
        meet_in_place({"same": load_table(same, id="id")})
