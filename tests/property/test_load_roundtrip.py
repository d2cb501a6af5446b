"""Whatever a table holds, its files load to the same PartyTable as the table itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.data import PartyTable, SchemaRules, load_table

pytestmark = pytest.mark.fast

# Letters first: a csv file cannot say whether 7 is text. "NA", "true" and "inf" are letters and must survive.
WORDS = st.one_of(
    st.sampled_from(["NA", "null", "true", "inf", "nan", 'quo"te', "com,ma", "two\nlines", "ümlaut", "日本", ""]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8).map(lambda tail: f"x{tail}"),
)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, dict[str, Any]]:
    rows = draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), kind)

    def whole(values: st.SearchStrategy[Any], kind: pa.DataType, *, unique: bool = False) -> pa.Array:
        return pa.array(draw(st.lists(values, min_size=rows, max_size=rows, unique=unique)), kind)

    some_ids = (
        (st.integers(-(2**63), 2**63 - 1), pa.int64()),
        (WORDS.filter(bool), pa.string()),
    )
    columns = {
        "id": whole(*draw(st.sampled_from(some_ids)), unique=True),
        "real": column(FLOATS, pa.float64()),
        "single": column(FLOATS, pa.float32()),
        "count": column(st.integers(-(2**40), 2**40), pa.int64()),
        "flag": column(st.booleans(), pa.bool_()),
        "word": column(WORDS, pa.string()),
        "kind": column(WORDS, pa.string()).dictionary_encode(),
        "code": column(st.integers(-50, 50), pa.int32()),
        "label": whole(st.floats(-1e6, 1e6), pa.float64()),
        "weight": whole(st.floats(0.5, 10), pa.float64()),
    }
    roles = {
        "id": "id",
        "label": "label",
        "weight": "weight",
        "categorical": ["word", "kind", "code"],
        "rules": SchemaRules("keep"),
    }
    return pa.table(columns), roles


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    else:
        plain = table.set_column(table.column_names.index("kind"), "kind", table["kind"].cast(pa.string()))
        pyarrow.csv.write_csv(plain, path)


def assert_same(one: PartyTable, other: PartyTable) -> None:
    assert one.ids.dtype.kind == other.ids.dtype.kind
    np.testing.assert_array_equal(one.ids, other.ids)
    assert one.names == other.names
    for first, second in zip(one.columns, other.columns, strict=True):
        assert first.categories == second.categories
        assert first.values.dtype == second.values.dtype
        np.testing.assert_array_equal(first.values, second.values)
    assert one.label_classes == other.label_classes
    np.testing.assert_array_equal(one.label, other.label)  # pyright: ignore
    np.testing.assert_array_equal(one.weight, other.weight)  # pyright: ignore


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
@settings(max_examples=60, deadline=None)
@given(case=tables())
def test_files_load_as_the_table_does(ending: str, case: tuple[pa.Table, dict[str, Any]]) -> None:
    table, roles = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table.{ending}"
        write(table, path)
        assert_same(load_table(path, **roles), load_table(table, **roles))


@settings(max_examples=60, deadline=None)
@given(case=tables())
def test_the_table_itself_is_kept(case: tuple[pa.Table, dict[str, Any]]) -> None:
    table, roles = case
    loaded = load_table(table, **roles)
    assert loaded.ids.tolist() == table["id"].to_pylist()
    for column in loaded.columns:
        given_values = table[column.name].to_pylist()
        if column.categories is None:
            expected = [np.nan if value is None else np.float32(value) for value in given_values]
            np.testing.assert_array_equal(column.values, np.array(expected, dtype=np.float32))
        else:
            names = [None if code < 0 else column.categories[code] for code in column.values]
            assert names == [None if value is None else str(value) for value in given_values]
            assert list(column.categories) == sorted({name for name in names if name is not None})


@settings(max_examples=60, deadline=None)
@given(case=tables(), order=st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter_once_sorted(case: tuple[pa.Table, dict[str, Any]], order: Any) -> None:
    table, roles = case
    rows = list(range(table.num_rows))
    order.shuffle(rows)
    assert_same(load_table(table.take(rows), **roles).sorted_by_id(), load_table(table, **roles).sorted_by_id())
