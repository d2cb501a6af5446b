"""Constraints of a job's columns: who sets them, which jobs can keep them, and the form in which roles use them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from veilboost.boost.limits import ColumnConstraints
from veilboost.config import CONSTRAINTS, DEFAULTS, LEAF_QUANTILE_OBJECTIVES, TrainingConfig
from veilboost.data.constraints import Constraints
from veilboost.data.schema import did_you_mean
from veilboost.data.table import PartyTable
from veilboost.errors import MissingColumn, MixedTypes, UnsupportedCombination
from veilboost.protocols.spec import ProtocolSpec
from veilboost.types import Column, PartyName

LIMITING = "plain, paillier, lattice or secagg"
_WITHOUT_LIMITS = "splits are chosen from noisy values, or by parties that do not know the limits of a node"


def constraints_of(config: TrainingConfig) -> Constraints:
    """The constraints that the parameters of a job set."""
    return Constraints(config.monotone_constraints, config.interaction_constraints or None)


def without_constraints(config: TrainingConfig) -> TrainingConfig:
    """The parameters without constraints, which name columns: in vertical jobs they belong to the parties' tables."""
    return replace(config, **{name: getattr(DEFAULTS, name) for name in CONSTRAINTS})


def constrained(tables: Mapping[PartyName, PartyTable], config: TrainingConfig) -> dict[PartyName, PartyTable]:
    """The tables with the constraints of the job, as far as they concern each table's columns."""
    given = constraints_of(config)
    check_names(given, {name for table in tables.values() for name in table.names})
    if not given:
        return dict(tables)
    return {
        party: replace(table, constraints=table.constraints.joined(given.only(set(table.names))))
        for party, table in tables.items()
    }


def check_names(constraints: Constraints, known: Collection[str]) -> None:
    """Raise if a constraint names a column that does not exist."""
    for name in sorted(constraints.columns.difference(known)):
        raise MissingColumn(f"a constraint names a column {name!r}, which does not exist", did_you_mean(name, known))


def check_constraints(
    spec: ProtocolSpec, config: TrainingConfig, constraints: Constraints, columns: Sequence[Column] = ()
) -> None:
    """Raise if a job cannot keep these constraints of these columns."""
    if constraints and not spec.limits_splits:
        raise UnsupportedCombination(
            f"{spec.name} supports no monotone or interaction constraints: {_WITHOUT_LIMITS}",
            f"remove the constraints, or use the protocol {LIMITING}",
            public=True,
        )
    if any(constraints.monotone.values()) and config.objective in LEAF_QUANTILE_OBJECTIVES:
        raise UnsupportedCombination(
            f"leaves of objective {config.objective!r} are quantiles of residuals, which do not keep monotone "
            "constraints",
            'set objective to "regression" or "pseudo_huber", or remove the constraints',
            public=True,
        )
    for column in columns:
        if column.categories is not None and config.categories != "ordinal" and constraints.monotone.get(column.name):
            raise MixedTypes(
                f"column {column.name!r} has a monotone constraint and holds categories, which have no order",
                "remove the constraint, or convert the column to numbers",
            )


def check_levels(spec: ProtocolSpec, config: TrainingConfig) -> None:
    """Raise if the protocol cannot sample columns for every level."""
    if config.colsample_bylevel < 1.0 and not spec.limits_splits:
        raise UnsupportedCombination(
            f"colsample_bylevel is {config.colsample_bylevel:g}, and {spec.name} supports only 1: {_WITHOUT_LIMITS}",
            f"set colsample_bylevel to 1 and use colsample_bytree, or use the protocol {LIMITING}",
        )


def of_columns(constraints: Constraints, names: Sequence[str]) -> ColumnConstraints:
    """The constraints of columns by their positions."""
    direction, place = np.zeros(len(names), dtype=np.int8), {name: at for at, name in enumerate(names)}
    for name, way in constraints.monotone.items():
        direction[place[name]] = way
    sets = None
    if constraints.sets is not None:
        sets = {
            name: np.array(sorted(place[column] for column in columns), dtype=np.int32)
            for name, columns in constraints.sets.items()
        }
    return ColumnConstraints(direction, sets)
