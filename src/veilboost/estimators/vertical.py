"""`VerticalClassifier` and `VerticalRegressor`: a vertical federation with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost.boost.objective import make_objective
from veilboost.config import DEFAULTS, TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import ImpossibleParameter, LabelOutOfRange, MissingLabel, RowsDiffer
from veilboost.estimators.inputs import (
    Parties,
    align,
    assign_columns,
    check_parties,
    is_by_party,
    tables_of_frames,
    tables_of_matrix,
)
from veilboost.estimators.sklearn_base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    check_is_fitted,
    check_weights,
    column_names,
    validate,
)
from veilboost.model.explain import importance
from veilboost.model.export import export_xgboost
from veilboost.model.joined import JoinedModel, join
from veilboost.model.store import save_model
from veilboost.party.simulation import Simulation, simulate_prediction, simulate_training
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

Tables = dict[PartyName, PartyTable]


class _Vertical(BaseEstimator):
    """What classifier and regressor share. Parameters not named here are those of `TrainingConfig`."""

    def __init__(
        self,
        *,
        protocol: str = "plain",
        parties: Parties = 2,
        active: PartyName | None = None,
        id: str | None = None,
        categorical: Sequence[str] = (),
        objective: str | Callable[..., Any] = DEFAULTS.objective,
        n_estimators: int = DEFAULTS.n_estimators,
        max_depth: int = DEFAULTS.max_depth,
        learning_rate: float = DEFAULTS.learning_rate,
        max_bin: int = DEFAULTS.max_bin,
        binning: str = DEFAULTS.binning,
        proposal: str = DEFAULTS.proposal,
        categories: str = DEFAULTS.categories,
        reg_lambda: float = DEFAULTS.reg_lambda,
        reg_alpha: float = DEFAULTS.reg_alpha,
        gamma: float = DEFAULTS.gamma,
        min_child_weight: float = DEFAULTS.min_child_weight,
        max_delta_step: float = DEFAULTS.max_delta_step,
        subsample: float = DEFAULTS.subsample,
        colsample_bytree: float = DEFAULTS.colsample_bytree,
        scale_pos_weight: float = DEFAULTS.scale_pos_weight,
        base_score: float | None = DEFAULTS.base_score,
        order: str = DEFAULTS.order,
        weighted_bins: bool = DEFAULTS.weighted_bins,
        eval_metric: str = DEFAULTS.eval_metric,
        early_stopping_rounds: int | None = DEFAULTS.early_stopping_rounds,
        gradient_bits: int = DEFAULTS.gradient_bits,
        seed: int = DEFAULTS.seed,
        threads: int = 1,
    ) -> None:
        self.protocol = protocol
        self.parties = parties
        self.active = active
        self.id = id
        self.categorical = categorical
        self.objective = objective
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.max_bin = max_bin
        self.binning = binning
        self.proposal = proposal
        self.categories = categories
        self.reg_lambda = reg_lambda
        self.reg_alpha = reg_alpha
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.max_delta_step = max_delta_step
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.scale_pos_weight = scale_pos_weight
        self.base_score = base_score
        self.order = order
        self.weighted_bins = weighted_bins
        self.eval_metric = eval_metric
        self.early_stopping_rounds = early_stopping_rounds
        self.gradient_bits = gradient_bits
        self.seed = seed
        self.threads = threads

    # --- what a user calls ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        eval_set: tuple[Any, Any] | None = None,
    ) -> Any:
        """Train.

        Parameters
        ----------
        X : array, frame, or mapping of party name to array or frame
            One matrix is divided by `parties`. With a mapping, `id` names the column to align rows by;
            without it, all parties have the same rows in the same order.
        y : array or str
            Labels of the active party's rows, or the name of the label column in its frame.
        sample_weight : array, optional
            A weight per row of the active party.
        eval_set : tuple of X and y, optional
            Validation rows, for the learning curve and early stopping.

        Returns
        -------
        self
        """
        tables, target, weight = self._training_tables(X, y, sample_weight)
        labels, validation = self._encode_labels(target), None
        tables[self.active_] = replace(
            tables[self.active_], label=labels, label_classes=self._class_names(), weight=weight
        )
        if weight is not None and (weight == 0).any():  # such rows count for nothing, so they shape no cuts
            tables = {party: table.take(weight > 0) for party, table in tables.items()}
        if eval_set is not None:
            tables, validation = self._with_validation(tables, eval_set)
        config = self._config(tables[self.active_])
        self.simulation_: Simulation = simulate_training(
            tables,
            self.active_,
            self.protocol,
            config,
            held_out=validation,
            threads=self.threads,
            custom_loss=self.objective if callable(self.objective) else None,
        )
        self.parts_ = dict(self.simulation_.parts)
        self._joined: JoinedModel | None = None
        return self

    def save(self, folder: str | Path) -> None:
        """Write every party's part into `folder`."""
        check_is_fitted(self)
        save_model(self.parts_, folder)

    def export_xgboost(self, path: str | Path) -> None:
        """Write the joined model as an XGBoost JSON file."""
        export_xgboost(self.joined_, path)

    @property
    def joined_(self) -> JoinedModel:
        """All parts together."""
        check_is_fitted(self)
        if self._joined is None:
            self._joined = join(self.parts_)
        return self._joined

    @property
    def model_sha256_(self) -> str:
        return self.joined_.sha256()

    @property
    def evals_result_(self) -> dict[str, list[float]]:
        """The metric on the validation rows after each round."""
        check_is_fitted(self)
        values = [r.validation for r in self.simulation_.history if r.validation is not None]
        return {self.simulation_.metric: values}

    @property
    def best_iteration_(self) -> int:
        """The last round that the model keeps."""
        skeleton = self.joined_
        return len(skeleton.trees) // skeleton.trees_per_round - 1

    @property
    def feature_importances_(self) -> Float64Array:
        """Share of the gain of each column, in the order of the columns."""
        by_name = {item.column: item.value for item in importance(self.joined_, "total_gain")}
        return np.array([by_name.get(name, 0.0) for name in self._column_order], dtype=np.float64)

    # --- data in ----------------------------------------------------------------------------------------

    def _training_tables(self, X: Any, y: Any, sample_weight: Any) -> tuple[Tables, AnyArray, Float64Array | None]:
        if is_by_party(X):
            return self._tables_of_mapping(X, y, sample_weight)
        matrix, target = validate(self, X, y, reset=True)
        names = column_names(self, matrix.shape[1])
        self._columns = assign_columns(self.parties, names)
        self._column_order: list[str] = [names[at] for columns in self._columns.values() for at in columns]
        if not isinstance(self.parties, Mapping):
            self._column_order = list(names)
        self.active_: PartyName = self._choose_active(list(self._columns))
        weight = check_weights(sample_weight, matrix)
        return tables_of_matrix(matrix, names, self._columns), target, weight

    def _tables_of_mapping(
        self, frames: Mapping[PartyName, Any], y: Any, sample_weight: Any
    ) -> tuple[Tables, AnyArray, Float64Array | None]:
        self._columns = None
        self.active_ = self._choose_active(list(frames))
        if y is None:
            raise MissingLabel("fit was called without labels", "give y: an array, or a column's name")
        label = y if isinstance(y, str) else None
        tables = tables_of_frames(frames, self.active_, label, self.id, self.categorical)
        rows = tables[self.active_].rows
        if label is not None:
            table = tables[self.active_]
            target: AnyArray = np.asarray(table.label)
            if table.label_classes is not None:
                target = np.asarray(table.label_classes)[target.astype(np.int64)]
        else:
            target = np.asarray(y)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        for what, values in (("labels", target), ("weights", weight)):
            if values is not None and values.shape != (rows,):
                raise RowsDiffer(f"{self.active_} has {rows} rows but {len(values)} {what}")
        # Labels and weights ride through the alignment as positions.
        order = np.arange(rows)
        tables[self.active_] = replace(tables[self.active_], label=order.astype(np.float64))
        aligned = align(tables, self.active_, self.id is not None, every_row=False)
        kept = cast(Float64Array, aligned[self.active_].label).astype(np.int64)
        self._column_order = [name for table in aligned.values() for name in table.names]
        self.n_features_in_ = len(self._column_order)
        return aligned, target[kept], None if weight is None else weight[kept]

    def _new_tables(self, X: Any, parties: Sequence[PartyName]) -> Tables:
        """Rows to predict or to validate on, in the order of the active party's rows."""
        if is_by_party(X):
            check_parties(parties, X)
            frames = {party: X[party] for party in parties}
            tables = tables_of_frames(frames, self.active_, None, self.id, self.categorical)
            order = np.arange(tables[self.active_].rows).astype(np.float64)
            tables[self.active_] = replace(tables[self.active_], label=order)
            aligned = align(tables, self.active_, self.id is not None, every_row=True)
            back = np.argsort(cast(Float64Array, aligned[self.active_].label))
            return {party: table.take(back) for party, table in aligned.items()}
        if self._columns is None:
            raise ImpossibleParameter("the model was fitted on a table per party", "predict with such a mapping")
        matrix, _ = validate(self, X, None, reset=False)
        return tables_of_matrix(matrix, column_names(self, matrix.shape[1]), self._columns)

    def _with_validation(self, tables: Tables, eval_set: tuple[Any, Any]) -> tuple[Tables, BoolArray]:
        X, y = eval_set
        extra = self._new_tables(X, list(tables))
        labels = self._encode_labels(np.asarray(y), fitted=True)
        if len(labels) != extra[self.active_].rows:
            raise RowsDiffer(f"eval_set has {extra[self.active_].rows} rows but {len(labels)} labels")
        extra[self.active_] = replace(extra[self.active_], label=labels, label_classes=self._class_names())
        rows = tables[self.active_].rows
        both = {party: table.followed_by(extra[party]) for party, table in tables.items()}
        return both, np.arange(both[self.active_].rows) >= rows

    def _choose_active(self, names: Sequence[PartyName]) -> PartyName:
        active = names[0] if self.active is None else self.active
        if active not in names:
            raise ImpossibleParameter(f"active={active!r} is none of the parties {', '.join(names)}")
        return active

    def _config(self, table: PartyTable) -> TrainingConfig:
        values = {name: getattr(self, name) for name in TrainingConfig.names()}
        values["objective"] = self._objective_name(cast(Float64Array, table.label))
        return TrainingConfig.from_dict(values)

    def _margins(self, X: Any) -> Float64Array:
        check_is_fitted(self)
        return simulate_prediction(self.parts_, self.active_, self._new_tables(X, list(self.parts_)))

    # --- what the two differ in -------------------------------------------------------------------------

    def _encode_labels(self, y: AnyArray, fitted: bool = False) -> Float64Array:
        raise NotImplementedError

    def _class_names(self) -> tuple[str, ...] | None:
        raise NotImplementedError

    def _objective_name(self, label: Float64Array) -> str:
        raise NotImplementedError


class VerticalClassifier(ClassifierMixin, _Vertical):
    """A boosted classifier over columns in different hands. `protocol` says how they are protected."""

    def predict_proba(self, X: Any) -> Float64Array:
        """Probabilities, a column per class of `classes_`."""
        margin = self._margins(X)
        if len(self.classes_) > 2:
            return make_objective("multiclass", classes=len(self.classes_)).predict(margin)
        positive = make_objective("binary").predict(margin)
        return np.column_stack((1.0 - positive, positive))

    def predict(self, X: Any) -> AnyArray:
        """The likeliest class of each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]

    def _encode_labels(self, y: AnyArray, fitted: bool = False) -> Float64Array:
        if not fitted:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise LabelOutOfRange(
                    f"the labels hold only one class ({len(y)} rows)", "give rows of at least two classes"
                )
        codes = np.searchsorted(self.classes_, y)
        codes = np.minimum(codes, len(self.classes_) - 1)
        if not (self.classes_[codes] == y).all():
            raise LabelOutOfRange("the validation labels hold a class that training did not see")
        return codes.astype(np.float64)

    def _class_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.classes_)

    def _objective_name(self, label: Float64Array) -> str:
        if callable(self.objective) or self.objective in ("auto", "binary", "multiclass"):
            return "binary" if len(self.classes_) == 2 else "multiclass"
        raise ImpossibleParameter(f"objective={self.objective!r} is not for a classifier")


class VerticalRegressor(RegressorMixin, _Vertical):
    """A boosted regressor over columns in different hands. `protocol` says how they are protected."""

    def predict(self, X: Any) -> Float64Array:
        """The predicted value of each row."""
        margin = self._margins(X)
        return make_objective("poisson").predict(margin) if self.objective == "poisson" else margin[0]

    def _encode_labels(self, y: AnyArray, fitted: bool = False) -> Float64Array:
        return np.asarray(y, dtype=np.float64)

    def _class_names(self) -> None:
        return None

    def _objective_name(self, label: Float64Array) -> str:
        if callable(self.objective) or self.objective == "auto":
            return "regression"
        if self.objective not in ("regression", "poisson"):
            raise ImpossibleParameter(f"objective={self.objective!r} is not for a regressor")
        return self.objective
