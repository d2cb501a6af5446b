"""What a federation is measured against: XGBoost with all data in one hand."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost.boost.metrics import Metric
from veilboost.boost.objective import Objective
from veilboost.config import TrainingConfig
from veilboost.experiment.problem import Problem, Tables, labels
from veilboost.model.part import Part
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

_EVERY_CATEGORY = 1 << 20  # more than any column has


@dataclass(frozen=True)
class Baseline:
    """Predictions for the test rows; seconds where they were measured."""

    prediction: Float64Array
    fit_seconds: float
    seconds_per_tree: float


def central_xgboost(
    problem: Problem,
    parts: Mapping[PartyName, Part],
    config: TrainingConfig,
    objective: Objective,
    metric: Metric,
    threads: int,
) -> Baseline | None:
    """XGBoost's `hist` on all columns in one hand; None where it is not installed, or has no such sampling on a CPU.

    `parts` tell how categories became codes, so that both see the same numbers.
    """
    if config.sampling == "goss":
        return None
    try:
        xgboost: Any = importlib.import_module("xgboost")
    except ModuleNotFoundError:
        return None
    began = time.perf_counter()
    fit = None if problem.held_out is None else ~problem.held_out
    types = [
        "q" if info.categories is None or config.categories == "ordinal" else "c"
        for part in parts.values()
        for info in part.columns
    ]
    about = {"feature_types": types, "enable_categorical": True, "nthread": threads}
    label, weight = _labels(problem, fit)
    data = xgboost.QuantileDMatrix(
        _matrix(problem.train, parts, fit), label, weight=weight, max_bin=config.max_bin, **about
    )
    watched = None
    if problem.held_out is not None:
        label, weight = _labels(problem, problem.held_out)
        watched = xgboost.DMatrix(_matrix(problem.train, parts, problem.held_out), label, weight=weight, **about)
    booster = xgboost.Booster(
        xgboost_parameters(config, objective, threads), [data] if watched is None else [data, watched]
    )
    seconds, rounds, best_round, best_quality = 0.0, 0, 0, -np.inf
    for number in range(config.n_estimators):
        start = time.perf_counter()
        booster.update(data, number)
        seconds += time.perf_counter() - start
        rounds += 1
        if watched is None or config.early_stopping_rounds is None:
            continue
        value = metric.function(label, _prediction(booster, watched), weight)
        quality = value if metric.higher_is_better else -value
        if quality > best_quality:
            best_round, best_quality = number, quality
        elif number - best_round >= config.early_stopping_rounds:
            break
    if watched is not None and config.early_stopping_rounds is not None:
        booster = booster[: best_round + 1]
    fit_seconds = time.perf_counter() - began
    test = xgboost.DMatrix(_matrix(problem.test, parts, None), **about)
    return Baseline(_prediction(booster, test), fit_seconds, seconds / rounds)


def xgboost_parameters(config: TrainingConfig, objective: Objective, threads: int) -> dict[str, Any]:
    """Our parameters under XGBoost's names, which are mostly the same.

    First-order boosting, equal-width bins and local cuts have no counterpart: there XGBoost does what it always does.
    """
    shared = (
        "max_depth", "learning_rate", "max_bin", "reg_lambda", "reg_alpha", "gamma", "min_child_weight",
        "subsample", "colsample_bytree", "scale_pos_weight", "seed",
    )  # fmt: skip
    given = {name: getattr(config, name) for name in shared}
    if config.base_score is not None:
        given["base_score"] = config.base_score
    if objective.trees_per_round > 1:
        given["num_class"] = objective.trees_per_round
    if objective.name != "binary":
        del given["scale_pos_weight"]
    return given | {
        "objective": objective.xgboost_name,
        "max_delta_step": objective.max_delta_step,
        "tree_method": "hist",
        "max_cat_to_onehot": _EVERY_CATEGORY if config.categories == "onehot" else 1,
        "max_cat_threshold": _EVERY_CATEGORY,
        "nthread": threads,
        "verbosity": 0,
    }


def _labels(problem: Problem, rows: BoolArray | None) -> tuple[AnyArray, AnyArray | None]:
    label, weight = labels(problem.train, problem.active), problem.train[problem.active].weight
    if rows is None:
        return label, weight
    return label[rows], None if weight is None else weight[rows]


def _matrix(tables: Tables, parts: Mapping[PartyName, Part], rows: BoolArray | None) -> AnyArray:
    columns = [values for name, part in parts.items() for values in part.encode(tables[name].columns)]
    return np.column_stack(columns if rows is None else [values[rows] for values in columns])


def _prediction(booster: Any, data: Any) -> Float64Array:
    return np.asarray(booster.predict(data), dtype=np.float64)
