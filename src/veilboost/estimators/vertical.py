"""`VerticalClassifier` and `VerticalRegressor`: estimators for vertically partitioned data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from veilboost.config import DEFAULTS, TrainingConfig
from veilboost.engine.api import check_engine, open_engine
from veilboost.errors import (
    EmptyTable,
    ForeignColumns,
    InvalidParameter,
    MissingLabel,
    RowsDiffer,
    UnsupportedCombination,
)
from veilboost.estimators.base import Federated, HowToTrain, PartitionedData, class_names
from veilboost.estimators.description import Description
from veilboost.estimators.docstrings import completed
from veilboost.estimators.foreign_names import with_foreign_names
from veilboost.estimators.inputs import (
    Parties,
    Tables,
    Wanted,
    assign_columns,
    check_base_margin,
    check_weights,
    everything,
    find_columns,
    frame_of,
    is_by_party,
    labels_of,
    named_labels,
    read_frame,
    rows_of_active,
    shared_rows,
    thread_count,
)
from veilboost.estimators.kinds import CLASSES, Classifier, Regressor
from veilboost.estimators.parameters import BoostingParameters
from veilboost.estimators.sklearn_base import check_is_fitted
from veilboost.model.joined import JoinedModel
from veilboost.party.simulation import Simulation, simulate_prediction, simulate_training
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import resolve
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

Frames = dict[PartyName, Any]

_ACTIVE = """    active_ : str
        The active party, which holds the labels.
"""


@with_foreign_names
@dataclass(kw_only=True, eq=False, repr=False)
class VerticalParameters(BoostingParameters):
    """
    Parameters
    ----------
    protocol : str, default='plain'
        The protocol, which determines how labels and columns are protected. `veilboost protocols` lists all names.
        The default protects nothing.
    parties : int or mapping of party name to columns, default=2
        How to partition the columns of a single matrix: the number of parties, which get contiguous blocks of columns
        of about equal size; or the columns of each party, by name or position. Ignored if X is a mapping of party
        name to table.
    active : str or None, default=None
        The active party, which holds the labels. None means the first party.
    id : str or None, default=None
        The record-id column that aligns the rows, if X is a mapping of party name to table. None means that all tables
        have the same rows in the same order.
    categorical : sequence, default=()
        Numeric columns to treat as categorical, by name (or by position, if X is a single matrix). Text columns are
        always categorical.
    missing_values : sequence of str or number, default=()
        Values that stand for missing ones, such as 'unknown' or -999, in all columns.
    max_categories : int, default=64
        Maximum number of categories of a column. Of a column with more, training uses the most frequent that have at
        least 100 rows, and treats the others as missing.
    objective : str or callable, default='auto'
        The loss to minimise: 'auto', 'binary' or 'multiclass' for classifiers; 'auto', 'regression', 'absolute_error',
        'quantile', 'pseudo_huber', 'poisson', 'gamma' or 'tweedie' for regressors. XGBoost's names are accepted too. A
        callable `(y_true, y_pred) -> (g, h)` returns the first and second derivatives of a custom loss at the margins
        `y_pred`.
    classes : sequence or None, default=None
        The classes of a classifier, declared instead of taken from the labels. The protocol 'sealed' needs them,
        unless `objective` is 'binary' and the labels are 0 and 1. A label outside the declared classes raises an error;
        a declared class without labels is allowed.
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
        Parameters of the protocol, for example `{"key_bits": 3072}`.
    n_jobs : int or None, default=1
        Number of threads of each party. None means 1, -1 one per core.
    engine : str, default='local'
        Where the parties compute: 'local', 'disk' or 'disk:FOLDER' (rows in files), 'ray' (worker processes on this
        machine) or 'ray://HOST:PORT' (a Ray cluster).
    workers : int or None, default=None
        Number of workers of the engine 'ray'. None means one per core.
    """

    parties: Parties = 2
    active: PartyName | None = None
    id: str | None = None
    classes: Sequence[Any] | None = None
    proposal: str = DEFAULTS.proposal
    subsample: float = DEFAULTS.subsample
    sampling: str = DEFAULTS.sampling
    top_rate: float = DEFAULTS.top_rate
    other_rate: float = DEFAULTS.other_rate
    weighted_bins: bool = DEFAULTS.weighted_bins
    engine: str = "local"
    workers: int | None = None


class Vertical(Federated, VerticalParameters):
    """Estimators for vertically partitioned data."""

    _setting = "vertical"
    _shows_progress = True

    @property
    def active_(self) -> PartyName:
        """The active party, which holds the labels."""
        check_is_fitted(self)
        return next(party for party, share in self.shares_.items() if share.skeleton is not None)

    @classmethod
    def _stored_parameters(cls, model: JoinedModel, description: Description) -> dict[str, Any]:
        return {
            "parties": {share.party: [info.name for info in share.columns] for share in model.shares},
            "active": next(share.party for share in model.shares if share.skeleton is not None),
            "id": description.id,
        }

    def _read(self, X: Any, y: Any, sample_weight: Any, base_margin: Any) -> PartitionedData:
        check_engine(self.engine, self.workers)
        frames, wanted, names, y = self._open(X, y)
        active = _choose_active(self.active, list(frames))
        tables, target = self._load(frames, wanted, active, y, self.max_categories)
        tables, origin = shared_rows(tables, active, self.id is not None)
        weight = check_weights(sample_weight, len(target), origin)
        margin = None if base_margin is None else check_base_margin(base_margin, len(target))[:, origin]
        target = target[origin]
        if weight is not None:
            counts = weight > 0
            tables[active] = replace(tables[active], weight=weight)
            if not counts.all():
                tables, target = {party: table.take(counts) for party, table in tables.items()}, target[counts]
                margin = None if margin is None else margin[:, counts]
        return PartitionedData(tables, {active: target}, names, margin)

    def _open(self, X: Any, y: Any) -> tuple[Frames, dict[PartyName, Wanted], list[str] | None, Any]:
        """Each party's frame, the columns to read from it, the names of a single matrix's columns, and the labels."""
        if is_by_party(X):
            if y is None:
                raise MissingLabel("fit was called without labels", "give y: an array, or a column's name")
            frames = _frames_of(X)
            return frames, everything(frames, self.categorical), None, y if isinstance(y, str) else labels_of(y)
        if isinstance(y, str) or self.id is not None:
            raise UnsupportedCombination(
                "id and label columns can be named only if every party has its own table",
                "give X as a mapping of party name to table, or y as an array and no id",
            )
        frame, names, target = self._open_matrix(X, y)
        declared = find_columns(self.categorical, names)
        wanted = {
            party: Wanted(tuple(columns), tuple(name for name in columns if name in declared))
            for party, columns in assign_columns(self.parties, names).items()
        }
        return dict.fromkeys(wanted, frame), wanted, names, target

    def _open_new(self, X: Any, parties: Sequence[PartyName], names: Sequence[str] | None) -> Frames:
        """Each party's frame of rows for prediction or validation."""
        if is_by_party(X):
            absent = [party for party in parties if party not in X]
            if absent:
                raise ForeignColumns(f"there are no rows of {', '.join(absent)}", "give every party's table")
            return _frames_of({party: X[party] for party in parties})
        if names is None:
            raise ForeignColumns("the model was fitted on a table per party", "give a mapping of party name to table")
        return dict.fromkeys(parties, self._open_new_matrix(X, names))

    def _load(
        self,
        frames: Frames,
        wanted: Mapping[PartyName, Wanted],
        active: PartyName,
        y: Any,
        max_categories: int | None = None,
    ) -> tuple[Tables, AnyArray]:
        named = {active: y} if isinstance(y, str) else dict[PartyName, str]()
        tables: Tables = {}
        for name, own in wanted.items():
            report = read_frame(frames[name], own, self.id, named.get(name), self.missing_values, max_categories)
            report.warn(name)
            tables[name] = report.usable
        target = named_labels(tables[active]) if named else cast(AnyArray, y)
        if len(target) != tables[active].rows:
            raise RowsDiffer(
                f"{active} has {tables[active].rows} rows but {len(target)} labels", "give a label per row"
            )
        return tables, target

    def _read_new(self, X: Any, y: Any, base_margin: Any, trained: PartitionedData) -> PartitionedData:
        (active,) = trained.targets
        frames = self._open_new(X, list(trained.tables), trained.names)
        wanted = {party: Wanted.like(table.columns) for party, table in trained.tables.items()}
        tables, target = self._load(frames, wanted, active, y if isinstance(y, str) else labels_of(y))
        tables, origin = shared_rows(tables, active, self.id is not None)
        margin = None if base_margin is None else check_base_margin(base_margin, len(target))[:, origin]
        return PartitionedData(tables, {active: target[origin]}, trained.names, margin)

    def _train(
        self,
        tables: Tables,
        held_out: Mapping[PartyName, BoolArray] | None,
        config: TrainingConfig,
        classes: AnyArray | None,
        how: HowToTrain,
    ) -> Simulation:
        active = _choose_active(self.active, list(tables))
        if self.objective == "auto" and classes is not None:
            config = replace(config, objective="auto")  # decided from the labels, not declared
        loss = self.objective if callable(self.objective) else None
        declared = None if self.classes is None else class_names(classes)
        spec, started = protocol_named(self.protocol), how.base_margin is not None or how.earlier is not None
        resolve(spec, config, tables[active], engine=self.engine, custom_loss=loss, classes=declared, started=started)
        with open_engine(self.engine, self.workers) as engine:
            return simulate_training(
                tables,
                active,
                self.protocol,
                config,
                held_out=None if held_out is None else held_out[active],
                threads=thread_count(self.n_jobs),
                watcher=how.watcher,
                custom_loss=loss,
                classes=declared,
                engine=engine,
                base_margin=how.base_margin,
                earlier=how.earlier,
                rate=how.rate,
                peek=how.peek,
            )

    def _new_tables(self, X: Any) -> Tables:
        check_is_fitted(self)
        frames = self._open_new(X, list(self.shares_), self._names)
        tables = {
            party: read_frame(frames[party], Wanted.like(share.columns), self.id, None, self.missing_values).usable
            for party, share in self.shares_.items()
        }
        return rows_of_active(tables, self.active_, self.id is not None)

    def _margins(self, X: Any) -> Float64Array:
        tables = self._new_tables(X)
        return simulate_prediction(self.shares_, self.active_, tables)


class VerticalClassifier(Classifier, Vertical):
    """Gradient-boosted trees for classification on vertically partitioned data.

    The parties hold different columns of the same records; the active party also holds the labels. The estimator
    simulates all parties in one process, with the same training messages as a federation of real parties. It aligns
    records without private set intersection (PSI). To train with real parties, use `Federation`.

    A callable `objective` supports two classes; the margin is interpreted as log odds.

    See Also
    --------
    VerticalRegressor : Regression on vertically partitioned data.
    HorizontalClassifier : Classification on horizontally partitioned data.
    Federation : Training with real parties.

    Examples
    --------
    Partition the columns of one matrix among three parties:

    >>> from sklearn.datasets import load_breast_cancer
    >>> from veilboost import VerticalClassifier, make_demo_data
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = VerticalClassifier(parties=3, n_estimators=10, max_depth=3).fit(X[:400], y[:400])
    >>> print(f"{model.score(X[400:], y[400:]):.2f}")
    0.95

    Give each party its own table and align the records by an id column:

    >>> tables = make_demo_data(customers=1000)
    >>> model = VerticalClassifier(id="customer_id", n_estimators=10, max_depth=3).fit(tables, "default")
    >>> model.active_, list(model.shares_)
    ('bank', ['bank', 'shop', 'telecom'])
    """

    __doc__ = completed(__doc__, VerticalParameters, _ACTIVE + CLASSES)
    other = "VerticalRegressor"


class VerticalRegressor(Regressor, Vertical):
    """Gradient-boosted trees for regression on vertically partitioned data.

    The parties hold different columns of the same records; the active party also holds the target. The estimator
    simulates all parties in one process, with the same training messages as a federation of real parties. It aligns
    records without private set intersection (PSI). To train with real parties, use `Federation`.

    With a callable `objective`, predictions are margins.

    See Also
    --------
    VerticalClassifier : Classification on vertically partitioned data.
    HorizontalRegressor : Regression on horizontally partitioned data.
    Federation : Training with real parties.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from veilboost import VerticalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> parties = {"clinic": [0, 1, 2, 3], "laboratory": [4, 5, 6, 7, 8, 9]}
    >>> model = VerticalRegressor(parties=parties, active="laboratory", n_estimators=20, max_depth=2)
    >>> print(f"{model.fit(X[:300], y[:300]).score(X[300:], y[300:]):.2f}")
    0.45
    """

    __doc__ = completed(__doc__, VerticalParameters, _ACTIVE)
    other = "VerticalClassifier"


def _frames_of(X: Mapping[PartyName, Any]) -> Frames:
    """A frame for each party; the columns of a matrix of `shop` become shop.0, shop.1, ..."""
    return {party: frame_of(given, party, f"{party}.") for party, given in X.items()}


def _choose_active(active: PartyName | None, parties: Sequence[Any]) -> PartyName:
    """The active party: the given one, or the first."""
    if not parties:
        raise EmptyTable("there is no party", "name the parties and their columns")
    if not all(isinstance(party, str) for party in parties):
        raise InvalidParameter("a party's name is not text", "name every party")
    if active is not None and active not in parties:
        raise InvalidParameter(
            f"active={active!r} is none of the parties {', '.join(parties)}", "set active to one of them"
        )
    return parties[0] if active is None else active
