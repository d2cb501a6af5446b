"""What all estimators share: a federation in one process with scikit-learn's manners."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np

from veilboost.config import DEFAULTS, OptionValue, TrainingConfig
from veilboost.errors import DamagedModel, InvalidParameter, ModelVersion, UnreadableModel, UnsupportedCombination
from veilboost.estimators.inputs import (
    Tables,
    frame_of_matrix,
    is_frame,
    names_of,
    with_categories_of,
    with_seen_categories,
)
from veilboost.estimators.sklearn_base import BaseEstimator, check_is_fitted, validate_fit, validate_predict
from veilboost.model.explain import importance, shown_names
from veilboost.model.export import export_xgboost
from veilboost.model.joined import JoinedModel, join
from veilboost.model.share import ModelShare, Skeleton
from veilboost.model.store import load_shares, save_model
from veilboost.party.simulation import Simulation
from veilboost.protocols.registry import all_protocols
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

FILE = "estimator.json"
_FORMAT, _VERSION = "veilboost-estimator", 1


@dataclass(frozen=True)
class Description:
    """What the shares of a model do not say about the estimator that trained it, in one small file beside them.

    `id` is the column to align rows by. `columns` are those of the one matrix that was divided among the parties, None
    where each party had a table, and `named` says whether these names are the caller's own. `classes` are the labels of
    a classifier, in the type they had.
    """

    id: str | None = None
    columns: tuple[str, ...] | None = None
    named: bool = False
    classes: tuple[str | int | float, ...] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class BoostingParameters(BaseEstimator):
    """The parameters of all estimators: scikit-learn reads them off the signature that the dataclass makes."""

    protocol: str = "plain"
    categorical: Sequence[Any] = ()
    objective: str | Callable[..., Any] = DEFAULTS.objective
    n_estimators: int = DEFAULTS.n_estimators
    max_depth: int = DEFAULTS.max_depth
    learning_rate: float = DEFAULTS.learning_rate
    max_bin: int = DEFAULTS.max_bin
    binning: str = DEFAULTS.binning
    categories: str = DEFAULTS.categories
    reg_lambda: float = DEFAULTS.reg_lambda
    reg_alpha: float = DEFAULTS.reg_alpha
    gamma: float = DEFAULTS.gamma
    min_child_weight: float = DEFAULTS.min_child_weight
    min_node_rows: int = DEFAULTS.min_node_rows
    max_delta_step: float = DEFAULTS.max_delta_step
    colsample_bytree: float = DEFAULTS.colsample_bytree
    scale_pos_weight: float = DEFAULTS.scale_pos_weight
    base_score: float | None = DEFAULTS.base_score
    order: str = DEFAULTS.order
    eval_metric: str = DEFAULTS.eval_metric
    early_stopping_rounds: int | None = DEFAULTS.early_stopping_rounds
    gradient_bits: int = DEFAULTS.gradient_bits
    random_state: int = DEFAULTS.random_state
    options: Mapping[str, OptionValue] | None = None
    n_jobs: int = 1


@dataclass(frozen=True)
class Divided:
    """Rows as the parties have them: tables with weights, the labels of those who have some.

    `names` are the columns of one matrix; None where every party has columns of its own.
    """

    tables: Tables
    targets: Mapping[PartyName, AnyArray]
    names: Sequence[str] | None


class Federated(BoostingParameters):
    """Fitting, saving, and what a fitted estimator knows.

    `kinds.Classifier` and `kinds.Regressor` say what labels and predictions are; `vertical.Vertical` and
    `horizontal.Horizontal` say who holds what.
    """

    other: ClassVar[str]  # the estimator for labels of the other kind
    shares_: dict[PartyName, ModelShare]
    evals_result_: dict[str, list[float]]
    simulation_: Simulation

    # --- of labels --------------------------------------------------------------------------------------

    @abstractmethod
    def _find_classes(self, y: AnyArray) -> AnyArray | None:
        """The classes of training labels, checked; None for numbers."""

    @abstractmethod
    def _encode_labels(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        """Labels in the terms of training."""

    @abstractmethod
    def _objective_name(self, classes: AnyArray | None) -> str:
        """The loss by name; a user's own stands in for it."""

    @classmethod
    @abstractmethod
    def _fits(cls, skeleton: Skeleton) -> bool:
        """Whether this estimator's predictions are those of such a model."""

    @classmethod
    @abstractmethod
    def _stored_classes(cls, skeleton: Skeleton, stored: AnyArray | None) -> AnyArray | None:
        """The classes of a stored model; None for numbers."""

    # --- of who holds what ------------------------------------------------------------------------------

    @abstractmethod
    def _read(self, X: Any, y: Any, sample_weight: Any) -> Divided:
        """What fit is given. Rows of weight 0 are left out."""

    @abstractmethod
    def _read_new(self, X: Any, y: Any, trained: Divided) -> Divided:
        """Validation rows, for the parties of `trained`."""

    @abstractmethod
    def _train(
        self, tables: Tables, held_out: Mapping[PartyName, BoolArray] | None, classes: AnyArray | None
    ) -> Simulation:
        """Train on tables with labels; the rows of `held_out` are for validation."""

    @abstractmethod
    def _margins(self, X: Any) -> Float64Array:
        """Margins (K, rows) of new rows."""

    @classmethod
    def _stored_parameters(cls, model: JoinedModel, told: Description) -> dict[str, Any]:
        """Parameters of a stored estimator beside those of boosting."""
        return {}

    # --- what a user calls ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, eval_set: tuple[Any, Any] | None = None) -> Self:
        """Train.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            One matrix is divided: its columns by `parties` (vertical), its rows by `participants` (horizontal). With a
            mapping every party has its own table. Vertical: `id` names the column to align rows by, and people whom a
            party does not know are left out; without it, all parties have the same rows in the same order. Horizontal:
            all have the same columns.
        y : array, str, or mapping of party name to array
            Labels. With a mapping also the name of the label column in the tables of those who have it, and, where rows
            are in different hands, a mapping as X is.
        sample_weight : array or mapping of party name to array, optional
            A weight per row, given as y is. A row of weight 0 counts for nothing.
        eval_set : tuple of X and y, optional
            Validation rows, for the learning curve `evals_result_` and for early stopping.

        Returns
        -------
        self
        """
        self._check_call(eval_set)
        divided = self._read(X, y, sample_weight)
        classes = self._find_classes(np.concatenate(list(divided.targets.values())))
        tables = {name: with_seen_categories(table) for name, table in divided.tables.items()}
        for name, target in divided.targets.items():
            values = self._encode_labels(target, classes)
            tables[name] = replace(tables[name], label=values, label_classes=class_names(classes))
        held_out = None
        if eval_set is not None:
            tables, held_out = self._with_validation(replace(divided, tables=tables), classes, eval_set)
        done = self._train(tables, held_out, classes)
        whole = done.outcome.share  # of a server, which is no party with a table
        self._adopt(done.shares if done.driver in done.shares else {whole.party: whole}, divided.names, classes)
        self.simulation_ = done
        curve = [result.validation for result in done.history if result.validation is not None]
        self.evals_result_ = {done.metric: curve} if curve else {}
        return self

    def save(self, folder: str | Path) -> None:
        """Write every party's share into `folder`, and what `load` needs beside them."""
        model_sha256 = self.model_sha256_
        save_model(self.shares_, folder)
        classes = getattr(self, "classes_", None)
        description = Description(
            getattr(self, "id", None),
            None if self._names is None else tuple(self._names),
            hasattr(self, "feature_names_in_"),
            None if classes is None else tuple(classes.tolist()),
        )
        write_description(description, Path(folder), model_sha256)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A fitted estimator from a folder that `save` or `veilboost simulate --save` wrote, or from a run's folder
        whose model is whole.

        It predicts as the saved one did. A user's own objective is not stored, so it cannot be fitted again
        before `objective` is set.
        """
        shares = load_shares(folder)
        model = join(shares)
        skeleton = model.skeleton
        if not cls._fits(skeleton):
            raise UnreadableModel(f"{folder} holds no model of a {cls.__name__}", "load it with the other estimator")
        told = read_description(Path(folder), model.sha256())
        if told.columns is not None and not {info.name for info in model.columns} <= set(told.columns):
            raise UnreadableModel(f"{folder} has columns that the estimator's matrix has not")
        known = cast("dict[str, Any]", cls().get_params())
        settings: dict[str, Any] = {
            **{name: value for name, value in skeleton.config.to_dict().items() if name in known},
            "objective": skeleton.objective,
            "protocol": skeleton.protocol,
            "categorical": [info.name for info in model.columns if info.categories is not None],
            **cls._stored_parameters(model, told),
        }
        estimator = cls(**settings)
        classes = None if told.classes is None else np.array(told.classes)
        estimator._adopt(shares, told.columns, cls._stored_classes(skeleton, classes))
        if told.columns is not None and told.named:
            estimator.feature_names_in_ = np.array(told.columns, dtype=object)
        estimator.evals_result_ = {}
        return estimator

    def export_xgboost(self, path: str | Path) -> None:
        """Write the joined model as an XGBoost JSON file."""
        export_xgboost(self.joined_, path)

    # --- what a fitted estimator knows ------------------------------------------------------------------

    @property
    def joined_(self) -> JoinedModel:
        """All shares together."""
        check_is_fitted(self)
        return self._joined

    @property
    def model_sha256_(self) -> str:
        """The hash of what the model computes, whoever holds which column."""
        return self.joined_.sha256()

    @property
    def best_iteration_(self) -> int:
        """The last round that the model keeps, counted from 0."""
        return len(self.joined_.trees) // self.joined_.skeleton.trees_per_round - 1

    @property
    def feature_importances_(self) -> Float64Array:
        """Each column's share of the gain: in the order of the matrix, or party by party."""
        joined = self.joined_
        value = {item.column: item.value for item in importance(joined, "total_gain")}
        known = {info.name: value[shown] for info, shown in zip(joined.columns, shown_names(joined), strict=True)}
        return np.array([known.get(name, 0.0) for name in self._names or known], dtype=np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        spec = all_protocols().get(self.protocol)
        tags.non_deterministic = spec is not None and not spec.exact  # its noise is drawn anew by every fit
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "shares_")

    def _adopt(
        self, shares: Mapping[PartyName, ModelShare], names: Sequence[str] | None, classes: AnyArray | None
    ) -> None:
        """Become the estimator of this model; `names` are the columns of one matrix, None for a table per party."""
        self.shares_ = dict(shares)
        self._names = names
        self._joined = join(shares)
        if classes is not None:
            self.classes_ = classes
        every = [info.name for share in shares.values() for info in share.columns] if names is None else names
        self.n_features_in_ = len(every)
        if names is None:
            self.feature_names_in_ = np.array(every, dtype=object)

    # --- what reading has in common ---------------------------------------------------------------------

    def _check_call(self, eval_set: object) -> None:
        """What `TrainingConfig` does not check."""
        check_count("n_jobs", self.n_jobs)
        if eval_set is None:
            if self.early_stopping_rounds is not None:
                raise UnsupportedCombination("early_stopping_rounds needs validation rows", "give fit an eval_set")
        elif not isinstance(eval_set, tuple | list) or len(cast("Sequence[object]", eval_set)) != 2:
            raise InvalidParameter("eval_set is not a pair", "give (X, y)")

    def _with_validation(
        self, trained: Divided, classes: AnyArray | None, eval_set: tuple[Any, Any]
    ) -> tuple[Tables, dict[PartyName, BoolArray]]:
        """The tables, each followed by its validation rows, and which rows those are."""
        new = self._read_new(*eval_set, trained)
        both = dict(trained.tables)
        for name, table in new.tables.items():
            known = name in new.targets
            rows = replace(table, label=self._encode_labels(new.targets[name], classes)) if known else table
            both[name] = both[name].followed_by(with_categories_of(rows, both[name]))
        return both, {name: np.arange(table.rows) >= trained.tables[name].rows for name, table in both.items()}

    def _config(self, classes: AnyArray | None) -> TrainingConfig:
        values = {name: getattr(self, name) for name in TrainingConfig.names() if hasattr(self, name)}
        return TrainingConfig.from_dict(values | {"objective": self._objective_name(classes)})

    def _open_matrix(self, X: Any, y: Any) -> tuple[Any, list[str], AnyArray]:
        """One matrix as a frame, the names of its columns, and its labels, as scikit-learn checks them."""
        matrix, target = validate_fit(self, X, y, frame=is_frame(X))
        if is_frame(matrix):
            return matrix, names_of(matrix), target
        names = [f"x{at}" for at in range(matrix.shape[1])]
        return frame_of_matrix(matrix, names), names, target

    def _open_new_matrix(self, X: Any, names: Sequence[str]) -> Any:
        """The same of new rows. A frame of other names goes by position, as a matrix; scikit-learn warns or refuses."""
        as_frame = is_frame(X) and names_of(X) == list(names)
        checked = validate_predict(self, X, frame=as_frame)
        return checked if as_frame else frame_of_matrix(checked, names)


def class_names(classes: AnyArray | None) -> tuple[str, ...] | None:
    return None if classes is None else tuple(str(name) for name in classes)


def check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or cast(int, value) < 1:
        raise InvalidParameter(f"{name}={value!r} is not a whole number of 1 or more")


def write_description(description: Description, folder: Path, model_sha256: str) -> None:
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "model_sha256": model_sha256,
        **asdict(description),
    }
    # Only for its owner, as the shares are: it names columns.
    handle = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


def read_description(folder: Path, model_sha256: str) -> Description:
    """What `write_description` wrote. A model that no estimator wrote has a table per party and no more to say."""
    path = folder / FILE
    if not path.exists():
        return Description()
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableModel(f"{path} is not JSON") from error
    values = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    if values.get("format") != _FORMAT or not isinstance(values.get("version"), int):
        raise UnreadableModel(f"{path} is not the description of an estimator")
    if values["version"] > _VERSION:
        raise ModelVersion(f"{path} has format {values['version']}, and this release reads {_VERSION}")
    if values.get("model_sha256") != model_sha256:
        raise DamagedModel(f"{path} describes another model than the shares beside it", "save the estimator again")
    id, named = values.get("id"), values.get("named")
    if not isinstance(id, str | None) or not isinstance(named, bool):
        raise UnreadableModel(f"{path} contradicts itself")
    return Description(
        id, _items(values, "columns", (str,), path), named, _items(values, "classes", (str, int, float), path)
    )


def _items(values: dict[str, Any], key: str, kinds: tuple[type, ...], path: Path) -> tuple[Any, ...] | None:
    """A list of different values of one type, or None."""
    items = values.get(key)
    if items is None:
        return None
    found = cast("list[object]", items) if isinstance(items, list) else [None]
    if len({type(item) for item in found}) != 1 or not isinstance(found[0], kinds) or len(set(found)) < len(found):
        raise UnreadableModel(f"{path} has {key} that are not a list of different values of one type")
    return tuple(found)
