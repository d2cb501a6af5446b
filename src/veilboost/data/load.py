"""Load a party's table from any source (files, frames, SQL) through one Arrow table.

The readers' own error messages may quote the table, so they are never shown or chained: always `from None`.
"""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost.data.categories import MAX_CATEGORIES
from veilboost.data.columns import (
    ArrowColumn,
    feature_column,
    id_values,
    kind_of,
    label_values,
    pyarrow,
    table_of,
    to_float32,
    weight_values,
    without_markers,
)
from veilboost.data.report import Note, TableReport, column_notes
from veilboost.data.schema import (
    STRICT,
    SchemaRules,
    Selection,
    absence_errors,
    category_errors,
    check_columns,
    check_names,
    check_size,
    mixed,
    raise_first,
    role_errors,
)
from veilboost.data.table import PartyTable
from veilboost.errors import MissingExtra, MixedTypes, UnknownFormat, UnreadableFile, VeilBoostError
from veilboost.types import Column

# The names that pandas gives its index in csv (empty) and in parquet. It holds row numbers and is not a feature.
_INDEX_NAME = re.compile(r"(__index_level_\d+__)?")


def load_table(
    source: object,
    *,
    id: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    features: Iterable[str] | None = None,
    categorical: Iterable[str] = (),
    format: str | None = None,
    query: str | None = None,
    missing_values: Iterable[object] = (),
    rules: SchemaRules = STRICT,
) -> PartyTable:
    """Load, check and convert a party's table.

    Parameters
    ----------
    source : path, str, pyarrow table, pandas frame, polars frame or None
        A file (.parquet, .csv, .csv.gz, .arrow, .feather, .ipc, .libsvm, .svm, .txt), a folder of parquet
        files, a table in memory, or `"sql:SELECT ..."`, which duckdb runs. With `query`, a duckdb database
        file or None.
    id : str, optional
        Column of row ids, whole numbers or text. Without it, rows are numbered 0, 1, ...
    label : str, optional
        Column to predict. A LIBSVM file always gives its first field as the label.
    weight : str, optional
        Column of row weights.
    features : iterable of str, optional
        Columns to train on, in this order. Unset: every column without another role.
    categorical : iterable of str
        Features to treat as categories although they are numbers (text is always categorical).
    format : {"parquet", "csv", "arrow", "libsvm"}, optional
        For a path whose suffix does not show the format.
    query : str, optional
        SQL for duckdb.
    missing_values : iterable of str or number
        Values that stand for missing ones, such as "unknown" or -999, in all columns.
    rules : SchemaRules
        How to treat constant columns and columns without any value.

    Returns
    -------
    PartyTable
        Numbers as float32 with NaN for missing, categories as codes with -1 for missing.

    Raises
    ------
    DataError
        The table is refused; the error code gives the reason (VB-1101 to VB-1115).
    ParameterError
        The arguments are incompatible, or an optional library is not installed.
    """
    return check_table(
        source,
        id=id,
        label=label,
        weight=weight,
        features=features,
        categorical=categorical,
        format=format,
        query=query,
        missing_values=missing_values,
        rules=rules,
        max_categories=None,
    ).usable


def check_table(
    source: object,
    *,
    id: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    features: Iterable[str] | None = None,
    categorical: Iterable[str] = (),
    format: str | None = None,
    query: str | None = None,
    missing_values: Iterable[object] = (),
    rules: SchemaRules = STRICT,
    max_categories: int | None = MAX_CATEGORIES,
) -> TableReport:
    """Report everything that is wrong or unusual in a party's table, and load it if it can be used.

    Parameters are those of `load_table`, and:

    Parameters
    ----------
    max_categories : int or None
        The number of values from which on training uses only the frequent values of a column; None: no notes.

    Returns
    -------
    TableReport
        All errors, all notes, and the table if there is no error.
    """
    selection = Selection(
        id,
        label,
        weight,
        None if features is None else _names(features),
        frozenset(_names(categorical)),
        tuple(map(str, _names(missing_values))),
    )
    errors = list(role_errors(selection))
    if errors:
        return TableReport(errors=tuple(errors))
    try:
        read = _read(source, selection, format, query)
    except VeilBoostError as error:
        return TableReport(errors=(error,))
    if selection.label is None and read.label is not None:
        selection = replace(selection, label=read.label)
        if errors := tuple(role_errors(selection)):
            return TableReport(errors=errors)
    selection = replace(selection, features=feature_names(read.names, selection))
    return _convert(read, selection, rules, max_categories)


def feature_names(names: Iterable[str], selection: Selection) -> tuple[str, ...]:
    """The features among the columns of a source: those that are named, or all columns without another role."""
    if selection.features is not None:
        return selection.features
    taken = set(selection.roles.values())
    return tuple(name for name in names if name not in taken and not _INDEX_NAME.fullmatch(name))


def _convert(read: Read, selection: Selection, rules: SchemaRules, max_categories: int | None) -> TableReport:
    """Convert every column that can be, and collect the errors of the others."""
    columns, rows, typed, pool = read.columns, read.rows, read.typed, pyarrow().default_memory_pool()
    errors = [*read.errors, *category_errors(selection)]
    notes: list[Note] = []

    def converted(name: str | None, convert: Callable[..., Any]) -> Any:
        """The converted column; None if no column is named or it cannot be used."""
        if name is None or name not in columns:
            return None
        try:  # the source's column is not kept beside the converted one
            return convert(name, without_markers(columns.pop(name), selection.missing_values))
        except VeilBoostError as error:
            errors.append(error)
            return None

    def feature(name: str, source: ArrowColumn) -> Column | None:
        declared = name in selection.categorical
        column = feature_column(name, source, categorical=declared, typed=typed)
        pool.release_unused()  # otherwise it keeps what reading and converting took, more than the table
        kept = check_columns((column,), rules)
        if max_categories is not None:
            notes.extend(column_notes(column, kind_of(source), rules, declared, max_categories))
        return kept[0] if kept else None

    names = selection.features or ()
    if columns or not read.errors:
        errors.extend(_caught(lambda: check_size(rows, len(names), selection.label is not None)))
    if rows == 0:
        return TableReport(errors=tuple(errors))
    ids = np.arange(rows, dtype=np.int64)
    if selection.id is not None:
        ids = converted(selection.id, partial(id_values, typed=typed))
    labels, classes = converted(selection.label, partial(label_values, typed=typed)) or (None, None)
    weights = converted(selection.weight, weight_values)
    features = tuple(column for column in (converted(name, feature) for name in names) if column is not None)
    if not errors:
        errors.extend(_caught(lambda: check_size(rows, len(features), selection.label is not None)))
    loaded = None if errors else PartyTable(ids, features, labels, classes, weights)
    return TableReport(rows, tuple(errors), tuple(notes), loaded)


def _caught(check: Callable[[], None]) -> Iterator[VeilBoostError]:
    try:
        check()
    except VeilBoostError as error:
        yield error


def _names(names: Iterable[Any]) -> tuple[Any, ...]:
    # A bare string is one name, not a sequence of letters.
    return (names,) if isinstance(names, str) else tuple(names)


FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".txt": "libsvm",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
DATABASES = {".duckdb", ".db", ".ddb"}
SQL_PREFIX = "sql:"
LIBSVM_LABEL = "label"
_READER_ERRORS = (OSError, ValueError, TypeError, RuntimeError, LookupError, EOFError, zlib.error)


@dataclass(frozen=True)
class Read:
    """The selected columns of a source, which a reader may take out one by one, so that they are not kept.

    `names` are all columns of the source. `typed` is False if types were inferred from text; `label` is set if the
    format itself has a label. `errors` are about selected columns that are not in the table.
    """

    columns: dict[str, ArrowColumn]
    rows: int
    names: tuple[str, ...]
    errors: tuple[VeilBoostError, ...]
    typed: bool = True
    label: str | None = None


def _columns_of(table: Any) -> tuple[dict[str, ArrowColumn], int]:
    """The columns of an Arrow table by name, and the number of its rows."""
    return dict(zip(table.column_names, table.columns, strict=True)), table.num_rows


def read_source(source: object, selection: Selection) -> Read:
    """Read a source of any kind. Raises for unsupported types, missing files and columns, and SQL without duckdb."""
    read = _read(source, selection, None, None)
    raise_first(read.errors)
    return read


def _read(source: object, selection: Selection, format: str | None, query: str | None) -> Read:
    if query is not None or (isinstance(source, str) and source.startswith(SQL_PREFIX)):
        return _read_sql(source, query, selection)
    if isinstance(source, (str, Path)):
        return _read_path(Path(source), format, selection)
    if format is not None:
        raise UnknownFormat(f"format={format!r} goes with a path", "leave the format out")
    origin = type(source).__module__.split(".")[0]
    if origin == "pandas" and hasattr(source, "columns"):
        return _read_pandas(source, selection)
    if origin == "polars" and hasattr(source, "lazy"):
        return _read_polars(source, selection)
    if origin == "pyarrow" and hasattr(source, "column_names"):
        return _chosen(source, selection)
    raise UnknownFormat(f"cannot load a table from {type(source).__name__}")


def _read_path(path: Path, format: str | None, selection: Selection) -> Read:
    if format is None:
        format = "parquet" if path.is_dir() else _format_of(path)
    elif format not in _READERS:
        raise UnknownFormat(f"format={format!r} is not one of {', '.join(_READERS)}")
    if not path.exists():
        raise UnreadableFile(f"there is no file {str(path)!r}")
    try:
        return _READERS[format](path, selection)
    except VeilBoostError:
        raise
    except _READER_ERRORS as error:
        raise UnreadableFile(f"{str(path)!r} could not be read as {format}{_hint(error)}") from None


def _chosen(table: Any, selection: Selection, *, typed: bool = True) -> Read:
    names = tuple(table.column_names)
    check_names(names)
    chosen = table.select(selection.choose(names))
    return Read(*_columns_of(chosen), names, tuple(absence_errors(names, selection)), typed)


def _format_of(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in {".gz", ".bz2"}:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    if suffix in DATABASES:
        raise UnknownFormat(f"{str(path)!r} is a database", "choose what to read with query='SELECT ...'")
    if suffix not in FORMATS:
        raise UnknownFormat(f"{str(path)!r} has no suffix that shows its format", "name it with format=, such as 'csv'")
    return FORMATS[suffix]


def _hint(error: Exception) -> str:
    """The part of a reader's message that describes the form and not the content."""
    found = re.search(r"Expected (\d+) columns, got (\d+)", str(error))
    return f" (a line has {found[2]} where the header has {found[1]} columns)" if found else ""


def _read_parquet(path: Path, selection: Selection) -> Read:
    parquet, pa = pyarrow("parquet"), pyarrow()
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise UnreadableFile(f"there is no .parquet file in {str(path)!r}")
    tables: list[Any] = []
    every: tuple[str, ...] = ()
    for file in files:
        # File by file: the folder reader drops columns that the first file does not have.
        with parquet.ParquetFile(file) as opened:
            check_names(opened.schema_arrow.names)
            every = every or tuple(opened.schema_arrow.names)
            names = selection.choose(opened.schema_arrow.names)
            if tables and set(names) != set(tables[0].column_names):
                raise UnreadableFile(f"the files in {str(path)!r} differ in their columns")
            tables.append(opened.read(columns=names).select(names))
    errors = tuple(absence_errors(every, selection))
    try:
        whole = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
        return Read(*_columns_of(whole), every, errors)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise MixedTypes(f"the files in {str(path)!r} disagree on whether a column is numbers or text") from None


def _read_csv(path: Path, selection: Selection) -> Read:
    csv, pa = pyarrow("csv"), pyarrow()
    convert = csv.ConvertOptions(
        column_types={name: pa.large_string() for name in selection.spelled},
        null_values=[*csv.ConvertOptions().null_values, *selection.missing_values],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    table = csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=convert)
    return _chosen(table, selection, typed=False)


def _read_arrow(path: Path, selection: Selection) -> Read:
    ipc, pa = pyarrow("ipc"), pyarrow()
    with pa.OSFile(str(path)) as file:
        try:
            table = ipc.open_file(file).read_all()
        except pa.ArrowInvalid:  # not the file format; the streaming format has the same suffixes
            file.seek(0)
            table = ipc.open_stream(file).read_all()
    return _chosen(table, selection)


def _read_libsvm(path: Path, selection: Selection) -> Read:
    """Column k of the file is named f<k>, as numbered in the file; entries that a row does not list are 0."""
    load: Any = importlib.import_module("sklearn.datasets").load_svmlight_file
    # zero_based=True keeps the file's own numbers: guessing would shift columns between two files.
    matrix, label = load(str(path), zero_based=True)
    matrix = matrix.tocsc()
    width = int(matrix.shape[1])
    first = 0 if width and matrix[:, 0].nnz else 1
    numbers = list(range(first, width))
    if selection.features is not None:
        # A named column beyond the file's last is all zeros: a file of few rows may not mention it.
        requested = (re.fullmatch(r"f(0|[1-9][0-9]{0,8})", name) for name in selection.features)
        numbers = [int(found[1]) for found in requested if found]
    columns: dict[str, Any] = {LIBSVM_LABEL: np.asarray(label, dtype=np.float64)}
    for number in numbers:
        dense = matrix[:, number].toarray().ravel() if number < width else np.zeros(len(label))
        columns[f"f{number}"] = to_float32(dense)
    errors = tuple(absence_errors(columns, selection))
    return Read(*_columns_of(table_of(columns)), tuple(columns), errors, label=LIBSVM_LABEL)


_READERS: dict[str, Callable[[Path, Selection], Read]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "libsvm": _read_libsvm,
    "arrow": _read_arrow,
}


def _read_sql(source: object, query: str | None, selection: Selection) -> Read:
    if query is None:
        source, query = None, str(source).removeprefix(SQL_PREFIX)
    elif source is not None and not isinstance(source, (str, Path)):
        raise UnknownFormat("a query runs on a database file or on no source at all", "give a path or None")
    if isinstance(source, (str, Path)) and not Path(source).exists():
        raise UnreadableFile(f"there is no database {str(source)!r}")
    try:
        duckdb: Any = importlib.import_module("duckdb")
    except ModuleNotFoundError:
        raise MissingExtra("SQL needs duckdb", "pip install 'veilboost[sql]'") from None
    try:
        # Read only: loading a table must not be able to change the owner's database.
        database = duckdb.connect() if source is None else duckdb.connect(str(source), read_only=True)
        with database:
            relation = database.sql(query)
            table = None if relation is None else relation.to_arrow_table()
    except duckdb.Error as error:
        raise UnreadableFile(f"the SQL query failed{_sql_hint(error)}", "try it in duckdb first") from None
    if table is None:
        raise UnreadableFile("the SQL query returns no table", "give one SELECT")
    return _chosen(table, selection)


def _sql_hint(error: Exception) -> str:
    reasons = {
        "ParserException": "it is not valid SQL",
        "CatalogException": "it names a table or function that does not exist",
        "BinderException": "it names a column that does not exist or misuses one",
        "IOException": "a file it reads, or the database, could not be opened",
        "ConversionException": "a value could not be converted",
    }
    kind = type(error).__name__
    return f": {reasons.get(kind, kind)}"


_REFUSALS = (ValueError, TypeError, OverflowError, NotImplementedError)


def _read_pandas(frame: Any, selection: Selection) -> Read:
    """The selected columns of a pandas frame, without the index.

    Columns of mixed Python objects are errors, unless they are declared categorical: then each value becomes text.
    """
    pa = pyarrow()
    names = tuple(str(name) for name in frame.columns)
    arrays: dict[str, Any] = {}
    check_names(names)
    errors = list(absence_errors(names, selection))
    for name in selection.choose(names):
        # By position: the frame's own name may be a number.
        series = frame.iloc[:, names.index(name)]
        if hasattr(series, "sparse"):
            series = series.sparse.to_dense()
        if series.dtype == object and selection.missing_values:
            series = series.mask(series.astype(str).isin(selection.missing_values))
        try:
            arrays[name] = pa.array(series, from_pandas=True)
        except _REFUSALS:
            # Not chained: the reason quotes the value that failed.
            if name in selection.categorical:
                arrays[name] = pa.array(_print_each(series), pa.large_string())
            else:
                errors.append(mixed(name, name in selection.roles.values()))
    return Read(*_columns_of(pa.table(arrays)), names, tuple(errors))


def _read_polars(frame: Any, selection: Selection) -> Read:
    """The selected columns of a polars frame or lazy frame."""
    lazy = frame.lazy()
    names = tuple(lazy.collect_schema().names())
    chosen = lazy.select(selection.choose(names)).collect()
    return Read(*_columns_of(chosen.to_arrow()), names, tuple(absence_errors(names, selection)))


def _print_each(series: Any) -> list[str | None]:
    missing = cast("list[bool]", series.isna().tolist())
    values = cast("list[Any]", series.tolist())
    return [None if gone else _print(value) for value, gone in zip(values, missing, strict=True)]


def _print(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)
