"""VeilBoost: gradient-boosted trees on vertically and horizontally partitioned data of several organisations."""
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [
    "Federation",
    "HorizontalClassifier",
    "HorizontalRegressor",
    "TrainingConfig",
    "VeilBoostError",
    "VerticalClassifier",
    "VerticalRegressor",
    "__version__",
    "export_xgboost",
    "join",
    "list_datasets",
    "load_dataset",
    "load_model",
    "load_table",
    "make_demo_data",
    "save_model",
    "simulate_training",
]

# The module of each public name. Names are imported on first use, so that `import veilboost` is fast; type checkers
# read `__init__.pyi`, which import-linter ignores.
_MODULES = {
    "Federation": "veilboost.party.federation",
    "HorizontalClassifier": "veilboost.estimators.horizontal",
    "HorizontalRegressor": "veilboost.estimators.horizontal",
    "TrainingConfig": "veilboost.config",
    "VeilBoostError": "veilboost.errors",
    "VerticalClassifier": "veilboost.estimators.vertical",
    "VerticalRegressor": "veilboost.estimators.vertical",
    "export_xgboost": "veilboost.model.export",
    "join": "veilboost.model.joined",
    "list_datasets": "veilboost.data.datasets",
    "load_dataset": "veilboost.data.datasets",
    "load_model": "veilboost.model.store",
    "load_table": "veilboost.data.load",
    "make_demo_data": "veilboost.data.datasets",
    "save_model": "veilboost.model.store",
    "simulate_training": "veilboost.party.simulation",
}

# What to use instead of a name of the package `xgboost`.
_XGBOOST = {
    "Booster": "use a fitted estimator, or export_xgboost and xgboost.Booster",
    "DMatrix": "give the matrix or frame and the labels to fit of an estimator",
    "QuantileDMatrix": "give the matrix or frame and the labels to fit of an estimator",
    "XGBClassifier": "use VerticalClassifier or HorizontalClassifier",
    "XGBRanker": "there are no ranking objectives",
    "XGBRegressor": "use VerticalRegressor or HorizontalRegressor",
    "cv": "use sklearn.model_selection.cross_validate with an estimator",
    "plot_importance": "use export_xgboost, and plot the file with xgboost",
    "plot_tree": "use export_xgboost, and plot the file with xgboost",
    "train": "use fit of an estimator",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("veilboost")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    else:
        fix = f"; {_XGBOOST[name]}" if name in _XGBOOST else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{fix}")
    globals()[name] = value  # later lookups do not call this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
