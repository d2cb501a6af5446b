"""What the horizontal estimators share: rows in different hands, with scikit-learn's manners."""

from __future__ import annotations

from abc import abstractmethod
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
    find_columns,
    frame_of_matrix,
    is_by_party,
    is_frame,
    labels_of,
    named_labels,
    names_of,
)
from veilboost.estimators.rows import with_seen_categories
from veilboost.estimators.sklearn_base import BaseEstimator, check_is_fitted, validate_fit, validate_predict
from veilboost.estimators.stored import Description, read_description, write_description
from veilboost.model.explain import importance
from veilboost.model.export import export_xgboost
from veilboost.model.joined import JoinedModel, join
from veilboost.model.part import Part, Skeleton
from veilboost.model.store import load_parts, save_model
from veilboost.party.horizontal import HorizontalSimulation, simulate_horizontal
from veilboost.types import AnyArray, Float64Array, PartyName


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
    `mal` has trees of depth 1 and buckets of equal width, `max_bin` of them.
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
        max_delta_step: float = DEFAULTS.max_delta_step,
        colsample_bytree: float = DEFAULTS.colsample_bytree,
        base_score: float | None = DEFAULTS.base_score,
        order: str = DEFAULTS.order,
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
        self.max_delta_step = max_delta_step
        self.colsample_bytree = colsample_bytree
        self.base_score = base_score
        self.order = order
        self.gradient_bits = gradient_bits
        self.seed = seed
        self.options = options
        self.threads = threads


class Horizontal(HorizontalParameters):
    """Fitting, saving and what a fitted estimator knows. The subclasses say what labels and predictions are."""

    model_: JoinedModel
    simulation_: HorizontalSimulation
    classes_: AnyArray

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : matrix, frame, or mapping of participant name to matrix or frame
            The rows of one matrix are dealt out among `participants`. With a mapping every participant has its own
            rows, and all have the same columns.
        y : array, mapping of participant name to array, or str
            Labels, given as X is; with a mapping also the name of the label column in every table.

        Returns
        -------
        self
        """
        tables, labels = self._tables_by_participant(X, y) if is_by_party(X) else self._deal(X, y)
        classes = self._learn_classes(np.concatenate(list(labels.values())))
        coded = {
            name: replace(with_seen_categories(table), label=self._encode(labels[name], classes), label_classes=None)
            for name, table in tables.items()
        }
        values = {name: getattr(self, name) for name in TrainingConfig.names() if hasattr(self, name)}
        config = TrainingConfig.from_dict(values | {"objective": self._objective_name(classes)})
        self.simulation_ = simulate_horizontal(coded, self.protocol, config, threads=self.threads)
        self._adopt(self.simulation_.model, classes)
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
        classes = cls._known_classes(joined.skeleton) if told.classes is None else np.array(told.classes)
        estimator._adopt(joined, classes)
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

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _adopt(self, model: JoinedModel, classes: AnyArray | None) -> None:
        self.model_ = model
        self.n_features_in_ = len(model.columns)
        if classes is not None:
            self.classes_ = classes

    # --- data in ----------------------------------------------------------------------------------------

    def _deal(self, X: Any, y: Any) -> tuple[dict[PartyName, PartyTable], dict[PartyName, AnyArray]]:
        if isinstance(y, str):
            raise ImpossibleParameter("y is a name where X is one matrix", "give the labels as an array")
        count = self.participants
        if isinstance(cast(Any, count), bool) or not isinstance(cast(Any, count), int | np.integer) or count < 1:
            raise ImpossibleParameter(f"participants={count!r} is not a whole number of 1 or more")
        matrix, target = validate_fit(self, X, y, frame=is_frame(X))
        table = self._load(matrix)
        if count > table.rows:
            raise RowsDiffer(f"{table.rows} rows are too few for {count} participants", "use fewer participants")
        dealt = np.array_split(np.random.default_rng((self.seed, 2)).permutation(table.rows), count)
        names = [f"participant{at}" for at in range(count)]
        return (
            {name: table.take(rows) for name, rows in zip(names, dealt, strict=True)},
            {name: target[rows] for name, rows in zip(names, dealt, strict=True)},
        )

    def _tables_by_participant(
        self, X: Mapping[PartyName, Any], y: Any
    ) -> tuple[dict[PartyName, PartyTable], dict[PartyName, AnyArray]]:
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

    # --- what the two estimators differ in --------------------------------------------------------------

    @abstractmethod
    def _learn_classes(self, y: AnyArray) -> AnyArray | None:
        """The classes of the labels, sorted; None for numbers."""

    @abstractmethod
    def _encode(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        """Labels in the terms of training."""

    @abstractmethod
    def _objective_name(self, classes: AnyArray | None) -> str:
        """The loss by name."""

    @classmethod
    @abstractmethod
    def _fits(cls, skeleton: Skeleton) -> bool:
        """Is this a model of such an estimator?"""

    @classmethod
    @abstractmethod
    def _known_classes(cls, skeleton: Skeleton) -> AnyArray | None:
        """The classes, as far as the model itself tells."""


def _by_party(*parts: Part) -> dict[PartyName, Part]:
    return {part.party: part for part in parts}
