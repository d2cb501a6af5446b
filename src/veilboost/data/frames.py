"""pandas and polars frames as Arrow tables, without importing either."""

from __future__ import annotations

from typing import Any, cast

from veilboost.data.arrow import ArrowTable, pyarrow
from veilboost.data.schema import check_names, mixed
from veilboost.data.selection import Selection

_REFUSALS = (ValueError, TypeError, OverflowError, NotImplementedError)


def from_pandas(frame: Any, selection: Selection) -> ArrowTable:
    """A pandas frame's chosen columns; the index is left behind.

    Columns of mixed Python objects are refused, unless declared categorical: then each value is printed.
    """
    pa = pyarrow()
    names = [str(name) for name in frame.columns]
    arrays: dict[str, Any] = {}
    check_names(names)
    for name in selection.choose(names):
        # By position: the frame's own name may be a number.
        series = frame.iloc[:, names.index(name)]
        try:
            arrays[name] = pa.array(series, from_pandas=True)
        except _REFUSALS:
            # Not chained: the reason quotes the value it stumbled over.
            if name not in selection.categorical:
                raise mixed(name, name in selection.roles.values()) from None
            arrays[name] = pa.array(_print_each(series), pa.large_string())
    return cast(ArrowTable, pa.table(arrays))


def from_polars(frame: Any, selection: Selection) -> ArrowTable:
    """A polars frame's (or lazy frame's) chosen columns."""
    lazy = frame.lazy()
    chosen = lazy.select(selection.choose(lazy.collect_schema().names())).collect()
    return cast(ArrowTable, chosen.to_arrow())


def _print_each(series: Any) -> list[str | None]:
    missing = cast("list[bool]", series.isna().tolist())
    values = cast("list[Any]", series.tolist())
    return [None if gone else _print(value) for value, gone in zip(values, missing, strict=True)]


def _print(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)
