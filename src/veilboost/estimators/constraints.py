"""The estimators' constraints: by column name or position, as XGBoost takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from veilboost.config import DEFAULTS, TrainingConfig, named_sets
from veilboost.errors import InvalidParameter
from veilboost.estimators.inputs import Tables, find_columns
from veilboost.protocols.constraints import check_names, constrained


def with_constraints(tables: Tables, monotone: Any, interactions: Any, names: Sequence[str] | None) -> Tables:
    """The tables with the estimator's constraints. `names` are the columns of a single matrix, in order."""
    known = list(dict.fromkeys(name for table in tables.values() for name in table.names))
    if not monotone and not interactions:
        return tables
    config = replace(
        DEFAULTS,
        monotone_constraints=_directions(monotone or {}, names or known),
        interaction_constraints=_sets(interactions or {}, names or known),
    )
    return constrained(tables, config)


def constraints_in(tables: Tables, config: TrainingConfig) -> TrainingConfig:
    """The parameters with the constraints of tables that all have the same columns."""
    table = next(iter(tables.values()))
    check_names(table.constraints, table.names)
    return replace(
        config,
        monotone_constraints=table.constraints.monotone,
        interaction_constraints=table.constraints.sets or {},
    )


def _directions(given: Any, names: Sequence[str]) -> Any:
    if isinstance(given, Mapping):
        ways = cast("Mapping[Any, Any]", given)
        return dict(zip(find_columns(list(ways), names), ways.values(), strict=True))
    if isinstance(given, str):
        raise InvalidParameter(
            "monotone_constraints is text", "give a mapping of column names to 1 or -1, or a list with one per column"
        )
    listed = list(given)
    if len(listed) > len(names):
        raise InvalidParameter(
            f"monotone_constraints has {len(listed)} entries for {len(names)} columns", "give one per column"
        )
    return {name: way for name, way in zip(names, listed, strict=False) if way != 0}


def _sets(given: Any, names: Sequence[str]) -> Any:
    if isinstance(given, str):
        raise InvalidParameter("interaction_constraints is text", "give a list of lists of column names")
    named = named_sets(given if isinstance(given, Mapping) else list(given))
    return {key: tuple(dict.fromkeys(find_columns(columns, names))) for key, columns in named.items()}
