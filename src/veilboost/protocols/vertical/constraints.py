"""Constraints of a passive party's columns, as messages carry them."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilboost import _native
from veilboost.boost.bins import KIND_CODES
from veilboost.boost.limits import ColumnConstraints
from veilboost.errors import MalformedMessage
from veilboost.fields import FORMS
from veilboost.protocols.vertical.messages import ColumnsOffered
from veilboost.types import ColumnKind, PartyName

MOST_SETS = 1000


def offered_constraints(own: ColumnConstraints) -> dict[str, Any]:
    """The fields of `ColumnsOffered` that hold these constraints."""
    fields: dict[str, Any] = {}
    if own.direction.any():
        fields["direction"] = own.direction
    if own.sets is not None:
        columns = [np.empty(0, dtype=np.int32), *own.sets.values()]
        fields["sets"] = tuple(own.sets)
        fields["set_starts"] = np.cumsum([len(each) for each in columns], dtype=np.int32)
        fields["set_columns"] = np.concatenate(columns)
    return fields


def checked_constraints(name: PartyName, offered: ColumnsOffered) -> ColumnConstraints:
    """The constraints that a party offers with its columns."""
    features, direction, starts = len(offered.kind), offered.direction, offered.set_starts
    numeric = offered.kind == KIND_CODES[ColumnKind.NUMERIC]
    if len(direction) not in (0, features) or not np.isin(direction, (-1, 0, 1)).all():
        raise MalformedMessage(f"{name} offered directions for other columns")
    if len(direction) and (direction[~numeric] != 0).any():
        raise MalformedMessage(f"{name} offered a direction for a column of categories")
    if not len(direction):
        direction = np.zeros(features, dtype=np.int8)
    if not len(starts):
        if offered.sets or len(offered.set_columns):
            raise MalformedMessage(f"{name} offered inconsistent sets of columns")
        return ColumnConstraints(direction)
    edges, names = starts.tolist(), offered.sets
    if (
        len(edges) != len(names) + 1
        or len(names) > MOST_SETS
        or len(set(names)) != len(names)
        or not all(FORMS["party"].fits(each) for each in names)
        or (edges[0], edges[-1]) != (0, len(offered.set_columns))
        or sorted(edges) != edges
    ):
        raise MalformedMessage(f"{name} offered inconsistent sets of columns")
    columns = np.split(offered.set_columns, edges[1:-1]) if names else []
    if not all(_native.increasing_below(each, features) for each in columns):
        raise MalformedMessage(f"{name} offered sets of columns that do not exist, or one twice")
    return ColumnConstraints(direction, dict(zip(names, columns, strict=True)))
