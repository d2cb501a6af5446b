"""VeilBoost: gradient-boosted trees across organisations that may not show each other their data."""
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [
    "Federation",
    "HorizontalClassifier",
    "HorizontalRegressor",
    "VeilBoostError",
    "VerticalClassifier",
    "VerticalRegressor",
    "__version__",
    "export_xgboost",
    "join",
    "load_dataset",
    "load_model",
    "load_table",
    "make_demo_data",
    "save_model",
]

# Where each public name lives. They load when they are first used, so that `import veilboost` is quick; type checkers
# find them in `__init__.pyi`, where import-linter does not take them for imports.
_HOMES = {
    "Federation": "veilboost.party.federation",
    "HorizontalClassifier": "veilboost.estimators.horizontal",
    "HorizontalRegressor": "veilboost.estimators.horizontal",
    "VeilBoostError": "veilboost.errors",
    "VerticalClassifier": "veilboost.estimators.vertical",
    "VerticalRegressor": "veilboost.estimators.vertical",
    "export_xgboost": "veilboost.model.export",
    "join": "veilboost.model.joined",
    "load_dataset": "veilboost.data.datasets",
    "load_model": "veilboost.model.store",
    "load_table": "veilboost.data.load",
    "make_demo_data": "veilboost.data.datasets",
    "save_model": "veilboost.model.store",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = import_module("importlib.metadata").version("veilboost")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # found directly from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
