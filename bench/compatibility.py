"""Writes docs/reference/compatibility.md: what of XGBoost's and scikit-learn's estimators works here.

python bench/compatibility.py            write the page
python bench/compatibility.py --check    write nothing; exit 1 if the page is not up to date

Names are read from the installed libraries. A name that the estimators do not have must have its fix in
`veilboost.estimators.foreign_names`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from xgboost import XGBClassifier, XGBRegressor

from veilboost import VerticalClassifier, VerticalRegressor
from veilboost.estimators.foreign_names import ATTRIBUTES, FIT_ARGUMENTS, PARAMETERS, SAME

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "compatibility.md"
CODE = "[VB-1002](errors/VB-1002.md)"
Row = tuple[str, str, str]

# Names that exist on both sides, and what is different here.
DIFFERENT: Mapping[str, str] = {
    "base_score": "one number",
    "base_margin": "vertical protocols, except `sealed`",
    "base_margin_eval_set": "vertical protocols, except `sealed`",
    "callbacks": "XGBoost's and those of `veilboost.callback`; they see the last metric on the last set",
    "n_estimators": "default 100; in `sealed` chosen for its budget",
    "warm_start": "vertical protocols, except `sealed`",
    "xgb_model": "a fitted estimator or a folder of `save`; the same rounds as one training, unless rows are sampled",
    "eval_metric": "metrics by XGBoost's names as far as they exist; early stopping needs a name as the last one; the "
    "default for two classes is `auc`",
    "X": "also a table per party; not sparse",
    "eval_set": "also one pair `(X, y)`",
    "evals_result": "metrics other than the last one on the last set are measured up to the best round",
    "feature_importances_": "the share of the total gain",
    "feature_names_in_": "also for tables per party, in the order of the parties",
    "fit": "also takes a table per party",
    "interaction_constraints": "lists of names or positions; not as text",
    "learning_rate": "default .3",
    "max_cat_to_onehot": "default 1: all columns of categories are split by sets",
    "monotone_constraints": "a mapping of names or positions, or a list; not as text",
    "max_bin": "default 64",
    "max_depth": "default 6, at most 16; there are no unlimited trees",
    "n_jobs": "default 1; threads of each party; -1 means one per core",
    "objective": "XGBoost's names and shorter ones; a function `(y_true, y_pred)`, which starts from the margin 0",
    "predict": "`iteration_range` begins at 0; no `validate_features`: names are always checked",
    "predict_proba": "`iteration_range` begins at 0; no `validate_features`: names are always checked",
    "random_state": "a whole number, None means 0; noise, masks and keys never depend on it",
    "verbose": "only the last evaluation set is printed; a progress bar on a terminal",
}
# Parts of the libraries' own machinery, the same for every scikit-learn estimator.
MACHINERY = {
    "get_metadata_routing",
    "set_fit_request",
    "set_params",
    "get_params",
    "set_predict_proba_request",
    "set_predict_request",
    "set_score_request",
}
PAIRS: tuple[tuple[type, type], ...] = (
    (XGBClassifier, VerticalClassifier),
    (XGBRegressor, VerticalRegressor),
    (HistGradientBoostingClassifier, VerticalClassifier),
    (HistGradientBoostingRegressor, VerticalRegressor),
)


def parameters(cls: type) -> set[str]:
    return set(cls().get_params())


def fit_arguments(cls: Any) -> set[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(cls.fit).parameters.values()
    return {item.name for item in found if item.kind not in kinds} - {"self"}


def fitted(cls: Any) -> Any:
    X = np.arange(80.0).reshape(20, 4)
    y = np.arange(20) % 2
    if cls in (XGBClassifier, XGBRegressor, VerticalClassifier, VerticalRegressor):
        return cls(n_estimators=2, early_stopping_rounds=1).fit(X, y, eval_set=[(X, y)], verbose=False)
    return cls(max_iter=2).fit(X, y)


def members(cls: type) -> tuple[set[str], set[str]]:
    """The public methods, and the public attributes of a fitted estimator."""
    estimator = fitted(cls)
    names = {name for name in dir(estimator) if not name.startswith("_")} - parameters(cls)
    methods = {name for name in names if inspect.isroutine(getattr(cls, name, None))}
    return methods - MACHINERY, {name for name in names - methods if name.endswith("_") or name.startswith("best_")}


def rows(theirs: Iterable[str], own: Iterable[str], fixes: Mapping[str, str]) -> list[Row]:
    """A row for each name of the other library. A name without a fix is an error."""
    known, found = set(own), []
    for name in sorted(theirs):
        if name in known:
            status = "with a difference" if name in DIFFERENT else "supported"
            found.append((f"`{name}`", status, DIFFERENT.get(name, "")))
        elif fixes is PARAMETERS and (name in SAME or name == "missing"):
            only = " or ".join(f"`{value!r}`" for value in SAME.get(name, (float("nan"),)))
            found.append(
                (f"`{name}`", "with a difference", f"only {only}, which changes nothing; else {CODE}: {fixes[name]}")
            )
        else:
            found.append((f"`{name}`", f"refused: {CODE}", fixes[name]))
    return found


def sections(theirs: type, own: type) -> list[tuple[str, list[Row]]]:
    their_methods, their_attributes = members(theirs)
    methods, attributes = members(own)
    name = theirs.__name__
    return [
        (f"Parameters of `{name}`", rows(parameters(theirs), parameters(own), PARAMETERS)),
        (f"Arguments of `{name}.fit`", rows(fit_arguments(theirs), fit_arguments(own), FIT_ARGUMENTS)),
        (f"Methods of `{name}`", rows(their_methods, methods, ATTRIBUTES)),
        (f"Attributes of a fitted `{name}`", rows(their_attributes, attributes, ATTRIBUTES)),
    ]


def page() -> str:
    lines = [
        "# Compatibility",
        "<!-- Made by bench/compatibility.py. Do not edit: change the source it is made from. -->",
        "This page is for users of XGBoost and of scikit-learn's histogram gradient boosting. It lists every "
        "parameter, argument, method and attribute of their estimators, and whether `VerticalClassifier` and "
        "`VerticalRegressor` have it. A parameter that is None has its default, so `get_params()` of an XGBoost "
        "estimator can be given to ours. A name that is refused raises an error with the fix in the last column. An "
        "attribute that is refused raises `AttributeError`, so `hasattr` is false.",
    ]
    for theirs, own in PAIRS:
        found = sections(theirs, own)
        every = [row for _, part in found for row in part]
        refused = sum(row[1].startswith("refused") for row in every)
        lines.append(f"## `{theirs.__module__.split('.')[0]}.{theirs.__name__}` and `{own.__name__}`")
        lines.append(f"{len(every) - refused} of {len(every)} names work.")
        for title, part in found:
            table = ["| name | status | difference or fix |", "|---|---|---|"]
            table += [f"| {' | '.join(row)} |" for row in part]
            lines += [f"### {title}", "\n".join(table)]
    return "\n\n".join(lines) + "\n"


def main() -> None:
    made = page()
    if "--check" not in sys.argv:
        PAGE.write_text(made)
    elif not PAGE.exists() or PAGE.read_text() != made:
        sys.exit(f"{PAGE} is not up to date: run python bench/compatibility.py")


if __name__ == "__main__":
    main()
