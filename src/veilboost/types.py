"""Types without logic, shared by every layer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

PartyName: TypeAlias = str

AnyArray: TypeAlias = NDArray[Any]
BoolArray: TypeAlias = NDArray[np.bool_]
Int8Array: TypeAlias = NDArray[np.int8]
UInt8Array: TypeAlias = NDArray[np.uint8]
UInt32Array: TypeAlias = NDArray[np.uint32]
UInt64Array: TypeAlias = NDArray[np.uint64]
Int32Array: TypeAlias = NDArray[np.int32]
Int64Array: TypeAlias = NDArray[np.int64]
Float32Array: TypeAlias = NDArray[np.float32]
Float64Array: TypeAlias = NDArray[np.float64]


class Role(StrEnum):
    """Roles of parties with data, and of the driver; a protocol may also have helpers."""

    ACTIVE = "active"
    PASSIVE = "passive"
    SERVER = "server"
    PARTICIPANT = "participant"


class ColumnKind(StrEnum):
    """How a feature splits: by a threshold, one category against the rest, or a set of categories."""

    NUMERIC = "numeric"
    ONEHOT = "onehot"
    SETS = "sets"


@dataclass(frozen=True)
class Column:
    """One feature of one party, with all rows.

    Numeric: `values` is float32 with NaN for missing, `categories` is None.
    Categorical: `values` is int32 codes into `categories` with -1 for missing; categories are sorted text.
    """

    name: str
    values: AnyArray
    categories: tuple[str, ...] | None = None

    def take(self, rows: AnyArray) -> Column:
        return Column(self.name, self.values[rows], self.categories)
