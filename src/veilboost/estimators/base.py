"""The base class of all estimators: a federation in one process with scikit-learn's interface."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np

from veilboost.config import DEFAULTS, OptionValue, TrainingConfig
from veilboost.durable import replace_file
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
from veilboost.model.explain import importance
from veilboost.model.explanation import Explanation
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
    """Facts about an estimator that the model shares do not hold, stored in a small file beside them.

    Attributes
    ----------
    id : str or None
        The record-id column that rows were aligned by.
    columns : tuple of str or None
        The columns of the single input matrix; None if each party had its own table.
    named : bool
        Whether the caller named these columns.
    classes : tuple or None
        The classes of a classifier, in their original type.
    """

    id: str | None = None
    columns: tuple[str, ...] | None = None
    named: bool = False
    classes: tuple[str | int | float, ...] | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class BoostingParameters(BaseEstimator):
    """The parameters of all estimators. scikit-learn reads them from the signature that the dataclass generates."""

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
class PartitionedData:
    """The parties' tables with weights, and the labels of the parties that hold labels.

    `names` are the columns of the single input matrix; None if each party has columns of its own.
    """

    tables: Tables
    targets: Mapping[PartyName, AnyArray]
    names: Sequence[str] | None


class Federated(BoostingParameters):
    """Fitting, saving and the attributes of a fitted estimator.

    `kinds.Classifier` and `kinds.Regressor` implement labels and predictions; `vertical.Vertical` and
    `horizontal.Horizontal` implement how the data is partitioned.
    """

    other: ClassVar[str]  # the estimator for labels of the other kind
    shares_: dict[PartyName, ModelShare]
    evals_result_: dict[str, list[float]]
    simulation_: Simulation

    # --- labels -----------------------------------------------------------------------------------------

    @abstractmethod
    def _find_classes(self, y: AnyArray) -> AnyArray | None:
        """Validate training labels and return their classes; None for regression."""

    @abstractmethod
    def _encode_labels(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        """Labels as the floats that training uses."""

    @abstractmethod
    def _objective_name(self, classes: AnyArray | None) -> str:
        """The name of the loss; for a callable, that of the objective it replaces."""

    @classmethod
    @abstractmethod
    def _fits(cls, skeleton: Skeleton) -> bool:
        """Whether this kind of estimator can represent the model."""

    @classmethod
    @abstractmethod
    def _stored_classes(cls, skeleton: Skeleton, stored: AnyArray | None) -> AnyArray | None:
        """The classes of a stored model; None for regression."""

    # --- partitioning -----------------------------------------------------------------------------------

    @abstractmethod
    def _read(self, X: Any, y: Any, sample_weight: Any) -> PartitionedData:
        """Read the arguments of `fit`. Rows of weight 0 are dropped."""

    @abstractmethod
    def _read_new(self, X: Any, y: Any, trained: PartitionedData) -> PartitionedData:
        """Read validation rows for the parties of `trained`."""

    @abstractmethod
    def _train(
        self, tables: Tables, held_out: Mapping[PartyName, BoolArray] | None, classes: AnyArray | None
    ) -> Simulation:
        """Train on tables with labels; `held_out` marks the validation rows."""

    @abstractmethod
    def _new_tables(self, X: Any) -> Tables:
        """The aligned rows of new X, for the holder of each model share."""

    @abstractmethod
    def _margins(self, X: Any) -> Float64Array:
        """Margins (K, rows) of new rows."""

    @classmethod
    def _stored_parameters(cls, model: JoinedModel, description: Description) -> dict[str, Any]:
        """Constructor parameters of a stored estimator, apart from those of boosting."""
        return {}

    # --- public methods ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, eval_set: tuple[Any, Any] | None = None) -> Self:
        """Train a federation of simulated parties in this process.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            Training samples. A single matrix or frame (pandas, polars or pyarrow) is partitioned among simulated
            parties: by columns as `parties` says (vertical), or by rows among `participants` (horizontal). With a
            mapping, each party has its own table.

            Vertical estimators with a mapping align the tables by the record-id column `id` and drop records that
            some party does not have; without `id`, all tables must have the same rows in the same order. Horizontal
            estimators with a mapping need the same columns in every table.
        y : array-like of shape (n_samples,), str, or mapping of party name to array-like
            Labels. If X is a mapping, y can be the name of the label column: in the active party's table (vertical) or
            in every table (horizontal). Horizontal estimators also take a mapping with the keys of X.
        sample_weight : array-like of shape (n_samples,) or mapping of party name to array-like, default=None
            Sample weights, in the same form as array labels. Rows of weight 0 are dropped.
        eval_set : tuple (X, y), default=None
            Validation samples, in the same form as X and y. They give the learning curve `evals_result_` and are
            required for early stopping.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        VeilBoostError
            If the input or a parameter is invalid. Such errors are also `ValueError`.
        """
        self._check_call(eval_set)
        data = self._read(X, y, sample_weight)
        classes = self._find_classes(np.concatenate(list(data.targets.values())))
        tables = {name: with_seen_categories(table) for name, table in data.tables.items()}
        for name, target in data.targets.items():
            values = self._encode_labels(target, classes)
            tables[name] = replace(tables[name], label=values, label_classes=class_names(classes))
        held_out = None
        if eval_set is not None:
            tables, held_out = self._with_validation(replace(data, tables=tables), classes, eval_set)
        simulation = self._train(tables, held_out, classes)
        driver_share = simulation.outcome.share
        # The server of a horizontal job has no table; its share is the full model.
        has_table = simulation.driver in simulation.shares
        self._adopt(simulation.shares if has_table else {driver_share.party: driver_share}, data.names, classes)
        self.simulation_ = simulation
        curve = [result.validation for result in simulation.history if result.validation is not None]
        self.evals_result_ = {simulation.metric: curve} if curve else {}
        return self

    def explain(self, X: Any) -> Explanation:
        """Explain predictions: how much each feature moved the margin of each row (exact TreeSHAP).

        A margin is a prediction before the link function: log odds for two classes, the value for regression.

        Parameters
        ----------
        X : matrix, frame, or mapping of party name to matrix or frame
            The rows, in the form that `fit` was given. Horizontal estimators take one matrix or frame.

        Returns
        -------
        Explanation
            Contributions, expected margins, values and names of the features, in the order of `feature_importances_`.
            `to_shap` converts it to a `shap.Explanation`.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from veilboost import VerticalRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = VerticalRegressor(n_estimators=20, max_depth=2).fit(X, y)
        >>> found = model.explain(X[:1])
        >>> found.reasons(2)
        [['x2', 'x8']]
        >>> abs(found.values.sum() + found.base_values[0] - model.predict(X[:1])[0]) < 1e-9
        True
        """
        joined = self.joined_
        found = joined.explain({name: table.columns for name, table in self._new_tables(X).items()}, self.n_jobs)
        if self._names is None:
            return found
        place = {info.name: at for at, info in enumerate(joined.columns)}
        return found.pick([place[name] for name in self._names if name in place])

    def save(self, folder: str | Path) -> None:
        """Save the fitted estimator.

        Parameters
        ----------
        folder : str or Path
            The folder to write. It gets one subfolder per model share and a description of the estimator. Files are
            readable by their owner only.
        """
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
        """Load a fitted estimator.

        The estimator predicts exactly as the saved one. A callable `objective` is not stored: set `objective` before
        you fit a loaded estimator again.

        Parameters
        ----------
        folder : str or Path
            A folder written by `save` or by `veilboost simulate --save`, or a run folder that holds a full model.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        UnreadableModel
            If the folder holds no model, or a model of another kind of estimator.
        """
        shares = load_shares(folder)
        model = join(shares)
        skeleton = model.skeleton
        if not cls._fits(skeleton):
            raise UnreadableModel(f"{folder} holds no model of a {cls.__name__}", f"load it with {cls.other}")
        description = read_description(Path(folder), model.sha256())
        if description.columns is not None and not {info.name for info in model.columns} <= set(description.columns):
            raise UnreadableModel(f"{folder} has model columns that are not in the estimator's matrix")
        known = cast("dict[str, Any]", cls().get_params())
        settings: dict[str, Any] = {
            **{name: value for name, value in skeleton.config.to_dict().items() if name in known},
            "objective": skeleton.objective,
            "protocol": skeleton.protocol,
            "categorical": [info.name for info in model.columns if info.categories is not None],
            **cls._stored_parameters(model, description),
        }
        estimator = cls(**settings)
        classes = None if description.classes is None else np.array(description.classes)
        estimator._adopt(shares, description.columns, cls._stored_classes(skeleton, classes))
        if description.columns is not None and description.named:
            estimator.feature_names_in_ = np.array(description.columns, dtype=object)
        estimator.evals_result_ = {}
        return estimator

    def export_xgboost(self, path: str | Path) -> None:
        """Export the joined model as an XGBoost JSON file.

        The file holds the columns, thresholds and categories of all parties. See `veilboost.export_xgboost`.

        Parameters
        ----------
        path : str or Path
            The file to write; its name should end in `.json`.
        """
        export_xgboost(self.joined_, path)

    # --- fitted attributes ------------------------------------------------------------------------------

    @property
    def joined_(self) -> JoinedModel:
        """The joined model: the shares of all parties combined."""
        check_is_fitted(self)
        return self._joined

    @property
    def model_sha256_(self) -> str:
        """SHA-256 hash of the joined model; it does not depend on which party holds which column."""
        return self.joined_.sha256()

    @property
    def best_iteration_(self) -> int:
        """The last boosting round that the model keeps, counted from 0."""
        return len(self.joined_.trees) // self.joined_.skeleton.trees_per_round - 1

    @property
    def feature_importances_(self) -> Float64Array:
        """Each column's share of the total gain, in the order of the matrix, or party by party."""
        joined = self.joined_
        value = {item.column: item.value for item in importance(joined, "total_gain")}
        known = {info.name: value[shown] for info, shown in zip(joined.columns, joined.shown_names, strict=True)}
        return np.array([known.get(name, 0.0) for name in self._names or known], dtype=np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        spec = all_protocols().get(self.protocol)
        tags.non_deterministic = spec is not None and not spec.exact  # every fit draws new noise
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "shares_")

    def _adopt(
        self, shares: Mapping[PartyName, ModelShare], names: Sequence[str] | None, classes: AnyArray | None
    ) -> None:
        """Set the fitted attributes. `names` are the columns of a single matrix; None for a table per party."""
        self.shares_ = dict(shares)
        self._names = names
        self._joined = join(shares)
        if classes is not None:
            self.classes_ = classes
        every = [info.name for share in shares.values() for info in share.columns] if names is None else names
        self.n_features_in_ = len(every)
        if names is None:
            self.feature_names_in_ = np.array(every, dtype=object)

    # --- reading input ----------------------------------------------------------------------------------

    def _check_call(self, eval_set: object) -> None:
        """Check what `TrainingConfig` does not."""
        check_count("n_jobs", self.n_jobs)
        if eval_set is None:
            if self.early_stopping_rounds is not None:
                raise UnsupportedCombination("early_stopping_rounds needs validation rows", "give fit an eval_set")
        elif not isinstance(eval_set, tuple | list) or len(cast("Sequence[object]", eval_set)) != 2:
            raise InvalidParameter("eval_set is not a pair", "give (X, y)")

    def _with_validation(
        self, trained: PartitionedData, classes: AnyArray | None, eval_set: tuple[Any, Any]
    ) -> tuple[Tables, dict[PartyName, BoolArray]]:
        """Append each party's validation rows to its table; also return a mask of these rows."""
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
        """Validate one matrix with scikit-learn; return it as a frame, its column names and its labels."""
        matrix, target = validate_fit(self, X, y, frame=is_frame(X))
        if is_frame(matrix):
            return matrix, names_of(matrix), target
        names = [f"x{at}" for at in range(matrix.shape[1])]
        return frame_of_matrix(matrix, names), names, target

    def _open_new_matrix(self, X: Any, names: Sequence[str]) -> Any:
        """Validate new rows. A frame with other names is read by position, and scikit-learn warns or raises."""
        as_frame = is_frame(X) and names_of(X) == list(names)
        checked = validate_predict(self, X, frame=as_frame)
        return checked if as_frame else frame_of_matrix(checked, names)


def class_names(classes: AnyArray | None) -> tuple[str, ...] | None:
    return None if classes is None else tuple(str(name) for name in classes)


def check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or cast(int, value) < 1:
        raise InvalidParameter(f"{name}={value!r} is not a whole number of 1 or more", f"set {name} to such a number")


def write_description(description: Description, folder: Path, model_sha256: str) -> None:
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "model_sha256": model_sha256,
        **asdict(description),
    }
    # Readable by its owner only, like the shares: it names columns.
    replace_file(folder / FILE, json.dumps(content, indent=1).encode())


def read_description(folder: Path, model_sha256: str) -> Description:
    """Read the file that `write_description` wrote; the default `Description` if there is none."""
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
        raise UnreadableModel(f"{path} has a wrong type for id or named")
    return Description(
        id, _items(values, "columns", (str,), path), named, _items(values, "classes", (str, int, float), path)
    )


def _items(values: dict[str, Any], key: str, kinds: tuple[type, ...], path: Path) -> tuple[Any, ...] | None:
    """A list of distinct values of one type, or None."""
    items = values.get(key)
    if items is None:
        return None
    found = cast("list[object]", items) if isinstance(items, list) else [None]
    if len({type(item) for item in found}) != 1 or not isinstance(found[0], kinds) or len(set(found)) < len(found):
        raise UnreadableModel(f"{path} has {key} that are not a list of distinct values of one type")
    return tuple(found)
