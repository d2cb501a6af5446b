"""What the estimators share: a vertical federation with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.engine.opening import check_engine, open_engine
from veilboost.errors import (
    ForeignColumns,
    MissingLabel,
    RowsDiffer,
    UnreadableModel,
    UnsupportedCombination,
)
from veilboost.estimators.inputs import (
    Tables,
    Wanted,
    assign_columns,
    check_weights,
    everything,
    find_columns,
    frame_of_matrix,
    frames_of_parties,
    is_by_party,
    is_frame,
    labels_of,
    load_tables,
    named_labels,
    names_of,
)
from veilboost.estimators.kinds import LabelKind, Labels
from veilboost.estimators.parameters import Parameters, check_call, choose_active
from veilboost.estimators.rows import rows_of_active, shared_rows, with_categories_of, with_seen_categories
from veilboost.estimators.sklearn_base import check_is_fitted, validate_fit, validate_predict
from veilboost.estimators.stored import Description, read_description, write_description
from veilboost.model.explain import importance, shown_names
from veilboost.model.export import export_xgboost
from veilboost.model.joined import JoinedModel, join
from veilboost.model.part import Part, Skeleton
from veilboost.model.store import load_model, save_model
from veilboost.party.simulation import Simulation, simulate_prediction, simulate_training
from veilboost.protocols.registry import protocol_named, protocols_of
from veilboost.protocols.validation import resolve
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

Frames = dict[PartyName, Any]


class Vertical(LabelKind, Parameters):
    """Fitting, saving and what a fitted estimator knows. The subclasses say what labels and predictions are."""

    parts_: dict[PartyName, Part]
    active_: PartyName
    evals_result_: dict[str, list[float]]
    simulation_: Simulation

    # --- what a user calls ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        eval_set: tuple[Any, Any] | None = None,
    ) -> Self:
        """Train.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            One matrix is divided by `parties`. With a mapping, `id` names the column to align rows by, and
            people whom a party does not know are left out; without it, all parties have the same rows in the
            same order.
        y : array or str
            Labels of the active party's rows; with a mapping also the name of the label column in its frame.
        sample_weight : array, optional
            A weight per row of the active party. A row of weight 0 counts for nothing.
        eval_set : tuple of X and y, optional
            Validation rows, for the learning curve `evals_result_` and for early stopping.

        Returns
        -------
        self
        """
        check_call(self.threads, self.early_stopping_rounds, eval_set)
        check_engine(self.engine, self.workers)
        frames, wanted, names, y = self._open(X, y)
        active = choose_active(self.active, list(frames))
        tables, target = self._read(frames, wanted, active, y)
        rows = len(target)
        shared = shared_rows(tables, active, self.id is not None)
        tables, target = shared.tables, target[shared.origin]
        weight = check_weights(sample_weight, rows, shared.origin)
        if weight is not None and not weight.all():
            counts = weight > 0
            tables = {party: table.take(counts) for party, table in tables.items()}
            target, weight = target[counts], weight[counts]
        labels = self._learn_labels(target)
        tables = {party: with_seen_categories(table) for party, table in tables.items()}
        tables[active] = replace(tables[active], label=labels.values, label_classes=labels.names, weight=weight)
        held_out = None
        if eval_set is not None:
            tables, held_out = self._with_validation(tables, active, labels, eval_set, names)
        spec, config = protocol_named(self.protocol), self._config(labels)
        custom_loss = self.objective if callable(self.objective) else None
        classes = None if self.classes is None else labels.names
        resolve(spec, config, tables[active], engine=self.engine, custom_loss=custom_loss, classes=classes)
        with open_engine(self.engine, self.workers) as engine:
            simulation = simulate_training(
                tables,
                active,
                self.protocol,
                config,
                held_out=held_out,
                threads=self.threads,
                custom_loss=custom_loss,
                classes=classes,
                engine=engine,
            )
        self._adopt(simulation.parts, active, names, labels.classes)
        self.simulation_ = simulation
        curve = [result.validation for result in simulation.history if result.validation is not None]
        self.evals_result_ = {simulation.metric: curve} if curve else {}
        return self

    def save(self, folder: str | Path) -> None:
        """Write every party's part into `folder`, and what `load` needs beside them."""
        model_sha256 = self.model_sha256_
        save_model(self.parts_, folder)
        classes = getattr(self, "classes_", None)
        description = Description(
            self.id,
            None if self._names is None else tuple(self._names),
            hasattr(self, "feature_names_in_"),
            None if classes is None else tuple(classes.tolist()),
        )
        write_description(description, Path(folder), model_sha256)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A fitted estimator from a folder that `save` or `veilboost simulate --save` wrote.

        It predicts as the saved one did. A user's own objective is not stored, so it cannot be fitted again
        before `objective` is set.
        """
        parts = load_model(folder)
        joined = join(parts)
        skeleton = joined.skeleton
        if not cls._fits(skeleton):
            raise UnreadableModel(f"{folder} holds no model of a {cls.__name__}", "load it with the other estimator")
        told = read_description(Path(folder), joined.sha256())
        active = next(party for party, part in parts.items() if part.skeleton is not None)
        settings: dict[str, Any] = skeleton.config.to_dict() | {"objective": skeleton.objective}
        estimator = cls(
            **settings,
            protocol=skeleton.protocol,
            parties={part.party: [info.name for info in part.columns] for part in joined.parts},
            active=active,
            id=told.id,
            categorical=[info.name for info in joined.columns if info.categories is not None],
        )
        classes = None if told.classes is None else np.array(told.classes)
        estimator._adopt(parts, active, told.columns, cls._stored_classes(skeleton, classes))
        if told.columns is not None:
            if not {info.name for info in joined.columns} <= set(told.columns):
                raise UnreadableModel(f"{folder} has columns that the estimator's matrix has not")
            estimator.n_features_in_ = len(told.columns)
            if told.named:
                estimator.feature_names_in_ = np.array(told.columns, dtype=object)
        estimator.evals_result_ = {}
        return estimator

    def export_xgboost(self, path: str | Path) -> None:
        """Write the joined model as an XGBoost JSON file."""
        export_xgboost(self.joined_, path)

    # --- what a fitted estimator knows ------------------------------------------------------------------

    @property
    def joined_(self) -> JoinedModel:
        """All parts together."""
        check_is_fitted(self)
        if self._joined is None:
            self._joined = join(self.parts_)
        return self._joined

    @property
    def model_sha256_(self) -> str:
        """The hash of what the model computes, whoever holds which column."""
        return self.joined_.sha256()

    @property
    def best_iteration_(self) -> int:
        """The last round that the model keeps, counted from 0."""
        return len(self.joined_.trees) // self.joined_.trees_per_round - 1

    @property
    def feature_importances_(self) -> Float64Array:
        """Each column's share of the gain: in the order of the matrix, or party by party."""
        joined = self.joined_
        value = {item.column: item.value for item in importance(joined, "total_gain")}
        known = {info.name: value[shown] for info, shown in zip(joined.columns, shown_names(joined), strict=True)}
        return np.array([known.get(name, 0.0) for name in self._names or known], dtype=np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        spec = protocols_of("vertical").get(self.protocol)
        tags.non_deterministic = spec is not None and not spec.exact  # its noise is drawn anew by every fit
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "parts_")

    @property
    def _skeleton(self) -> Skeleton:
        return cast(Skeleton, self.parts_[self.active_].skeleton)

    def _adopt(
        self,
        parts: Mapping[PartyName, Part],
        active: PartyName,
        names: Sequence[str] | None,
        classes: AnyArray | None,
    ) -> None:
        """Become the estimator of this model; `names` are the columns of one matrix, None for a table per party."""
        self.parts_ = dict(parts)
        self.active_ = active
        self._names = names
        self._joined: JoinedModel | None = None
        if classes is not None:
            self.classes_ = classes
        if names is None:
            every = [info.name for part in parts.values() for info in part.columns]
            self.n_features_in_ = len(every)
            self.feature_names_in_ = np.array(every, dtype=object)

    # --- data in ----------------------------------------------------------------------------------------

    def _open(self, X: Any, y: Any) -> tuple[Frames, dict[PartyName, Wanted], list[str] | None, Any]:
        """A frame per party, what to take from each, the names of one matrix's columns, and the labels."""
        if is_by_party(X):
            if y is None:
                raise MissingLabel("fit was called without labels", "give y: an array, or a column's name")
            frames = frames_of_parties(X)
            return frames, everything(frames, self.categorical), None, y if isinstance(y, str) else labels_of(y)
        if isinstance(y, str) or self.id is not None:
            raise UnsupportedCombination(
                "columns for ids and labels are named where there is a table per party",
                "give X as a mapping of party name to table, or y as an array and no id",
            )
        matrix, target = validate_fit(self, X, y, frame=is_frame(X))
        names = names_of(matrix) if is_frame(matrix) else [f"x{at}" for at in range(matrix.shape[1])]
        frame = matrix if is_frame(matrix) else frame_of_matrix(matrix, names)
        declared = find_columns(self.categorical, names)
        assigned = assign_columns(self.parties, names)
        wanted = {
            party: Wanted(tuple(columns), tuple(name for name in columns if name in declared))
            for party, columns in assigned.items()
        }
        return dict.fromkeys(assigned, frame), wanted, names, target

    def _open_new(self, X: Any, parties: Sequence[PartyName], names: Sequence[str] | None) -> Frames:
        """Frames of rows to predict or to validate on."""
        if is_by_party(X):
            absent = [party for party in parties if party not in X]
            if absent:
                raise ForeignColumns(f"there are no rows of {', '.join(absent)}", "give every party's table")
            return frames_of_parties({party: X[party] for party in parties})
        if names is None:
            raise ForeignColumns("the model was fitted on a table per party", "predict with such a mapping")
        # A frame of other names goes by position, as a matrix; scikit-learn warns or refuses.
        as_frame = is_frame(X) and names_of(X) == list(names)
        checked = validate_predict(self, X, frame=as_frame)
        return dict.fromkeys(parties, checked if as_frame else frame_of_matrix(checked, names))

    def _read(
        self, frames: Frames, wanted: Mapping[PartyName, Wanted], active: PartyName, y: Any
    ) -> tuple[Tables, AnyArray]:
        named = {active: y} if isinstance(y, str) else dict[PartyName, str]()
        tables = load_tables(frames, wanted, self.id, named)
        target = named_labels(tables[active]) if named else cast(AnyArray, y)
        if len(target) != tables[active].rows:
            raise RowsDiffer(
                f"{active} has {tables[active].rows} rows but {len(target)} labels", "give a label per row"
            )
        return tables, target

    def _with_validation(
        self, tables: Tables, active: PartyName, labels: Labels, eval_set: tuple[Any, Any], names: list[str] | None
    ) -> tuple[Tables, BoolArray]:
        """The tables, followed by validation rows, and which rows those are."""
        X, y = eval_set
        frames = self._open_new(X, list(tables), names)
        wanted = {party: Wanted.like(table.columns) for party, table in tables.items()}
        new, target = self._read(frames, wanted, active, y if isinstance(y, str) else labels_of(y))
        shared = shared_rows(new, active, self.id is not None)
        values = self._encode_labels(target[shared.origin], labels.classes)
        shared.tables[active] = replace(shared.tables[active], label=values)
        both = {
            party: table.followed_by(with_categories_of(shared.tables[party], table)) for party, table in tables.items()
        }
        return both, np.arange(both[active].rows) >= tables[active].rows

    def _margins(self, X: Any) -> Float64Array:
        check_is_fitted(self)
        frames = self._open_new(X, list(self.parts_), self._names)
        wanted = {party: Wanted.like(part.columns) for party, part in self.parts_.items()}
        tables = rows_of_active(load_tables(frames, wanted, self.id, {}), self.active_, self.id is not None)
        return simulate_prediction(self.parts_, self.active_, tables)

    def _config(self, labels: Labels) -> TrainingConfig:
        values = {name: getattr(self, name) for name in TrainingConfig.names()}
        objective = self._objective_name(labels)
        if self.objective == "auto" and labels.classes is not None:
            objective = "auto"  # what the labels decide is not declared
        return TrainingConfig.from_dict(values | {"objective": objective})
