"""The base class of all estimators: a federation in one process with scikit-learn's interface."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from veilboost.boost.booster import Watcher
from veilboost.callback import CallbackRunner, TrainingModel, check_callbacks
from veilboost.config import CONSTRAINTS, TrainingConfig
from veilboost.engine.tables import with_frequent_categories
from veilboost.errors import ForeignColumns, InvalidParameter, RowsDiffer, UnknownProtocol, UnsupportedCombination
from veilboost.estimators.constraints import with_constraints
from veilboost.estimators.evaluation_sets import (
    Curves,
    EvalSet,
    Metrics,
    eval_sets,
    round_output,
    set_name,
)
from veilboost.estimators.fitted import Fitted
from veilboost.estimators.foreign_names import FIT_ARGUMENTS, refuse_arguments, refuse_matrix
from veilboost.estimators.inputs import (
    Tables,
    check_count,
    evaluation_rows,
    frame_of_matrix,
    is_frame,
    names_of,
    thread_count,
    with_categories_of,
    with_seen_categories,
)
from veilboost.estimators.sklearn_base import check_is_fitted, validate_fit, validate_predict
from veilboost.model.continued import with_columns_of
from veilboost.model.share import ModelShare
from veilboost.party.simulation import Peek, Simulation
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.spec import Setting
from veilboost.protocols.validation import check_config, check_start
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName


@dataclass(frozen=True)
class PartitionedData:
    """The parties' tables with weights, and the labels of the parties that hold labels.

    `names` are the columns of the single input matrix; None if each party has columns of its own. `margin` (K, rows)
    is where the rows start, if the caller gave it.
    """

    tables: Tables
    targets: Mapping[PartyName, AnyArray]
    names: Sequence[str] | None
    margin: Float64Array | None = None


@dataclass(frozen=True)
class HowToTrain:
    """What `fit` adds to the parameters: what is called between rounds, and where the rows start."""

    watcher: Watcher
    rate: Callable[[int], float] | None = None
    peek: Peek | None = None
    base_margin: Float64Array | None = None
    earlier: Mapping[PartyName, ModelShare] | None = None


class Federated(Fitted):
    """An estimator that trains a federation on tables in this process.

    `kinds.Classifier` and `kinds.Regressor` implement labels and predictions; `vertical.Vertical` and
    `horizontal.Horizontal` implement how the data is partitioned.
    """

    _setting: ClassVar[Setting]
    _shows_progress: ClassVar[bool]  # whether the learning rate can change, and the model be saved, during training

    # --- labels -----------------------------------------------------------------------------------------

    @abstractmethod
    def _find_classes(self, y: AnyArray) -> AnyArray | None:
        """Validate training labels and return their classes; None for regression."""

    @abstractmethod
    def _class_weights(self, y: AnyArray) -> Float64Array | None:
        """The weight of each row by its class; None without class weights."""

    @abstractmethod
    def _predicted(self, margin: Float64Array) -> Float64Array:
        """Predictions of margins (K, rows), as metrics use them: probabilities, or values of a regression."""

    @abstractmethod
    def _encode_labels(self, y: AnyArray, classes: AnyArray | None) -> Float64Array:
        """Labels as the floats that training uses."""

    @abstractmethod
    def _objective_name(self, classes: AnyArray | None) -> str:
        """The name of the loss; for a callable, that of the objective it replaces."""

    # --- partitioning -----------------------------------------------------------------------------------

    @abstractmethod
    def _read(self, X: Any, y: Any, sample_weight: Any, base_margin: Any) -> PartitionedData:
        """Read the arguments of `fit`. Rows of weight 0 are dropped."""

    @abstractmethod
    def _read_new(self, X: Any, y: Any, base_margin: Any, trained: PartitionedData) -> PartitionedData:
        """Read validation rows for the parties of `trained`."""

    @abstractmethod
    def _train(
        self,
        tables: Tables,
        held_out: Mapping[PartyName, BoolArray] | None,
        config: TrainingConfig,
        classes: AnyArray | None,
        how: HowToTrain,
    ) -> Simulation:
        """Train on tables with labels; `held_out` marks the validation rows."""

    # --- public methods ---------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        eval_set: EvalSet | Sequence[EvalSet] | None = None,
        *,
        verbose: bool | int | None = False,
        xgb_model: Federated | str | Path | None = None,
        base_margin: Any = None,
        base_margin_eval_set: Sequence[Any] | None = None,
        **others: Any,
    ) -> Self:
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
        eval_set : tuple (X, y), or list or tuple of such tuples, default=None
            Validation samples, in the same form as X and y. They give the learning curves of `evals_result` and are
            required for early stopping, which uses the last set and the last metric.
        verbose : bool, int or None, default=False
            Whether to print the metric of the last evaluation set, every `verbose` rounds. On a terminal a progress bar
            with the time that is left is shown too.
        xgb_model : estimator, str or Path, default=None
            A fitted estimator of this kind, or a folder that `save` wrote, to which this training adds `n_estimators`
            rounds. Protocol, parties, columns, loss and classes must be the same. Sampling starts anew: set another
            `random_state` if rows or columns are sampled.
        base_margin : array-like of shape (n_samples,) or (n_samples, n_classes), default=None
            The margins from which the rows start, instead of `base_score`. They belong to the active party, and the
            model does not hold them: give `base_margin` to `predict` too.
        base_margin_eval_set : sequence of array-like, default=None
            The margins of the evaluation sets; zero if they are not given.
        **others
            Arguments of XGBoost's `fit` that do not exist here; each raises an error that says what to use.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        VeilBoostError
            If the input or a parameter is invalid. Such errors are also `ValueError`.
        """
        refuse_arguments("fit", others, FIT_ARGUMENTS)
        sets, callbacks = self._check_call(eval_set), self._check_callbacks()
        earlier = self._earlier(xgb_model)
        margins = _margins_of_sets(base_margin_eval_set, len(sets))
        if earlier is not None or base_margin is not None or base_margin_eval_set is not None:
            check_start(protocol_named(self.protocol), TrainingConfig(options=dict(self.options or {})))
        data = self._read(X, y, sample_weight, base_margin)
        if earlier is None:
            classes = self._find_classes(np.concatenate(list(data.targets.values())))
        else:
            classes = getattr(earlier, "classes_", None)
        tables = {
            name: with_frequent_categories(with_seen_categories(table), self.max_categories)
            for name, table in data.tables.items()
        }
        if earlier is not None:
            tables = {name: with_columns_of(earlier._share_of(name), table) for name, table in tables.items()}
        for name, target in data.targets.items():
            values = self._encode_labels(target, classes)
            tables[name] = replace(tables[name], label=values, label_classes=class_names(classes))
        tables = self._with_class_weights(tables, data.targets)
        trained, held_out = replace(data, tables=tables), None
        validation = [
            self._validation(trained, classes, each, margin) for each, margin in zip(sets, margins, strict=True)
        ]
        start = data.margin
        if validation:
            tables, held_out = _followed(tables, validation[-1].tables)
            start = _start_of_both(start, validation[-1], sum(map(len, data.targets.values())))
        tables = with_constraints(tables, self.monotone_constraints, self.interaction_constraints, data.names)
        spec, rows = protocol_named(self.protocol), max(table.rows for table in trained.tables.values())
        config = self._config(classes)
        done = 0 if earlier is None else earlier.best_iteration_ + 1
        if self.warm_start and earlier is not None and xgb_model is None:
            config = self._added_rounds(spec.settled(config), done)
        rounds = spec.completed(config, rows).n_estimators
        last = set_name(max(len(sets) - 1, 0))
        model = TrainingModel(config.learning_rate, done, fixed_rate=not self._shows_progress)
        runner = CallbackRunner(callbacks, model, last, rounds)
        runner.begin()
        with round_output(verbose, rounds, last) as shown:
            how = HowToTrain(
                watcher=lambda result: bool(shown(result)) | runner.watch(result),
                rate=runner.rate if callbacks and self._shows_progress else None,
                peek=runner.peek if callbacks and self._shows_progress else None,
                base_margin=start,
                earlier=None if earlier is None else earlier.shares_,
            )
            simulation = self._train(tables, held_out, config, classes, how)
        runner.end()
        if model.best_iteration is not None:
            simulation = simulation.first(model.best_iteration + 1)
        driver_share = simulation.outcome.share
        # The server of a horizontal job has no table; its share is the full model.
        has_table = simulation.driver in simulation.shares
        self._adopt(simulation.shares if has_table else {driver_share.party: driver_share}, data.names, classes)
        self.simulation_, self._rounds_before = simulation, done
        self.evals_result_ = self._curves(simulation, validation)
        return self

    # --- reading input ----------------------------------------------------------------------------------

    def _check_call(self, eval_set: object) -> list[EvalSet]:
        """Check what `TrainingConfig` does not, and return the evaluation sets."""
        spec, own = protocol_named(self.protocol), type(self).__name__
        if spec.setting != self._setting:
            kind = own.removeprefix(self._setting.capitalize())
            raise UnknownProtocol(
                f"{spec.name} is a {spec.setting} protocol, and {own} is for {self._setting} ones",
                f"use {spec.setting.capitalize()}{kind}, or another protocol",
            )
        thread_count(self.n_jobs)
        check_count("max_categories", self.max_categories)
        sets = eval_sets(eval_set)
        if not sets and self.early_stopping_rounds is not None:
            raise UnsupportedCombination("early_stopping_rounds needs validation rows", "give fit an eval_set")
        return sets

    def _with_class_weights(self, tables: Tables, targets: Mapping[PartyName, AnyArray]) -> Tables:
        """The tables with sample weights multiplied by those of their classes."""
        found = self._class_weights(np.concatenate(list(targets.values())))
        if found is None:
            return tables
        parts = np.split(found, np.cumsum([len(target) for target in targets.values()])[:-1])
        weighted = dict(tables)
        for name, part in zip(targets, parts, strict=True):
            own = tables[name].weight
            weighted[name] = replace(tables[name], weight=part if own is None else own * part)
        return weighted

    def _check_callbacks(self) -> tuple[Any, ...]:
        """The callbacks. One that may end training needs a protocol that supports early stopping."""
        callbacks = check_callbacks(self.callbacks)
        if any(not getattr(each, "observes", False) for each in callbacks):
            try:
                options = dict(self.options or {})
                check_config(protocol_named(self.protocol), TrainingConfig(options=options, early_stopping_rounds=1))
            except UnsupportedCombination as error:
                raise UnsupportedCombination(
                    f"a callback may end training, or change it by what it sees: {error.what}",
                    "use callbacks that only observe, as EvaluationMonitor and TrainingCheckPoint of "
                    "veilboost.callback, or another protocol",
                ) from None
        return callbacks

    def _earlier(self, xgb_model: Federated | str | Path | None) -> Federated | None:
        """The fitted estimator that is continued, if any."""
        if xgb_model is None:
            return self if self.warm_start and self.__sklearn_is_fitted__() else None
        found = type(self).load(xgb_model) if isinstance(xgb_model, str | Path) else xgb_model
        if type(found) is not type(self):
            raise InvalidParameter(
                f"xgb_model is {type(xgb_model).__name__}, not {type(self).__name__}",
                f"give a fitted {type(self).__name__}, or a folder that its save wrote",
            )
        check_is_fitted(found)
        return found

    def _share_of(self, party: PartyName) -> ModelShare:
        """The model share of a party. Raises if the model has no such party."""
        if party not in self.shares_:
            raise ForeignColumns(f"the earlier model has no party {party}", "continue it with the same parties")
        return self.shares_[party]

    def _added_rounds(self, config: TrainingConfig, done: int) -> TrainingConfig:
        if config.n_estimators <= done:
            raise InvalidParameter(
                f"warm_start: the model has {done} rounds already, and n_estimators is {config.n_estimators}",
                f"set n_estimators to {done + 1} or more, or warm_start to False",
            )
        return replace(config, n_estimators=config.n_estimators - done)

    def _validation(
        self, trained: PartitionedData, classes: AnyArray | None, eval_set: EvalSet, base_margin: Any
    ) -> PartitionedData:
        """Each party's validation rows with their labels, in the categories of the training rows."""
        new = self._read_new(*eval_set, base_margin, trained)
        tables: Tables = {}
        for name, table in new.tables.items():
            known = name in new.targets
            rows = replace(table, label=self._encode_labels(new.targets[name], classes)) if known else table
            tables[name] = with_categories_of(rows, trained.tables[name])
        return replace(new, tables=tables)

    def _curves(self, simulation: Simulation, validation: Sequence[PartitionedData]) -> Curves:
        """Every metric on every evaluation set."""
        metrics, curves = Metrics.of(self.eval_metric), Curves()
        objective = "custom" if callable(self.objective) else self._joined.skeleton.objective
        for number, data in enumerate(validation):
            during = metrics.by_training and number == len(validation) - 1
            others = Metrics(metrics.every[:-1]) if during else metrics
            found = curves[set_name(number)] = dict[str, list[float]]()
            if others.every:
                rows, y = evaluation_rows(data.tables, self.shares_)
                start = 0.0 if data.margin is None else data.margin - self._joined.skeleton.base_margin[:, None]
                staged = islice(self._joined.staged_margins(rows), self._rounds_before, None)
                stages = [self._predicted(margin + start) for margin in staged]
                found |= others.measure(stages, y, objective, simulation.metric, self._joined.skeleton.config)
            if during:
                curve = [each.validation for each in simulation.history if each.validation is not None]
                found |= {simulation.metric: curve}
        return curves

    def _config(self, classes: AnyArray | None) -> TrainingConfig:
        names = set(TrainingConfig.names()).difference(CONSTRAINTS)  # which the tables have
        given = {name: getattr(self, name) for name in names if hasattr(self, name)}
        values = {name: value for name, value in given.items() if value is not None}  # None: the default, as in XGBoost
        metric = Metrics.of(self.eval_metric).trained(self.early_stopping_rounds is not None)
        return TrainingConfig.from_dict(values | {"objective": self._objective_name(classes), "eval_metric": metric})

    def _open_matrix(self, X: Any, y: Any) -> tuple[Any, list[str], AnyArray]:
        """Validate one matrix with scikit-learn; return it as a frame, its column names and its labels."""
        refuse_matrix(X)
        if is_frame(X):
            names_of(X)  # before scikit-learn reads them
        matrix, target = validate_fit(self, X, y, frame=is_frame(X))
        if is_frame(matrix):
            return matrix, names_of(matrix), target
        names = [f"x{at}" for at in range(matrix.shape[1])]
        return frame_of_matrix(matrix, names), names, target

    def _open_new_matrix(self, X: Any, names: Sequence[str]) -> Any:
        """Validate new rows. A frame with other names is read by position, and scikit-learn warns or raises."""
        refuse_matrix(X)
        as_frame = is_frame(X) and names_of(X) == list(names)
        checked = validate_predict(self, X, frame=as_frame)
        return checked if as_frame else frame_of_matrix(checked, names)


def _margins_of_sets(given: Sequence[Any] | None, sets: int) -> Sequence[Any]:
    if given is None:
        return (None,) * sets
    if len(given) != sets:
        raise RowsDiffer(
            f"there are {sets} evaluation sets, and base_margin_eval_set has {len(given)} arrays", "give one per set"
        )
    return given


def _start_of_both(start: Float64Array | None, validation: PartitionedData, rows: int) -> Float64Array | None:
    """Where the training rows start, followed by the validation rows; zero for those without a given margin."""
    if start is None and validation.margin is None:
        return None
    known = next(each for each in (start, validation.margin) if each is not None)
    held_out = sum(map(len, validation.targets.values()))
    both = (start, rows), (validation.margin, held_out)
    return np.hstack([np.zeros((len(known), count)) if each is None else each for each, count in both])


def _followed(tables: Tables, validation: Tables) -> tuple[Tables, dict[PartyName, BoolArray]]:
    """Each party's table followed by its validation rows, and a mask of these rows."""
    both = {
        name: table.followed_by(validation[name]) if name in validation else table for name, table in tables.items()
    }
    return both, {name: np.arange(table.rows) >= tables[name].rows for name, table in both.items()}


def class_names(classes: AnyArray | None) -> tuple[str, ...] | None:
    return None if classes is None else tuple(str(name) for name in classes)
