"""AUC of `secagg` with noise on its sums, over epsilon, for one record and the whole job.

    python bench/sums_noise.py [--data FOLDER] [--sets adult ...] [--participants 5 20] [--draws 5]

A fifth of the rows is held out. The rest is shuffled and partitioned evenly; every drawing has its own noise and its
own partition. Epsilon None is the model without noise. `colluding` is 1, and delta 1e-5. JSON on stdout: the mean AUC
and its standard deviation over the drawings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from common import arguments, hold_out, load, note, report
from veilboost.boost.metrics import metric_named
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.party.simulation import SERVER, simulate_training

SETS = ("adult", "bank", "default_credit", "give_credit")
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def auc(
    train: PartyTable, test: PartyTable, config: TrainingConfig, participants: int, rng: np.random.Generator
) -> float:
    parts = np.array_split(rng.permutation(train.rows), participants)
    tables = {f"p{at}": train.take(np.sort(rows)) for at, rows in enumerate(parts)}
    model = simulate_training(tables, SERVER, "secagg", config).model
    return metric_named("auc").function(test.label, model.margins(test.columns)[0], None)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--participants", nargs="+", type=int, default=(5, 20))
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--bins", type=int, default=16)
    options = parser.parse_args()
    size = {"n_estimators": options.trees, "max_depth": options.depth, "max_bin": options.bins}
    found: list[dict[str, Any]] = []
    for name in options.sets:
        table = load(options.data, name)
        train, test = (table.take(rows) for rows in hold_out(table.rows))
        for participants in options.participants:
            for epsilon in (None, *options.epsilons):
                noise = {} if epsilon is None else {"epsilon": epsilon}
                config = TrainingConfig(objective="binary", **size, options=noise)
                draws = options.draws if epsilon is not None else 1
                values = [auc(train, test, config, participants, np.random.default_rng(at)) for at in range(draws)]
                about = {"set": name, "participants": participants, "epsilon": epsilon, "draws": draws}
                found.append(about | {"auc": float(np.mean(values)), "sd": float(np.std(values))})
                note(f"{name}, {participants} participants, epsilon {epsilon}: AUC {np.mean(values):.4f}")
    report({"size": size, "results": found})


if __name__ == "__main__":
    main()
