"""What an estimator offers once it is fitted: scores, explanations, storage and attributes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np

from veilboost.errors import InvalidParameter, RowsDiffer, UnreadableModel
from veilboost.estimators.description import Description, read_description, write_description
from veilboost.estimators.evaluation_sets import (
    Curves,
)
from veilboost.estimators.inputs import (
    Tables,
    check_base_margin,
    listed,
    thread_count,
)
from veilboost.estimators.parameters import BoostingParameters
from veilboost.estimators.sklearn_base import check_is_fitted
from veilboost.model.explain import importance
from veilboost.model.explanation import Explanation
from veilboost.model.export import export_xgboost
from veilboost.model.joined import JoinedModel, join
from veilboost.model.share import ModelShare, Skeleton
from veilboost.model.store import load_shares, save_model
from veilboost.party.simulation import Simulation
from veilboost.protocols.registry import all_protocols
from veilboost.types import AnyArray, Float64Array, PartyName


class Fitted(BoostingParameters):
    """A fitted estimator. `base.Federated` fits it."""

    other: ClassVar[str]  # the estimator for labels of the other kind
    shares_: dict[PartyName, ModelShare]
    evals_result_: Curves
    simulation_: Simulation
    _rounds_before: int  # of the model that this one continues

    @classmethod
    @abstractmethod
    def _fits(cls, skeleton: Skeleton) -> bool:
        """Whether this kind of estimator can represent the model."""

    @classmethod
    @abstractmethod
    def _stored_classes(cls, skeleton: Skeleton, stored: AnyArray | None) -> AnyArray | None:
        """The classes of a stored model; None for regression."""

    @classmethod
    def _stored_parameters(cls, model: JoinedModel, description: Description) -> dict[str, Any]:
        """Constructor parameters of a stored estimator, apart from those of boosting."""
        return {}

    @abstractmethod
    def _new_tables(self, X: Any) -> Tables:
        """The aligned rows of new X, for the holder of each model share."""

    @abstractmethod
    def _margins(self, X: Any) -> Float64Array:
        """Margins (K, rows) of new rows."""

    def evals_result(self) -> Curves:
        """The learning curves on the evaluation sets, as XGBoost names them.

        Returns
        -------
        dict of str to dict of str to list of float
            For each evaluation set ('validation_0', ...) and each metric the value after each round. The last metric
            on the last set is measured during training, also after the best round; the others are measured with the
            final model, up to its last round.
        """
        check_is_fitted(self)
        return self.evals_result_

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
        found = joined.explain(
            {name: table.columns for name, table in self._new_tables(X).items()}, thread_count(self.n_jobs)
        )
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
            tuple(map(str, listed(self.missing_values))) or None,
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
            "missing_values": description.missing_values or (),
            **cls._stored_parameters(model, description),
        }
        estimator = cls(**settings)
        classes = None if description.classes is None else np.array(description.classes)
        estimator._adopt(shares, description.columns, cls._stored_classes(skeleton, classes))
        if description.columns is not None and description.named:
            estimator.feature_names_in_ = np.array(description.columns, dtype=object)
        estimator.evals_result_, estimator._rounds_before = {}, 0
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
    def best_iteration(self) -> int:
        """XGBoost's name of `best_iteration_`."""
        return self.best_iteration_

    @property
    def best_score(self) -> float:
        """The last metric on the last evaluation set, after the best round."""
        curves = list(self.evals_result().values())
        if not curves:
            raise AttributeError("best_score exists only after a fit with eval_set")
        return list(curves[-1].values())[-1][self.best_iteration_ - self._rounds_before]

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

    def _staged_margins(self, X: Any) -> Iterator[Float64Array]:
        """Margins (K, rows) of new rows after each boosting round."""
        columns = {name: table.columns for name, table in self._new_tables(X).items()}
        return self.joined_.staged_margins(columns)

    def _margins_from(self, X: Any, base_margin: Any, iteration_range: tuple[int, int] | None = None) -> Float64Array:
        """Margins of new rows, of all rounds or the first ones.

        They start from `base_margin` instead of the base margin of the model, if it is given.
        """
        last = self._last_round(iteration_range)
        margins = self._margins(X) if last is None else next(islice(self._staged_margins(X), last, None))
        if base_margin is None:
            return margins
        start = check_base_margin(base_margin, margins.shape[1])
        if len(start) != len(margins):
            raise RowsDiffer(
                f"base_margin has {len(start)} numbers per row, and the model {len(margins)}",
                "give one number per row; with several classes, one per row and class",
            )
        return margins - self._joined.skeleton.base_margin[:, None] + start

    def _last_round(self, iteration_range: tuple[int, int] | None) -> int | None:
        """The last round of a range, counted from 0; None for all rounds, which (0, 0) means in XGBoost too."""
        check_is_fitted(self)
        if iteration_range is None or tuple(iteration_range) == (0, 0):
            return None
        begin, end = iteration_range
        if begin != 0 or not 1 <= end <= self.best_iteration_ + 1:
            raise InvalidParameter(
                f"iteration_range={tuple(iteration_range)} is not (0, end) with an end in [1, "
                f"{self.best_iteration_ + 1}]",
                "give such a range: the model has no rounds after the best one",
            )
        return int(end) - 1

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
