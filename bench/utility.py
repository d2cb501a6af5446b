"""AUC against the privacy budget: how much each noise costs, under three readings of the same epsilon.

    python bench/utility.py --data DIR --out FOLDER [--quick]

What MaskedXGBoost's figure 4 plots, with 60 trees of depth 6. The paper does not say what its epsilon adds up over, so
each budget is interpreted in three ways:

per release   every release has the whole budget (Theorem 2 with k = 1)
composed      the budget covers all k = trees x depth releases, fresh noise at every level as published
label         the budget covers the whole job for a change of one person's label: noise once per tree

MaskedXGBoost runs by the law of its noisy sums, without masks: the same outcome, sooner (eps_PP = 1, W = 1).
Leaf weights of `ldp` come from true gradients, as published, so that even random splits learn something; with private
leaves they come from the noisy ones, and the label budget covers all that is released. `federboost` has no budget of
the active party: its epsilon is the passive party's, of every value by itself ("per release") or of a person's whole
record ("record"). The active party holds the labels and, unless --active-columns says otherwise, nothing else: every
split goes through the noise. Test rows are predicted by the whole model.
`elxgb` is as published but for the first tree's encryption (ring-LWE, the same sums): its epsilon is that of one number
of one person in one tree. Each claimed epsilon is reported with the true one: of everything that passive parties
receive about one label in the whole job. It is infinite if exact sums, leaf weights made of true gradients, or splits
chosen by true labels reveal labels without noise; `counted` is the ledger's total of the noisy releases alone.
Results: FOLDER/utility.csv (a line per run, written as they come), FOLDER/utility.svg, and JSON on stdout.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from blocks import replace_block
from common import arguments, hold_out, load, note, report
from papers.experiments import experiments_at_hand
from papers.noise import DELTA, NO_EPSILON, NON_PRIVATE, RANDOM_SPLITS, Method, federboost, ldp, masked
from papers.tables import ACTIVE, PASSIVE, divided, sampled
from veilboost.boost.metrics import metric_named
from veilboost.config import DEFAULTS, TrainingConfig
from veilboost.data import PartyTable
from veilboost.party.simulation import simulate_prediction, simulate_training
from veilboost.privacy.accountant import compose
from veilboost.privacy.event import Adjacency
from veilboost.report.plots import line_chart, sheet

SETS = ("adult", "bank", "default_credit", "give_credit")
EPSILONS = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)
BASELINES = (NON_PRIVATE, RANDOM_SPLITS)


def private_leaves(epsilon: float, trees: int, depth: int) -> Method:
    """XGBoost-LDP whose whole job keeps to the budget: leaf weights too come from the noisy gradients."""
    curve = ldp("gaussian", "second", "label", epsilon, trees, depth)
    # Nothing else may depend on labels; the limit keeps weights of small, noisy leaves in bounds.
    settings = {"min_child_weight": 0.0, "base_score": 0.5, "max_delta_step": 1.0}
    options = {**curve.options, "private_leaves": True}
    return replace(curve, name="XGBoost-LDP, private leaves", options=options, settings=settings)


def sealed(epsilon: float, epsilon_features: float) -> Method:
    """All that is released costs `epsilon` together, at delta 1e-5; trees, depth and rate are the protocol's choice."""
    options = {"eps": epsilon, "delta": 1e-5, "eps_features": epsilon_features}
    own = {name: getattr(DEFAULTS, name) for name in ("n_estimators", "max_depth", "learning_rate")}
    name = f"sealed, eps_features {epsilon_features:g}" if epsilon_features else "sealed"
    return Method(name, "label", "sealed", options, own)


def elxgb(epsilon: float) -> Method:
    """ELXGB's claim is for one number; the first tree under ring-LWE gives the same sums as under Paillier, sooner."""
    return Method("ELXGB", "per release", "elxgb", {"backend": "lattice", "epsilon": epsilon})


def curves(epsilon: float, trees: int, depth: int, columns: int) -> Iterator[Method]:
    for reading in ("per release", "composed", "label"):
        yield masked(reading, epsilon)
        yield ldp("gaussian", "second", reading, epsilon, trees, depth)
        yield ldp("laplace", "first", reading, epsilon, trees, depth)
        yield ldp("duchi", "first", reading, epsilon, trees, depth)
    yield private_leaves(epsilon, trees, depth)
    yield sealed(epsilon, 0.0)
    yield sealed(epsilon, 8.0)
    yield elxgb(epsilon)
    yield federboost("per release", epsilon, columns)
    yield federboost("record", epsilon, columns)


@dataclass(frozen=True)
class Measured:
    """One run: its AUC, and what the ledger counts of noisy releases of a label.

    The ledger of `ldp` takes a label to move its gradient and hessian through their whole range, so it counts more than
    the reading "label", which is calibrated to what a flipped label really moves.
    """

    auc: float
    counted: float


def measured(table: PartyTable, own: float, seed: int, curve: Method, config: TrainingConfig) -> Measured:
    train, test = hold_out(table.rows, seed=seed)
    with experiments_at_hand():
        run = simulate_training(divided(table.take(train), own), ACTIVE, curve.protocol, config, threads=2)
    margin = simulate_prediction(run.shares, ACTIVE, divided(table.take(test), own))
    auc = metric_named("auc").function(table.label[test], margin[0], None)
    events = [event for event in run.accounts[ACTIVE].events if event.adjacency is Adjacency.LABEL]
    cost = compose(events, 1e-5 if curve.protocol == "sealed" else DELTA, convolve=False)
    return Measured(auc, cost.noised)


def true_epsilon(method: str, epsilon: float) -> float:
    """Of one label in the whole job: as claimed where splits, leaf weights and all else is paid for, else infinite."""
    return epsilon if method.startswith("sealed") or method.endswith("private leaves") else math.inf


def earlier(file: Path) -> list[dict[str, Any]]:
    """The rows of a part that was run before."""
    with file.open(newline="") as opened:
        found = csv.DictReader(opened)
        return [
            {
                **row,
                "epsilon": float(row["epsilon"]),
                "auc": float(row["auc"]),
                "true": true_epsilon(row["method"], float(row["epsilon"])),
            }
            for row in found
        ]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table per data set: a line per method and reading, a column per epsilon."""
    lines: list[str] = []
    for data in dict.fromkeys(row["data"] for row in rows):
        shown = " | ".join(f"{epsilon:g}" for epsilon in EPSILONS)
        lines += [f"### {data}", "", f"| method | epsilon is | true label epsilon | {shown} |"]
        lines.append("|---|---|---|" + "---|" * len(EPSILONS))
        own = {(row["method"], row["reading"], row["epsilon"]): row["auc"] for row in rows if row["data"] == data}
        for method, reading in dict.fromkeys((method, reading) for method, reading, _ in own):
            cells = [own.get((method, reading, 0.0 if reading == "none" else e)) for e in EPSILONS]
            shown = " | ".join("" if cell is None else f"{cell:.3f}" for cell in cells)
            claim = "not there" if reading == "none" else reading
            true = "infinite" if math.isinf(true_epsilon(method, 1.0)) else "as claimed"
            lines.append(f"| {method} | {claim} | {true} | {shown} |")
        lines.append("")
    return "\n".join(lines)


def draw(rows: Sequence[Mapping[str, Any]]) -> str:
    """AUC over epsilon, a chart per data set and reading; lines are broken where the true epsilon is infinite."""
    readings = list(dict.fromkeys(row["reading"] for row in rows if row["reading"] != NO_EPSILON))
    broken = {name for name in (row["method"] for row in rows) if math.isinf(true_epsilon(name, 1.0))}
    # Those that are not broken first: the first eight lines of a chart are drawn through.
    names = sorted(dict.fromkeys(row["method"] for row in rows), key=lambda name: name in broken)
    levels = {row["method"] for row in rows if row["reading"] == NO_EPSILON}
    charts: list[str] = []
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        across = {row["method"]: row["auc"] for row in own if row["method"] in levels}
        for reading in readings:
            lines: dict[str, list[tuple[float, float]]] = {}
            for row in sorted((row for row in own if row["reading"] == reading), key=lambda row: row["epsilon"]):
                lines.setdefault(row["method"], []).append((row["epsilon"], row["auc"]))
            look = {"log_x": True, "dashed": broken, "across": across, "order": names, "width": 380, "height": 300}
            title, reach = f"{data}, {reading}", [row["auc"] for row in own]
            charts.append(line_chart(title, "epsilon", "AUC", lines, reach=reach, **look))
    return sheet("AUC against epsilon", charts, len(readings), names=names, dashed=broken, across=levels)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--trees", type=int, default=60)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--max-bin", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=1, help="divisions into training and test rows")
    parser.add_argument("--drawings", type=int, default=1, help="runs on each division; each draws new noise")
    parser.add_argument("--active-columns", type=float, default=0.0, help="share of columns at the active party")
    parser.add_argument("--only", nargs="*", default=list(SETS))
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--methods", nargs="*", default=[], help="only methods whose name contains one of these")
    parser.add_argument("--out", type=Path, default=Path("utility"))
    parser.add_argument("--also", nargs="*", type=Path, default=[], help="utility.csv of other parts of the same run")
    parser.add_argument("--markdown", metavar="PAGE", type=Path, help="write the table into this page")
    parser.add_argument("--quick", action="store_true", help="10 trees of depth 4 on 4000 rows, two epsilons")
    given = parser.parse_args()
    epsilons = given.epsilons
    if given.quick:
        given.trees, given.depth, epsilons = 10, 4, (1.0, 8.0)
    config = TrainingConfig(
        objective="binary",
        n_estimators=given.trees,
        max_depth=given.depth,
        max_bin=given.max_bin,
        learning_rate=given.learning_rate,
        categories="ordinal",
    )
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with open(given.out / "utility.csv", "w", newline="") as file:
        writer = csv.DictWriter(
            file,
            ["data", "method", "reading", "epsilon", "auc", "deviation", "counted", "true", "options", "settings"],
        )
        writer.writeheader()
        for name in given.only:
            if not (given.data / f"{name}.parquet").exists():
                note(f"skipped {name}: not in {given.data}")
                continue
            table = load(given.data, name)
            if given.quick:
                table = sampled(table, 4000)
            columns = len(divided(table, given.active_columns)[PASSIVE].columns)
            planned = [(0.0, curve) for curve in BASELINES]
            planned += [(e, curve) for e in epsilons for curve in curves(e, given.trees, given.depth, columns)]
            for epsilon, curve in planned:
                if given.methods and not any(part in curve.name for part in given.methods):
                    continue
                job = replace(config, options=curve.options, **curve.settings)
                found = [
                    measured(table, given.active_columns, seed, curve, job)
                    for seed in range(given.seeds)
                    for _ in range(given.drawings if epsilon else 1)
                ]
                row = {
                    "data": name,
                    "method": curve.name,
                    "reading": curve.reading,
                    "epsilon": epsilon,
                    "auc": float(np.mean([each.auc for each in found])),
                    "deviation": float(np.std([each.auc for each in found])),
                    "counted": found[0].counted,
                    "true": true_epsilon(curve.name, epsilon),
                    "options": dict(curve.options),
                    "settings": dict(curve.settings),
                }
                rows.append(row)
                writer.writerow(row)
                file.flush()
                found_auc = f"AUC {row['auc']:.4f} +- {row['deviation']:.4f}"
                note(f"{name:15s} {curve.name:28s} {curve.reading:12s} eps {epsilon:<4g} {found_auc}")
    every = [*(row for part in given.also for row in earlier(part)), *rows]
    rows = list({(row["data"], row["method"], row["reading"], row["epsilon"]): row for row in every}.values())
    (given.out / "utility.svg").write_text(draw(rows))
    if given.markdown is not None:
        replace_block(given.markdown, "utility", markdown(rows))
    settings = {
        key: getattr(given, key)
        for key in ("trees", "depth", "max_bin", "learning_rate", "seeds", "drawings", "quick", "active_columns")
    }
    finite = [{**row, "true": None if math.isinf(row["true"]) else row["true"]} for row in rows]  # JSON has no infinity
    report({"benchmark": "utility", "settings": settings, "delta": DELTA, "rows": finite})


if __name__ == "__main__":
    main()
