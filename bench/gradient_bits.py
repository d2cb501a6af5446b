"""How many bits of a gradient a model needs: quality at several `gradient_bits`, same rows, same test rows.

    python bench/gradient_bits.py [--bits 8 10 12 16 20] [--seeds 5] [--only adult bank]

Fewer bits make ciphertexts smaller. The difference to the most bits is paired: each seed draws another held-out part,
which all bits share. `spread` is the standard deviation of these differences over the seeds.
"""

from __future__ import annotations

import numpy as np

from common import among, arguments, hold_out, load, note, report
from quality import SETS
from veilboost.boost.metrics import metric_named
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.party.simulation import simulate_prediction, simulate_training

# Objective and metric of each data set; that of `quality`'s first line, if it has several.
CHOSEN = {name: (objective, metric) for name, objective, metric in reversed(SETS)}
CHOSEN |= dict.fromkeys(("nomao", "higgs46k", "susy40k", "diabetes"), ("binary", "auc"))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 10, 12, 16, 20])
    parser.add_argument("--trees", type=int, default=60)
    parser.add_argument("--max-bin", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(CHOSEN))
    options = parser.parse_args()
    found = []
    for name in options.only:
        objective, metric_name = CHOSEN[name]
        metric, table = metric_named(metric_name), load(options.data, name)
        predict = make_objective(
            objective, classes=int(table.label.max()) + 1 if objective == "multiclass" else 2
        ).predict
        values = np.empty((options.seeds, len(options.bits)))
        for seed in range(options.seeds):
            train, test = hold_out(table.rows, seed=seed)
            fitted, fresh = among(table.take(train), 2), among(table.take(test), 2)
            for at, bits in enumerate(options.bits):
                config = TrainingConfig(
                    objective=objective, n_estimators=options.trees, max_bin=options.max_bin, gradient_bits=bits
                )
                shares = simulate_training(fitted, "party0", "plain", config, threads=1).shares
                margin = simulate_prediction(shares, "party0", fresh)
                values[seed, at] = metric.function(table.label[test], predict(margin), None)
        difference = values - values[:, -1:]
        row = {
            "data": name,
            "metric": metric_name,
            "value": dict(zip(options.bits, values.mean(0).tolist(), strict=True)),
            "difference": dict(zip(options.bits, difference.mean(0).tolist(), strict=True)),
            "spread": dict(zip(options.bits, difference.std(0, ddof=1).tolist(), strict=True)),
        }
        found.append(row)
        shown = "  ".join(
            f"{bits}: {row['difference'][bits]:+.5f} ({row['spread'][bits]:.5f})" for bits in options.bits
        )
        note(f"{name:20s} {metric_name:7s} {row['value'][options.bits[-1]]:.5f}  {shown}")
    settings = {key: getattr(options, key) for key in ("bits", "trees", "max_bin", "seeds")}
    report({"benchmark": "gradient_bits", "settings": settings, "rows": found})


if __name__ == "__main__":
    main()
