"""What the horizontal estimators share: rows in different hands, with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from veilboost.config import DEFAULTS, OptionValue, TrainingConfig
from veilboost.data.load import load_table
from veilboost.data.table import PartyTable
from veilboost.errors import ImpossibleParameter, MissingLabel, RowsDiffer, UnknownFormat, UnreadableModel
from veilboost.estimators.inputs import (
    KEEP,
    Wanted,
    check_weights,
    find_columns,
    frame_of_matrix,
    is_by_party,
    is_frame,
    labels_of,
    named_labels,
    names_of,
)
from veilboost.estimators.kinds import LabelKind, Labels
from veilboost.estimators.parameters import check_call
from veilboost.estimators.rows import with_categories_of, with_seen_categories
from veilboost.estimators.sklearn_base import BaseEstimator, check_is_fitted, validate_fit, validate_predict
from veilboost.estimators.stored import Description, read_description, write_description
from veilboost.model.explain import importance
from veilboost.model.export import export_xgboost
from veilboost.model.joined import JoinedModel, join
from veilboost.model.part import Part, Skeleton
from veilboost.model.store import load_parts, save_model
from veilboost.party.simulation import SERVER, Simulation, simulate_training
from veilboost.protocols.registry import protocols_of
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

Shares = tuple[dict[PartyName, PartyTable], dict[PartyName, AnyArray]]  # everybody's rows and their labels


class HorizontalParameters(BaseEstimator):
    """
    Parameters
    ----------
    protocol : str
        How rows and labels are protected: `mal` or `secagg`.
    participants : int
        Among how many participants the rows of one matrix are dealt out, by `seed`. Where fit is given a table per
        participant, this is not used.
    categorical : sequence
        Columns to take as categories although they hold numbers (text always is categories).
    options : mapping, optional
        The protocol's own parameters, as `{"epsilon": 4}`.
    threads : int
        How many threads each side uses.

    All other parameters are those of `veilboost.config.TrainingConfig`, with XGBoost's names. A protocol may fix some:
    `mal` has trees of depth 1 and buckets of equal width, `max_bin` of them, and neither weights nor validation rows.
    """

    def __init__(
        self,
        *,
        protocol: str = "mal",
        participants: int = 10,
        categorical: Sequence[Any] = (),
        objective: str = DEFAULTS.objective,
        n_estimators: int = DEFAULTS.n_estimators,
        max_depth: int = DEFAULTS.max_depth,
        learning_rate: float = DEFAULTS.learning_rate,
        max_bin: int = 18,
        binning: str = DEFAULTS.binning,
        categories: str = DEFAULTS.categories,
        reg_lambda: float = DEFAULTS.reg_lambda,
        reg_alpha: float = DEFAULTS.reg_alpha,
        gamma: float = DEFAULTS.gamma,
        min_child_weight: float = DEFAULTS.min_child_weight,
        min_node_rows: int = DEFAULTS.min_node_rows,
        max_delta_step: float = DEFAULTS.max_delta_step,
        colsample_bytree: float = DEFAULTS.colsample_bytree,
        scale_pos_weight: float = DEFAULTS.scale_pos_weight,
        base_score: float | None = DEFAULTS.base_score,
        order: str = DEFAULTS.order,
        eval_metric: str = DEFAULTS.eval_metric,
        early_stopping_rounds: int | None = DEFAULTS.early_stopping_rounds,
        gradient_bits: int = DEFAULTS.gradient_bits,
        seed: int = DEFAULTS.seed,
        options: Mapping[str, OptionValue] | None = None,
        threads: int = 1,
    ) -> None:
        self.protocol = protocol
        self.participants = participants
        self.categorical = categorical
        self.objective = objective
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.max_bin = max_bin
        self.binning = binning
        self.categories = categories
        self.reg_lambda = reg_lambda
        self.reg_alpha = reg_alpha
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.min_node_rows = min_node_rows
        self.max_delta_step = max_delta_step
        self.colsample_bytree = colsample_bytree
        self.scale_pos_weight = scale_pos_weight
        self.base_score = base_score
        self.order = order
        self.eval_metric = eval_metric
        self.early_stopping_rounds = early_stopping_rounds
        self.gradient_bits = gradient_bits
        self.seed = seed
        self.options = options
        self.threads = threads


class Horizontal(LabelKind, HorizontalParameters):
    """Fitting, saving and what a fitted estimator knows. The subclasses say what labels and predictions are."""

    model_: JoinedModel
    simulation_: Simulation
    evals_result_: dict[str, list[float]]

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, eval_set: tuple[Any, Any] | None = None) -> Self:
        """Train.

        Parameters
        ----------
        X : matrix, frame, or mapping of participant name to matrix or frame
            The rows of one matrix are dealt out among `participants`. With a mapping every participant has its own
            rows, and all have the same columns.
        y : array, mapping of participant name to array, or str
            Labels, given as X is; with a mapping also the name of the label column in every table.
        sample_weight : array or mapping of participant name to array, optional
            A weight per row, given as X is. A row of weight 0 counts for nothing.
        eval_set : tuple of X and y, optional
            Validation rows, for the learning curve `evals_result_` and for early stopping.

        Returns
        -------
        self
        """
        check_call(self.threads, self.early_stopping_rounds, eval_set)
        tables, targets = self._read(X, y, sample_weight)
        labels = self._learn_labels(np.concatenate(list(targets.values())))
        tables = {
            name: replace(
                with_seen_categories(table),
                label=self._encode_labels(targets[name], labels.classes),
                label_classes=None,
            )
            for name, table in tables.items()
        }
        held_out = None
        if eval_set is not None:
            tables, held_out = self._with_validation(tables, labels, eval_set)
        values = {name: getattr(self, name) for name in TrainingConfig.names() if hasattr(self, name)}
        config = TrainingConfig.from_dict(values | {"objective": self._objective_name(labels)})
        run = simulate_training(tables, SERVER, self.protocol, config, threads=self.threads, held_out=held_out)
        self.simulation_ = run
        self._adopt(run.model, labels.classes)
        curve = [result.validation for result in run.outcome.history if result.validation is not None]
        self.evals_result_ = {run.outcome.metric: curve} if run.outcome.metric is not None else {}
        return self

    def save(self, folder: str | Path) -> None:
        """Write the model into `folder`, and what `load` needs beside it."""
        check_is_fitted(self)
        save_model(_by_party(*self.model_.parts), folder)
        classes = getattr(self, "classes_", None)
        columns = tuple(info.name for info in self.model_.columns)
        named = hasattr(self, "feature_names_in_")
        description = Description(None, columns, named, None if classes is None else tuple(classes.tolist()))
        write_description(description, Path(folder), self.model_sha256_)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A fitted estimator from a folder that `save` wrote, or from the run folder of a participant's job."""
        joined = join(load_parts(folder))
        if not cls._fits(joined.skeleton):
            raise UnreadableModel(f"{folder} holds no model of a {cls.__name__}", "load it with the other estimator")
        told = read_description(Path(folder), joined.sha256())
        own = cls()
        settings = {name: value for name, value in joined.config.to_dict().items() if hasattr(own, name)}
        estimator = cls(**settings, protocol=joined.skeleton.protocol)
        stored = None if told.classes is None else np.array(told.classes)
        estimator._adopt(joined, cls._stored_classes(joined.skeleton, stored))
        estimator.evals_result_ = {}
        if told.named or told.columns is None:
            estimator.feature_names_in_ = np.array([info.name for info in joined.columns], dtype=object)
        return estimator

    def export_xgboost(self, path: str | Path) -> None:
        """Write the model as an XGBoost JSON file."""
        check_is_fitted(self)
        export_xgboost(self.model_, path)

    @property
    def model_sha256_(self) -> str:
        """The hash of what the model computes."""
        check_is_fitted(self)
        return self.model_.sha256()

    @property
    def feature_importances_(self) -> Float64Array:
        """Each column's share of the gain."""
        check_is_fitted(self)
        value = {item.column: item.value for item in importance(self.model_, "total_gain")}
        return np.array([value[info.name] for info in self.model_.columns], dtype=np.float64)

    @property
    def best_iteration_(self) -> int:
        """The last round that the model keeps, counted from 0."""
        check_is_fitted(self)
        return len(self.model_.trees) // self.model_.trees_per_round - 1

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        spec = protocols_of("horizontal").get(self.protocol)
        tags.non_deterministic = spec is not None and not spec.exact  # its noise is drawn anew by every fit
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @property
    def _skeleton(self) -> Skeleton:
        return self.model_.skeleton

    def _adopt(self, model: JoinedModel, classes: AnyArray | None) -> None:
        self.model_ = model
        self.n_features_in_ = len(model.columns)
        if classes is not None:
            self.classes_ = classes

    # --- data in ----------------------------------------------------------------------------------------

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Shares:
        """Everybody's table with weights, and labels; rows of weight 0 are left out."""
        if not is_by_party(X):
            return self._deal(X, y, sample_weight)
        tables, targets = self._tables_by_participant(X, y)
        if sample_weight is not None and not is_by_party(sample_weight):
            raise RowsDiffer("the weights are not one array for each participant", "give them as X is")
        for name, table in tables.items():
            given = None if sample_weight is None else sample_weight.get(name)
            tables[name], targets[name] = _weighed(table, targets[name], given)
        return tables, targets

    def _deal(self, X: Any, y: Any, sample_weight: Any = None, least: int | None = None) -> Shares:
        if isinstance(y, str):
            raise ImpossibleParameter("y is a name where X is one matrix", "give the labels as an array")
        count = self.participants
        if isinstance(cast(Any, count), bool) or not isinstance(cast(Any, count), int | np.integer) or count < 1:
            raise ImpossibleParameter(f"participants={count!r} is not a whole number of 1 or more")
        matrix, target = validate_fit(self, X, y, frame=is_frame(X))
        table, target = _weighed(self._load(matrix), target, sample_weight)
        if table.rows < (count if least is None else least):
            raise RowsDiffer(f"{table.rows} rows are too few for {count} participants", "use fewer participants")
        dealt = np.array_split(np.random.default_rng((self.seed, 2)).permutation(table.rows), count)
        names = [f"participant{at}" for at in range(count)]
        return (
            {name: table.take(rows) for name, rows in zip(names, dealt, strict=True)},
            {name: target[rows] for name, rows in zip(names, dealt, strict=True)},
        )

    def _with_validation(
        self, tables: Mapping[PartyName, PartyTable], labels: Labels, eval_set: tuple[Any, Any]
    ) -> tuple[dict[PartyName, PartyTable], dict[PartyName, BoolArray]]:
        """The tables, each followed by its validation rows, and which rows those are."""
        X, y = eval_set
        new, targets = self._tables_by_participant(X, y) if is_by_party(X) else self._deal(X, y, least=1)
        if not set(new) <= set(tables):
            raise RowsDiffer("there are validation rows of one that has no rows", "name the participants alike")
        both = dict(tables)
        for name, rows in new.items():
            values = self._encode_labels(targets[name], labels.classes)
            both[name] = tables[name].followed_by(with_categories_of(replace(rows, label=values), tables[name]))
        return both, {name: np.arange(table.rows) >= tables[name].rows for name, table in both.items()}

    def _tables_by_participant(self, X: Mapping[PartyName, Any], y: Any) -> Shares:
        if y is None or (not isinstance(y, str) and not is_by_party(y)):
            raise MissingLabel(
                "fit was called without every participant's labels", "give y as X is, or a column's name"
            )
        tables: dict[PartyName, PartyTable] = {}
        labels: dict[PartyName, AnyArray] = {}
        for name, given in X.items():
            if isinstance(y, str):
                tables[name] = self._load(given, label=y)
                labels[name] = named_labels(tables[name])
                continue
            tables[name] = self._load(given)
            if name not in y:
                raise MissingLabel(f"there are no labels of {name}", "give y as X is")
            labels[name] = labels_of(y[name])
            if len(labels[name]) != tables[name].rows:
                raise RowsDiffer(f"{name} has {tables[name].rows} rows but {len(labels[name])} labels")
        if tables and is_frame(next(iter(X.values()))):
            self.feature_names_in_ = np.array(next(iter(tables.values())).names, dtype=object)
        return tables, labels

    def _load(self, given: Any, label: str | None = None) -> PartyTable:
        frame = given
        if not is_frame(given):
            matrix = np.asarray(given)
            if matrix.ndim != 2:
                raise UnknownFormat("a table is neither a frame nor a matrix", "give a row per person")
            frame = frame_of_matrix(matrix, [f"x{at}" for at in range(matrix.shape[1])])
        features = [name for name in names_of(frame) if name != label]
        declared = find_columns(self.categorical, features)
        return load_table(frame, label=label, features=features, categorical=declared, rules=KEEP)

    def _margins(self, X: Any) -> Float64Array:
        check_is_fitted(self)
        names = [info.name for info in self.model_.columns]
        # A frame of other names goes by position, as a matrix; scikit-learn warns or refuses.
        as_frame = is_frame(X) and names_of(X) == names
        checked = validate_predict(self, X, frame=as_frame)
        frame = checked if as_frame else frame_of_matrix(checked, names)
        wanted = Wanted.like(self.model_.columns)
        table = load_table(frame, features=wanted.features, categorical=wanted.categorical, rules=KEEP)
        return self.model_.margins(table.columns)


def _weighed(table: PartyTable, target: AnyArray, sample_weight: Any) -> tuple[PartyTable, AnyArray]:
    weight = check_weights(sample_weight, table.rows, np.arange(table.rows))
    if weight is None:
        return table, target
    counts = weight > 0
    return replace(table, weight=weight).take(counts), target[counts]


def _by_party(*parts: Part) -> dict[PartyName, Part]:
    return {part.party: part for part in parts}
