"""Every kind of source gives the same PartyTable."""

from __future__ import annotations

import datetime
import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from veilboost import errors
from veilboost.data import PartyTable, SchemaRules, load_table

pytestmark = pytest.mark.fast

KEEP = SchemaRules("keep")
ROWS: dict[str, list[Any]] = {
    "id": ["C3", "C1", "C2"],
    "income": [1200.5, None, 900.0],
    "visits": [3, 1, None],
    "member": [True, False, None],
    "town": ["Ulm", None, "Bonn"],
    "bought": ["no", "yes", "no"],
    "w": [1.0, 2.0, 0.5],
}


def assert_is_rows(table: PartyTable) -> None:
    assert table.ids.tolist() == ROWS["id"]
    assert table.ids.dtype.kind == "U"
    income, visits, member, town = table.columns
    assert table.names == ("income", "visits", "member", "town")
    for column in (income, visits, member):
        assert column.values.dtype == np.float32
        assert column.categories is None
    np.testing.assert_array_equal(income.values, np.array([1200.5, np.nan, 900], dtype=np.float32))
    np.testing.assert_array_equal(visits.values, [3, 1, np.nan])
    np.testing.assert_array_equal(member.values, [1, 0, np.nan])
    assert town.categories == ("Bonn", "Ulm")
    assert town.values.dtype == np.int32
    assert town.values.tolist() == [1, -1, 0]
    assert table.label is not None
    assert table.label.dtype == np.float64
    assert table.label.tolist() == [0, 1, 0]
    assert table.label_classes == ("no", "yes")
    assert table.weight is not None
    assert table.weight.tolist() == [1, 2, 0.5]


def load_rows(source: object, **more: Any) -> PartyTable:
    return load_table(source, id="id", label="bought", weight="w", **more)


def write(path: Path) -> Path:
    table = pa.table(ROWS)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, path)
    elif path.suffix == ".ipc":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    else:
        with pa.CompressedOutputStream(str(path), "gzip") if path.suffix == ".gz" else path.open("wb") as file:
            pyarrow.csv.write_csv(table, file)
    return path


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz", "arrow", "feather", "ipc"])
def test_files(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"rows.{ending}")
    assert_is_rows(load_rows(path))
    assert_is_rows(load_rows(str(path)))


@pytest.mark.parametrize(
    "make",
    [
        pa.table,
        pd.DataFrame,
        lambda rows: pd.DataFrame(rows).astype({"town": "category", "bought": "category", "visits": "Int64"}),
        pl.DataFrame,
        pl.LazyFrame,
        lambda rows: pl.DataFrame(rows).with_columns(pl.col("town", "bought").cast(pl.Categorical)),
        lambda rows: pa.table(rows).cast(
            pa.schema(
                [
                    ("id", pa.string_view()),
                    ("income", pa.float64()),
                    ("visits", pa.decimal128(22, 2)),
                    ("member", pa.bool_()),
                    ("town", pa.string_view()),
                    ("bought", pa.large_string()),
                    ("w", pa.float32()),
                ]
            )
        ),
    ],
    ids=["arrow", "pandas", "pandas-extension", "polars", "polars-lazy", "polars-categorical", "arrow-views"],
)
def test_tables_in_memory(make: Any) -> None:
    assert_is_rows(load_rows(make(ROWS)))


def test_sql_on_a_database_file_a_prefix_and_no_source(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet")
    select = f"SELECT * FROM '{path}'"  # noqa: S608
    database = tmp_path / "shop.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE TABLE rows AS {select}")
    assert_is_rows(load_rows(database, query="SELECT * FROM rows"))
    assert_is_rows(load_rows(f"sql:{select}"))
    assert_is_rows(load_rows(None, query=select))


def test_sql_cannot_change_the_database(tmp_path: Path) -> None:
    database = tmp_path / "shop.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS a")
    with pytest.raises(errors.UnreadableFile):
        load_table(database, query="DROP TABLE kept")
    with duckdb.connect(str(database)) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1,)


def test_sql_without_duckdb_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(errors.MissingExtra, match=r"pip install 'veilboost\[sql\]'"):
        load_table("sql:SELECT 1")


def test_a_folder_of_parquet_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": ["u", "v"], "a": [2.5, 3.0]}), tmp_path / "part-1.parquet")
    pq.write_table(pa.table({"a": [0, 1], "b": pa.nulls(2)}), tmp_path / "part-0.parquet")
    (tmp_path / "_SUCCESS").touch()
    table = load_table(tmp_path)
    by_name = {column.name: column for column in table.columns}
    assert by_name["a"].values.tolist() == [0, 1, 2.5, 3]
    assert by_name["b"].values.tolist() == [-1, -1, 0, 1]


def test_a_folder_whose_files_disagree_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [0, 1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [0, 1], "b": [0, 1]}), tmp_path / "1.parquet")
    with pytest.raises(errors.UnreadableFile, match="differ in their columns"):
        load_table(tmp_path)
    pq.write_table(pa.table({"a": ["x", "y"]}), tmp_path / "1.parquet")
    with pytest.raises(errors.MixedTypes):
        load_table(tmp_path)


def test_libsvm_absent_is_zero_and_columns_keep_the_numbers_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("1 1:2.5 3:4 # remark\n0 2:5\n")
    table = load_table(path)
    assert table.names == ("f1", "f2", "f3")
    assert [column.values.tolist() for column in table.columns] == [[2.5, 0], [0, 5], [4, 0]]
    assert table.label is not None
    assert table.label.tolist() == [1, 0]
    packed = tmp_path / "rows.libsvm.gz"
    packed.write_bytes(gzip.compress(b"1 0:1\n0 1:5\n"))
    assert load_table(packed).names == ("f0", "f1")


@pytest.mark.parametrize("role", [{"id": "label"}, {"weight": "label"}, {"features": ["label", "f1"]}])
def test_libsvm_label_has_no_other_role(tmp_path: Path, role: dict[str, Any]) -> None:
    file = tmp_path / "rows.svm"
    file.write_text("1 1:0.5\n2 1:0.25\n")
    with pytest.raises(errors.UnsupportedCombination, match="label"):
        load_table(file, **role)


def test_libsvm_column_beyond_the_last_is_zero_when_named(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text("1 1:2\n0 2:5\n")
    table = load_table(path, features=["f4", "f2"], rules=KEEP)
    assert table.names == ("f4", "f2")
    assert [column.values.tolist() for column in table.columns] == [[0, 0], [0, 5]]
    with pytest.raises(errors.MissingColumn):
        load_table(path, features=["g1"], rules=KEEP)


def test_without_id_rows_are_numbered() -> None:
    ids = load_table(pa.table({"x": [5, 6, 7]})).ids
    assert ids.dtype == np.int64
    assert ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint32(), pa.int64()])
def test_integer_ids_become_int64(kind: pa.DataType) -> None:
    ids = load_table(pa.table({"id": pa.array([7, 3], kind), "x": [1, 2]}), id="id").ids
    assert ids.dtype == np.int64
    assert ids.tolist() == [7, 3]


def test_csv_ids_are_numbers_only_if_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for written, kind in {"7,12": "i", "007,12": "U", "7,1e3": "U", "99999999999999999999,5": "U"}.items():
        first, second = written.split(",")
        path.write_text(f"id,x\n{first},1\n{second},2\n")
        ids = load_table(path, id="id").ids
        assert ids.dtype.kind == kind
        assert [str(value) for value in ids] == [first, second]


def test_declared_categories_print_whole_numbers_without_point_zero(tmp_path: Path) -> None:
    rows = pa.table({"f": [1.0, None, 10.0, 2.5], "i": [1, 2, 10, 2], "b": [True, False, None, True]})
    f, i, b = load_table(rows, categorical=["f", "i", "b"]).columns
    assert f.categories == ("1", "10", "2.5")
    assert f.values.tolist() == [0, -1, 1, 2]
    assert i.categories == ("1", "10", "2")
    assert i.values.tolist() == [0, 2, 1, 2]
    assert b.categories == ("false", "true")
    path = tmp_path / "a.csv"
    path.write_text("f,z\n1.0,01\n,02\n10.0,1\n")
    f, z = load_table(path, categorical=["f", "z"]).columns
    assert f.categories == ("1", "10")
    assert z.categories == ("01", "02", "1")


def test_float32_categories_print_short_and_zero_has_no_sign() -> None:
    values = pa.array([0.1, -0.0, 0.0, float("nan")], pa.float32())
    (column,) = load_table(pa.table({"f": values}), categorical="f").columns
    assert column.categories == ("0", "0.1")
    assert column.values.tolist() == [1, 0, 0, -1]


def test_unused_and_repeated_dictionary_values_leave_no_trace() -> None:
    doubled = pa.DictionaryArray.from_arrays(pa.array([0, 2, None]), pa.array(["b", "a", "b"]))
    (column,) = load_table(pa.table({"c": doubled})).columns
    assert column.categories == ("b",)
    assert column.values.tolist() == [0, 0, -1]


def test_mixed_objects_may_be_declared_categorical() -> None:
    frame = pd.DataFrame({"code": [1, 2.0, "A", None]})
    (column,) = load_table(frame, categorical=["code"]).columns
    assert column.categories == ("1", "2", "A")
    assert column.values.tolist() == [0, 1, 2, -1]


def test_dates_may_be_declared_categorical() -> None:
    days = [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)]
    (column,) = load_table(pa.table({"day": days}), categorical=["day"]).columns
    assert column.categories == ("2020-01-01", "2020-01-02")


def test_csv_missing_text_and_empty_text_differ(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('x,c\n1,""\n2,\n3,NA\n4,"NA"\n5,"two\nlines"\n')
    column = load_table(path).columns[1]
    assert column.categories == ("", "NA", "two\nlines")
    assert column.values.tolist() == [0, -1, -1, 1, 2]


def test_csv_with_line_breaks_in_text_beyond_one_block(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = 100_000
    path.write_text("x,c\n" + "".join(f'{row},"two\nlines, {row % 3}"\n' for row in range(rows)))
    column = load_table(path).columns[1]
    assert len(column.values) == rows
    assert column.categories == ("two\nlines, 0", "two\nlines, 1", "two\nlines, 2")


def test_only_the_chosen_features_are_read_and_in_this_order() -> None:
    frame = pd.DataFrame({"age": [1, 2], "odd": [1, "x"], "debt": [3, 4]})
    assert load_table(frame, features=["debt", "age"]).names == ("debt", "age")
    assert load_table(frame, features="debt").names == ("debt",)


def test_the_index_of_pandas_is_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]}).iloc[1:]
    frame.to_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "a.parquet")
    assert load_table(tmp_path / "a.csv").names == ("a",)
    assert load_table(tmp_path / "a.parquet").names == ("a",)


def test_numeric_column_names_of_pandas_become_text() -> None:
    assert load_table(pd.DataFrame([[1, 2], [3, 4]])).names == ("0", "1")


def test_format_overrides_the_ending(tmp_path: Path) -> None:
    path = tmp_path / "a.dat"
    path.write_text("x\n1\n2\n")
    assert load_table(path, format="csv").names == ("x",)


def test_importing_loads_no_heavy_library() -> None:
    heavy = "('pandas', 'polars', 'duckdb', 'sklearn', 'pyarrow')"
    code = f"import sys, veilboost.data; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
