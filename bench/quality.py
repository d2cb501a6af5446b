"""How good the models are beside central XGBoost `hist`: same parameters, same rows, same test rows.

    python bench/quality.py --data DIR

ABOUT explains the columns of its table.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from common import among, arguments, as_matrix, hold_out, load, note, report, xgboost_parameters
from veilboost.boost.bins import propose_cuts
from veilboost.boost.metrics import metric_named
from veilboost.boost.objective import make_objective
from veilboost.config import LEAF_QUANTILE_OBJECTIVES, TrainingConfig
from veilboost.data import PartyTable
from veilboost.data.categories import with_categories
from veilboost.model.export import export_xgboost
from veilboost.model.joined import JoinedModel, join
from veilboost.party.simulation import simulate_prediction, simulate_training
from veilboost.protocols.constraints import constrained, without_constraints

ABOUT = (
    "Columns are divided between two parties, XGBoost has all of them. Means over the seeds, each of which draws other "
    "test rows; `spread` is the standard deviation of the difference over the seeds. `within bound`: AUC not more than "
    "0.003 lower, multiclass error not more than 0.5 points and other losses not more than 0.3 % higher. A difference "
    "of less than two of spread / sqrt(seeds) shows nothing. `exported`: the largest difference between predictions of "
    "a model and of XGBoost with the exported file, relative to the mean prediction. `same bins`: the share of test "
    "rows of one seed for which both systems predict the same (to 0.0001 of the mean prediction) if they have the same "
    "bins, gradients of 30 bits, and categories split one against the rest. It is 1 except for ties: differences come "
    "from the cuts that each system chooses, from the grid of gradients and from the order of categories."
)

SETS = [
    ("adult", "binary", "auc"),
    ("bank", "binary", "auc"),
    ("default_credit", "binary", "auc"),
    ("give_credit", "binary", "auc"),
    ("codrna", "binary", "auc"),
    ("dry_bean", "multiclass", "merror"),
    ("california_housing", "regression", "rmse"),
    ("california_housing", "absolute_error", "mae"),
    ("california_housing", "quantile", "quantile"),
    ("california_housing", "pseudo_huber", "mphe"),
    ("california_housing", "poisson", "poisson_deviance"),
    ("california_housing", "gamma", "gamma_deviance"),
    ("california_housing", "tweedie", "tweedie_deviance"),
]
UNIT = {"california_housing": 1e5}  # labels are divided by it: the default of huber_slope is 1
# Constraints across both parties: what a lender or an appraiser would ask for, and sets that cross the parties.
CONSTRAINED: dict[str, dict[str, Any]] = {
    "default_credit": {"monotone_constraints": {"LIMIT_BAL": -1, "PAY_0": 1, "PAY_2": 1, "PAY_AMT1": -1}},
    "give_credit": {
        "monotone_constraints": {"NumberOfTimes90DaysLate": 1, "NumberOfTime30-59DaysPastDueNotWorse": 1, "age": -1}
    },
    "california_housing": {
        "monotone_constraints": {"median_income": 1, "population": -1},
        "interaction_constraints": {"place": ("longitude", "latitude", "median_income"), "rest": ("median_income",)},
    },
}


def holds(metric: str, ours: float, theirs: float) -> bool:
    if metric == "auc":
        return ours >= theirs - 0.003
    return ours <= theirs + 0.005 if metric == "merror" else ours <= theirs * 1.003


def of_xgboost(
    config: TrainingConfig, train: PartyTable, test: PartyTable, classes: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    names, kinds = list(train.names), ["q" if column.categories is None else "c" for column in train.columns]
    common: dict[str, Any] = {"feature_names": names, "feature_types": kinds, "enable_categorical": True}
    fitted = xgboost.QuantileDMatrix(as_matrix(train.columns), train.label, max_bin=config.max_bin, **common)
    parameters = xgboost_parameters(config, 2, classes)
    if config.max_cat_to_onehot > 1:
        parameters["max_cat_to_onehot"] = config.max_cat_to_onehot
    if config.monotone_constraints:
        parameters["monotone_constraints"] = dict(config.monotone_constraints)
    if config.interaction_constraints:
        parameters["interaction_constraints"] = list(map(list, config.interaction_constraints.values()))
    booster = xgboost.train(parameters, fitted, config.n_estimators)
    return booster.predict(xgboost.DMatrix(as_matrix(test.columns), **common)).astype(np.float64)


def of_exported(model: JoinedModel, test: PartyTable) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Predictions of XGBoost with the exported model."""
    known = {column.name: column for column in test.columns}
    columns = tuple(
        known[info.name] if info.categories is None else with_categories(known[info.name], info.categories)
        for info in model.columns
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        export_xgboost(model, path)
        booster = xgboost.Booster(model_file=str(path))
    rows = xgboost.DMatrix(
        as_matrix(columns),
        feature_names=booster.feature_names,
        feature_types=booster.feature_types,
        enable_categorical=True,
    )
    return booster.predict(rows).astype(np.float64)


def as_bins(table: PartyTable, train: PartyTable, max_bin: int) -> PartyTable:
    """The table with the numbers of bins instead of the values of its numeric columns."""
    columns = []
    for column, trained in zip(table.columns, train.columns, strict=True):
        values = column.values
        if column.categories is None:
            cuts = propose_cuts(trained.values, None, max_bin, "quantile")
            values = np.where(np.isnan(values), np.nan, np.searchsorted(cuts, values, side="right")).astype(np.float32)
        columns.append(replace(column, values=values))
    return replace(table, columns=tuple(columns))


def of_same_bins(config: TrainingConfig, train: PartyTable, test: PartyTable, classes: int) -> float:
    """The share of test rows for which both systems predict the same with the same bins."""
    train, test = (as_bins(table, train, config.max_bin) for table in (train, test))
    # Every number of a bin gets a bin. XGBoost sorts categories with small hessian sums differently.
    fine = replace(config, max_bin=2 * config.max_bin, gradient_bits=30, max_cat_to_onehot=1000)
    prediction, _ = of_veilboost(fine, train, test, classes)
    theirs = of_xgboost(fine, train, test, classes)
    return float((np.abs(theirs - prediction) <= 1e-4 * np.abs(prediction).mean()).mean())


def of_veilboost(
    config: TrainingConfig, train: PartyTable, test: PartyTable, classes: int
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], JoinedModel]:
    parties = constrained(among(train, 2), config)
    run = simulate_training(parties, "party0", "plain", without_constraints(config), threads=2)
    margin = simulate_prediction(run.shares, "party0", among(test, 2))
    return make_objective(config.objective, classes=classes).predict(margin), join(run.shares)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--trees", type=int, default=60)
    parser.add_argument("--max-bin", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=20, help="splits to average over")
    parser.add_argument("--only", nargs="*", help="data sets; default: all")
    parser.add_argument("--objectives", nargs="*", help="default: all")
    options = parser.parse_args()
    rows = []
    limited = [
        (*each, CONSTRAINED[each[0]])
        for each in SETS
        if each[0] in CONSTRAINED and each[1] not in LEAF_QUANTILE_OBJECTIVES
    ]
    for name, objective, metric_name, limits in [*((*each, {}) for each in SETS), *limited]:
        if name not in (options.only or [name]) or objective not in (options.objectives or [objective]):
            continue
        if not (options.data / f"{name}.parquet").exists():
            note(f"skipped {name}: not in {options.data}")
            continue
        table = load(options.data, name)
        table = replace(table, label=table.label / UNIT.get(name, 1.0))
        classes = int(table.label.max()) + 1 if objective == "multiclass" else 2
        config = TrainingConfig(
            objective=objective,
            n_estimators=options.trees,
            max_bin=options.max_bin,
            learning_rate=options.learning_rate,
            **limits,
        )
        metric = metric_named(metric_name, config)
        values, exported, same_bins = [], 0.0, 0.0
        for seed in range(options.seeds):
            train, test = map(table.take, hold_out(table.rows, seed=seed))
            prediction, model = of_veilboost(config, train, test, classes)
            difference = np.abs(of_exported(model, test) - prediction).max()
            exported = max(exported, float(difference / np.abs(prediction).mean()))
            theirs = of_xgboost(config, train, test, classes)
            if seed == 0:
                same_bins = of_same_bins(config, train, test, classes)
            values.append([metric.function(test.label, found, None) for found in (prediction, theirs)])
        ours, theirs = np.mean(values, axis=0).tolist()
        rows.append(
            {
                "data": name,
                "objective": objective,
                "constraints": ", ".join(limits) or "none",
                "metric": metric_name,
                "veilboost": ours,
                "xgboost": theirs,
                "difference": ours - theirs,
                "spread": float(np.subtract(*np.transpose(values)).std(ddof=1)) if len(values) > 1 else None,
                "within_bound": holds(metric_name, ours, theirs),
                "exported": exported,
                "same_bins": same_bins,
            }
        )
        verdict = "ok" if rows[-1]["within_bound"] else "WORSE"
        note(
            f"{name:20s} {objective:15s} {'constrained' if limits else '':12s} {metric_name:16s} "
            f"ours {ours:.5f}  xgboost {theirs:.5f}  exported {exported:.1e}  "
            f"same bins {same_bins:.5f}  {verdict}"
        )
    settings = {key: getattr(options, key) for key in ("trees", "max_bin", "learning_rate", "seeds")}
    report({"benchmark": "quality", "about": ABOUT, "settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
