"""How good the models are beside central XGBoost `hist`: same parameters, same rows, same test rows.

    python bench/quality.py --data DIR

Columns are divided between two parties. The bounds of the project: AUC within 0.003, multiclass error within 0.5
points, all other losses within 0.3 %, always in the direction "not worse than".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xgboost

from common import among, arguments, as_matrix, hold_out, load, note, report, xgboost_parameters
from veilboost.boost.metrics import metric_named
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.party.simulation import simulate_prediction, simulate_training

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
    ("california_housing", "poisson", "rmse"),
    ("california_housing", "gamma", "gamma_deviance"),
    ("california_housing", "tweedie", "tweedie_deviance"),
]
UNIT = {"california_housing": 1e5}  # labels are divided by it: the default of huber_slope is 1


def holds(metric: str, ours: float, theirs: float) -> bool:
    if metric == "auc":
        return ours >= theirs - 0.003
    return ours <= theirs + 0.005 if metric == "merror" else ours <= theirs * 1.003


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--trees", type=int, default=60)
    parser.add_argument("--max-bin", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=3, help="splits to average over")
    parser.add_argument("--only", nargs="*", help="data sets; default: all")
    parser.add_argument("--objectives", nargs="*", help="default: all")
    options = parser.parse_args()
    rows = []
    for name, objective, metric_name in SETS:
        if name not in (options.only or [name]) or objective not in (options.objectives or [objective]):
            continue
        if not (options.data / f"{name}.parquet").exists():
            note(f"skipped {name}: not in {options.data}")
            continue
        table = load(options.data, name)
        label = table.label / UNIT.get(name, 1.0)
        table = replace(table, label=label)
        classes = int(table.label.max()) + 1 if objective == "multiclass" else 2
        config = TrainingConfig(
            objective=objective,
            n_estimators=options.trees,
            max_bin=options.max_bin,
            learning_rate=options.learning_rate,
        )
        metric = metric_named(metric_name, config)
        values = []
        for seed in range(options.seeds):
            train, test = hold_out(table.rows, seed=seed)
            run = simulate_training(among(table.take(train), 2), "party0", "plain", config, threads=2)
            margin = simulate_prediction(run.shares, "party0", among(table.take(test), 2))
            ours = metric.function(table.label[test], make_objective(objective, classes=classes).predict(margin), None)

            matrix = as_matrix(table.columns)
            kinds = ["q" if column.categories is None else "c" for column in table.columns]
            fitted = xgboost.QuantileDMatrix(
                matrix[train], table.label[train], max_bin=options.max_bin, feature_types=kinds, enable_categorical=True
            )
            booster = xgboost.train(xgboost_parameters(config, 2, classes), fitted, options.trees)
            fresh = xgboost.DMatrix(matrix[test], feature_types=kinds, enable_categorical=True)
            prediction = booster.predict(fresh).astype(np.float64)
            values.append((ours, metric.function(table.label[test], prediction, None)))
        ours, theirs = np.mean(values, axis=0).tolist()
        rows.append(
            {
                "data": name,
                "objective": objective,
                "metric": metric_name,
                "veilboost": ours,
                "xgboost": theirs,
                "difference": ours - theirs,
                "within_bound": holds(metric_name, ours, theirs),
            }
        )
        verdict = "ok" if rows[-1]["within_bound"] else "WORSE"
        note(f"{name:20s} {objective:15s} {metric_name:16s} ours {ours:.5f}  xgboost {theirs:.5f}  {verdict}")
    settings = {key: getattr(options, key) for key in ("trees", "max_bin", "learning_rate", "seeds")}
    report({"benchmark": "quality", "settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
