"""`HorizontalClassifier` and `HorizontalRegressor`: the same columns, rows in different hands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter, MissingLabel, RowsDiffer, UnsupportedCombination
from veilboost.estimators.base import BoostingParameters, Divided, Federated, check_count
from veilboost.estimators.inputs import (
    Tables,
    Wanted,
    check_weights,
    find_columns,
    frame_of,
    is_by_party,
    is_frame,
    labels_of,
    load_frame,
    named_labels,
    names_of,
)
from veilboost.estimators.kinds import Classifier, Regressor
from veilboost.estimators.sklearn_base import check_is_fitted
from veilboost.party.simulation import SERVER, Simulation, simulate_training
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

Shares = tuple[Tables, dict[PartyName, AnyArray]]  # everybody's rows and their labels


@dataclass(kw_only=True, eq=False, repr=False)
class HorizontalParameters(BoostingParameters):
    """
    Parameters
    ----------
    protocol : str
        How rows and labels are protected: `secagg` or `mal`.
    participants : int
        Among how many participants the rows of one matrix are dealt out, by `random_state`. Where fit is given a table
        per participant, this is not used.
    categorical : sequence
        Columns to take as categories although they hold numbers (text always is categories).
    options : mapping, optional
        The protocol's own parameters, as `{"epsilon": 4}`.
    n_jobs : int
        How many threads each side uses.

    All other parameters are those of `veilboost.config.TrainingConfig`, with XGBoost's names. A protocol may fix some:
    `mal` has trees of depth 1 and buckets of equal width, `max_bin` of them (18 is usual), and neither weights nor
    validation rows.
    """

    protocol: str = "secagg"
    participants: int = 10


class Horizontal(Federated, HorizontalParameters):
    """Rows in different hands."""

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Divided:
        if callable(self.objective):
            raise UnsupportedCombination("a user's own objective is for columns in different hands")
        if not is_by_party(X):
            if isinstance(y, str):
                raise InvalidParameter("y is a name where X is one matrix", "give the labels as an array")
            check_count("participants", self.participants)
            frame, names, target = self._open_matrix(X, y)
            table, target = _weighed(self._load(frame), target, sample_weight)
            return Divided(*self._dealt(table, target, self.participants), names)
        tables, targets = self._tables_of(X, y)
        if sample_weight is not None and not is_by_party(sample_weight):
            raise RowsDiffer("the weights are not one array for each participant", "give them as X is")
        for name, table in tables.items():
            given = None if sample_weight is None else sample_weight.get(name)
            tables[name], targets[name] = _weighed(table, targets[name], given)
        names = next(iter(tables.values())).names if tables else ()
        if tables and is_frame(next(iter(X.values()))):
            self.feature_names_in_ = np.array(names, dtype=object)
        return Divided(tables, targets, names)

    def _read_new(self, X: Any, y: Any, trained: Divided) -> Divided:
        if is_by_party(X):
            tables, targets = self._tables_of(X, y)
        else:
            table, target = self._load(self._open_new_matrix(X, trained.names or ())), labels_of(y)
            if len(target) != table.rows:
                raise RowsDiffer(f"there are {table.rows} validation rows but {len(target)} labels")
            tables, targets = self._dealt(table, target, 1)
        if not set(tables) <= set(trained.tables):
            raise RowsDiffer("there are validation rows of one that has no rows", "name the participants alike")
        return Divided(tables, targets, trained.names)

    def _dealt(self, table: PartyTable, target: AnyArray, least: int) -> Shares:
        count = self.participants
        if table.rows < least:
            raise RowsDiffer(f"{table.rows} rows are too few for {count} participants", "use fewer participants")
        shares = np.array_split(np.random.default_rng((self.random_state, 2)).permutation(table.rows), count)
        named = {f"participant{at}": rows for at, rows in enumerate(shares)}
        return (
            {name: table.take(rows) for name, rows in named.items()},
            {name: target[rows] for name, rows in named.items()},
        )

    def _tables_of(self, X: Mapping[PartyName, Any], y: Any) -> Shares:
        """Tables and labels of participants that have their own."""
        if y is None or (not isinstance(y, str) and not is_by_party(y)):
            raise MissingLabel(
                "fit was called without every participant's labels", "give y as X is, or a column's name"
            )
        tables: Tables = {}
        labels: dict[PartyName, AnyArray] = {}
        for name, given in X.items():
            if isinstance(y, str):
                tables[name] = self._load(frame_of(given, name, "x"), label=y)
                labels[name] = named_labels(tables[name])
                continue
            tables[name] = self._load(frame_of(given, name, "x"))
            if name not in y:
                raise MissingLabel(f"there are no labels of {name}", "give y as X is")
            labels[name] = labels_of(y[name])
            if len(labels[name]) != tables[name].rows:
                raise RowsDiffer(f"{name} has {tables[name].rows} rows but {len(labels[name])} labels")
        return tables, labels

    def _load(self, frame: Any, label: str | None = None) -> PartyTable:
        features = [name for name in names_of(frame) if name != label]
        return load_frame(frame, Wanted(tuple(features), tuple(find_columns(self.categorical, features))), None, label)

    def _train(
        self, tables: Tables, held_out: Mapping[PartyName, BoolArray] | None, classes: AnyArray | None
    ) -> Simulation:
        coded = {name: replace(table, label_classes=None) for name, table in tables.items()}
        config = self._config(classes)
        return simulate_training(coded, SERVER, self.protocol, config, threads=self.n_jobs, held_out=held_out)

    def _margins(self, X: Any) -> Float64Array:
        check_is_fitted(self)
        columns = self.joined_.columns
        frame = self._open_new_matrix(X, [info.name for info in columns])
        return self.joined_.margins(load_frame(frame, Wanted.like(columns), None, None).columns)


class HorizontalClassifier(Classifier, Horizontal):
    __doc__ = f"""A boosted classifier over rows in different hands.
    {HorizontalParameters.__doc__}"""

    other = "HorizontalRegressor"


class HorizontalRegressor(Regressor, Horizontal):
    __doc__ = f"""A boosted regressor over rows in different hands.
    {HorizontalParameters.__doc__}"""

    other = "HorizontalClassifier"


def _weighed(table: PartyTable, target: AnyArray, sample_weight: Any) -> tuple[PartyTable, AnyArray]:
    weight = check_weights(sample_weight, table.rows, np.arange(table.rows))
    if weight is None:
        return table, target
    counts = weight > 0
    return replace(table, weight=weight).take(counts), target[counts]
