"""`HorizontalClassifier` and `HorizontalRegressor`: estimators for horizontally partitioned data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.data.report import TableReport
from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter, MissingLabel, RowsDiffer, UnsupportedCombination
from veilboost.estimators.base import Federated, HowToTrain, PartitionedData
from veilboost.estimators.constraints import constraints_in
from veilboost.estimators.docstrings import completed
from veilboost.estimators.foreign_names import with_foreign_names
from veilboost.estimators.inputs import (
    Tables,
    Wanted,
    check_count,
    check_weights,
    find_columns,
    frame_of,
    is_by_party,
    is_frame,
    labels_of,
    named_labels,
    names_of,
    read_frame,
    thread_count,
)
from veilboost.estimators.kinds import CLASSES, Classifier, Regressor
from veilboost.estimators.parameters import BoostingParameters
from veilboost.estimators.sklearn_base import check_is_fitted
from veilboost.party.simulation import SERVER, Simulation, simulate_training
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

TablesAndLabels = tuple[Tables, dict[PartyName, AnyArray]]  # of every participant


@with_foreign_names
@dataclass(kw_only=True, eq=False, repr=False)
class HorizontalParameters(BoostingParameters):
    """
    Parameters
    ----------
    protocol : str, default='secagg'
        The protocol, which determines how rows and labels are protected: 'secagg' or 'mal'. 'mal' uses trees of depth
        1 and `max_bin` buckets of equal width (18 is usual), and supports at most 16 different sample weights at a
        participant, none of which may follow from the label.
    participants : int, default=10
        Number of participants among which the rows of a single matrix are partitioned at random, by `random_state`.
        Ignored if X is a mapping of participant name to table.
    categorical : sequence, default=()
        Numeric columns to treat as categorical, by name or by position. Text columns are always categorical.
    missing_values : sequence of str or number, default=()
        Values that stand for missing ones, such as 'unknown' or -999, in all columns.
    max_categories : int, default=64
        Maximum number of categories of a column. Of a column with more, training uses the most frequent that have at
        least 100 rows, and treats the others as missing.
    objective : str, default='auto'
        The loss to minimise: 'auto', 'binary' or 'multiclass' for classifiers; 'auto', 'regression', 'pseudo_huber',
        'poisson', 'gamma' or 'tweedie' for regressors. XGBoost's names are accepted too. A callable is not supported.
    monotone_constraints : mapping of column to int, sequence of int, or None, default=None
        Columns in which predictions may only rise (1) or only fall (-1), by name or position; or one entry for each
        column, 0 for none.
    interaction_constraints : sequence of sequences, mapping of str to sequence, or None, default=None
        Sets of columns, by name or position. The columns of a path from the root to a leaf must all be in one of the
        sets, or be one column.
    class_weight : mapping of class to float, 'balanced' or None, default=None
        Weights of the classes of a classifier, multiplied with the sample weights. 'balanced' gives every class the
        same total weight.
    eval_metric : str, callable or sequence of them, default='auto'
        The metrics on the evaluation sets, by name or as functions `(y_true, y_pred) -> float`. Early stopping uses the
        last one, which must be a name then.
    n_estimators : int, 'auto' or None, default=None
        Number of boosting rounds. None means 100. With the protocol 'sealed', None and 'auto' mean as many as the
        privacy budget and the number of rows allow; other protocols refuse 'auto'.
    callbacks : sequence of callbacks or None, default=None
        Objects with the methods of `veilboost.callback.TrainingCallback`, or of XGBoost's class of this name.
    warm_start : bool, default=False
        Whether `fit` continues the fitted model, up to `n_estimators` rounds in total.
    options : mapping or None, default=None
        Parameters of the protocol, for example `{"epsilon": 4}`.
    n_jobs : int or None, default=1
        Number of threads of the server and of each participant. None means 1, -1 one per core.
    """

    protocol: str = "secagg"
    participants: int = 10


class Horizontal(Federated, HorizontalParameters):
    """Estimators for horizontally partitioned data."""

    _setting = "horizontal"
    _shows_progress = False

    def _read(self, X: Any, y: Any, sample_weight: Any, base_margin: Any) -> PartitionedData:
        if callable(self.objective):
            raise UnsupportedCombination("horizontal estimators take no callable objective", "choose one by name")
        if not is_by_party(X):
            if isinstance(y, str):
                raise InvalidParameter("y is a column name, and X is a single matrix", "give the labels as an array")
            check_count("participants", self.participants)
            frame, names, target = self._open_matrix(X, y)
            report = self._report(frame, max_categories=self.max_categories)
            report.warn()
            table, target = _apply_weights(report.usable, target, sample_weight)
            return PartitionedData(*self._partition(table, target, self.participants), names)
        tables, targets = self._tables_of(X, y, self.max_categories)
        if sample_weight is not None and not is_by_party(sample_weight):
            raise RowsDiffer("sample_weight has no array for each participant", "give a mapping with the keys of X")
        for name, table in tables.items():
            given = None if sample_weight is None else sample_weight.get(name)
            tables[name], targets[name] = _apply_weights(table, targets[name], given)
        names = next(iter(tables.values())).names if tables else ()
        if tables and is_frame(next(iter(X.values()))):
            self.feature_names_in_ = np.array(names, dtype=object)
        return PartitionedData(tables, targets, names)

    def _read_new(self, X: Any, y: Any, base_margin: Any, trained: PartitionedData) -> PartitionedData:
        if is_by_party(X):
            tables, targets = self._tables_of(X, y)
        else:
            table, target = self._report(self._open_new_matrix(X, trained.names or ())).usable, labels_of(y)
            if len(target) != table.rows:
                raise RowsDiffer(f"there are {table.rows} validation rows but {len(target)} labels")
            tables, targets = self._partition(table, target, 1)
        if not set(tables) <= set(trained.tables):
            raise RowsDiffer("eval_set names a participant that has no training rows", "use the keys of X")
        return PartitionedData(tables, targets, trained.names)

    def _partition(self, table: PartyTable, target: AnyArray, least: int) -> TablesAndLabels:
        count = self.participants
        if table.rows < least:
            raise RowsDiffer(
                f"there are {count} participants and n_samples={table.rows}", "use at most one participant per row"
            )
        given = {} if self.random_state is None else {"random_state": self.random_state}
        seed = TrainingConfig.from_dict(given).random_state
        blocks = np.array_split(np.random.default_rng((seed, 2)).permutation(table.rows), count)
        named = {f"participant{at}": rows for at, rows in enumerate(blocks)}
        return (
            {name: table.take(rows) for name, rows in named.items()},
            {name: target[rows] for name, rows in named.items()},
        )

    def _tables_of(self, X: Mapping[PartyName, Any], y: Any, max_categories: int | None = None) -> TablesAndLabels:
        """Tables and labels of participants that each have a table."""
        if y is None or (not isinstance(y, str) and not is_by_party(y)):
            raise MissingLabel(
                "fit was called without every participant's labels", "give y with the keys of X, or as a column name"
            )
        tables: Tables = {}
        labels: dict[PartyName, AnyArray] = {}
        for name, given in X.items():
            report = self._report(frame_of(given, name, "x"), y if isinstance(y, str) else None, max_categories)
            report.warn(name)
            tables[name] = report.usable
            if isinstance(y, str):
                labels[name] = named_labels(tables[name])
                continue
            if name not in y:
                raise MissingLabel(f"there are no labels of {name}", "give y with the keys of X")
            labels[name] = labels_of(y[name])
            if len(labels[name]) != tables[name].rows:
                raise RowsDiffer(f"{name} has {tables[name].rows} rows but {len(labels[name])} labels")
        return tables, labels

    def _report(self, frame: Any, label: str | None = None, max_categories: int | None = None) -> TableReport:
        features = [name for name in names_of(frame) if name != label]
        wanted = Wanted(tuple(features), tuple(find_columns(self.categorical, features)))
        return read_frame(frame, wanted, None, label, self.missing_values, max_categories)

    def _train(
        self,
        tables: Tables,
        held_out: Mapping[PartyName, BoolArray] | None,
        config: TrainingConfig,
        classes: AnyArray | None,
        how: HowToTrain,
    ) -> Simulation:
        return simulate_training(
            {name: replace(table, label_classes=None) for name, table in tables.items()},
            SERVER,
            self.protocol,
            constraints_in(tables, config),
            threads=thread_count(self.n_jobs),
            held_out=held_out,
            watcher=how.watcher,
        )

    def _new_tables(self, X: Any) -> Tables:
        check_is_fitted(self)
        columns = self.joined_.columns
        frame = self._open_new_matrix(X, [info.name for info in columns])
        (holder,) = self.shares_
        return {holder: read_frame(frame, Wanted.like(columns), None, None, self.missing_values).usable}

    def _margins(self, X: Any) -> Float64Array:
        (table,) = self._new_tables(X).values()
        return self.joined_.margins(table.columns)


class HorizontalClassifier(Classifier, Horizontal):
    """Gradient-boosted trees for classification on horizontally partitioned data.

    The participants hold different records with the same columns and labels; a server trains one model for all of
    them. The estimator simulates the server and the participants in one process. To train with real parties, use
    `Federation`.

    See Also
    --------
    HorizontalRegressor : Regression on horizontally partitioned data.
    VerticalClassifier : Classification on vertically partitioned data.
    Federation : Training with real parties.

    Examples
    --------
    Partition the rows of one matrix among four participants:

    >>> from sklearn.datasets import load_breast_cancer
    >>> from veilboost import HorizontalClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = HorizontalClassifier(participants=4, n_estimators=10, max_depth=3, max_bin=32)
    >>> print(f"{model.fit(X[:400], y[:400]).score(X[400:], y[400:]):.2f}")
    0.93

    Give each participant its own table:

    >>> tables, labels = {"north": X[:200], "south": X[200:400]}, {"north": y[:200], "south": y[200:400]}
    >>> print(f"{model.fit(tables, labels).score(X[400:], y[400:]):.2f}")
    0.93
    """

    __doc__ = completed(__doc__, HorizontalParameters, CLASSES)
    other = "HorizontalRegressor"


class HorizontalRegressor(Regressor, Horizontal):
    """Gradient-boosted trees for regression on horizontally partitioned data.

    The participants hold different records with the same columns and targets; a server trains one model for all of
    them. The estimator simulates the server and the participants in one process. To train with real parties, use
    `Federation`.

    See Also
    --------
    HorizontalClassifier : Classification on horizontally partitioned data.
    VerticalRegressor : Regression on vertically partitioned data.
    Federation : Training with real parties.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from veilboost import HorizontalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = HorizontalRegressor(participants=3, n_estimators=20, max_depth=2)
    >>> print(f"{model.fit(X[:300], y[:300]).score(X[300:], y[300:]):.2f}")
    0.45
    """

    __doc__ = completed(__doc__, HorizontalParameters)
    other = "HorizontalClassifier"


def _apply_weights(table: PartyTable, target: AnyArray, sample_weight: Any) -> tuple[PartyTable, AnyArray]:
    weight = check_weights(sample_weight, table.rows, np.arange(table.rows))
    if weight is None:
        return table, target
    counts = weight > 0
    return replace(table, weight=weight).take(counts), target[counts]
