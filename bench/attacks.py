"""What the attacks on `masked`, `smm1` and `smm2` get, in one table: the papers' attackers beside those that work.

    python bench/attacks.py [--data DIR] [--sets adult,default_credit] [--seeds 3] [--rows 0]

Two parties, two trees of depth 2. `masked` has the noise of its paper's setting (60 trees of depth 6, epsilon 4 by
advanced composition over all 360 steps: each step here gets the same share of it as there), and W = 3 with
Theorem 3's budget raised to where it speaks of three vectors. Values are means over seeds with Student's interval.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from common import among, arguments, load, note, report
from veilboost.audit.attacks import (
    masked_network,
    masked_projection,
    masked_sphere,
    masked_split_likelihood,
    masked_split_search,
    masked_stacking,
    smm1_columns,
    smm1_labels,
    smm2_columns,
    smm2_program,
    smm2_stacking,
)
from veilboost.audit.result import Finding
from veilboost.audit.runner import attack, combined
from veilboost.audit.sources import views_of_simulation
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.party.simulation import simulate_training
from veilboost.protocols.masked.options import PAPER_SETTING, MaskedOptions
from veilboost.protocols.masked.theorem2 import advanced_share

SETS = ("adult", "default_credit")
ON_LABELS = (masked_network, masked_projection, masked_sphere, masked_stacking)
ON_FEATURES = (masked_split_search, masked_split_likelihood)
PAPER_BUDGET = MaskedOptions()
SHARE = advanced_share(
    PAPER_BUDGET.eps_ap, PAPER_BUDGET.delta_ap, PAPER_SETTING["n_estimators"] * PAPER_SETTING["max_depth"]
)
PRESET = {**PAPER_SETTING["options"], "budget": "release", "eps_ap": SHARE[0], "delta_ap": SHARE[1]}

RUNS: dict[str, tuple[str, dict[str, Any], tuple[Any, ...]]] = {
    "masked, preset": ("masked", PRESET, (*ON_LABELS, *ON_FEATURES)),
    "masked, W=3": ("masked", {**PRESET, "noise_vectors": 3, "eps_pp": 3.0}, (*ON_LABELS, *ON_FEATURES)),
    "smm1": ("smm1", {}, (smm1_columns, smm1_labels)),
    "smm2": ("smm2", {}, (smm2_program, smm2_stacking, smm2_columns)),
}


def attacked(tables: dict[str, PartyTable], protocol: str, config: TrainingConfig, attacks: Any) -> list[Finding]:
    run = simulate_training(tables, "party0", protocol, config, record="payload")
    views, truth = views_of_simulation(run, tables, config)
    sides = {"active": "party0", "passive": "party1"}
    chances = ((how, views[sides[how.ADVERSARY]], truth, sides[how.VICTIM]) for how in attacks)
    found = (attack(*chance, np.random.default_rng(config.seed)) for chance in chances)
    return [finding for finding in found if finding is not None]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", default=",".join(SETS), help="data sets, by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=0, help="take so many rows of each; 0: all")
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "attacks", "seeds": options.seeds}
    for name in options.sets.split(","):
        if not (options.data / f"{name}.parquet").exists():
            note(f"skipped {name}: not in {options.data}")
            continue
        table = load(options.data, name)
        if options.rows:
            table = table.take(np.sort(np.random.default_rng(0).permutation(table.rows)[: options.rows]))
        tables = among(table, 2)
        result[name] = {"rows": table.rows}
        for label, (protocol, own, attacks) in RUNS.items():
            config = TrainingConfig(
                objective="binary", n_estimators=2, max_depth=2, max_bin=32, categories="ordinal", options=own
            )
            seeds = [replace(config, seed=seed) for seed in range(options.seeds)]
            found = combined(attacked(tables, protocol, each, attacks) for each in seeds)
            result[name][label] = [finding.to_dict() for finding in found]
            for finding in found:
                outcome = finding.outcome
                note(
                    f"{name:15} {label:15} {finding.attack:42} {finding.data:9} {outcome.value:.4f} "
                    f"[{outcome.low:.4f}, {outcome.high:.4f}] {finding.verdict}, {finding.seconds:.1f} s"
                )
    report(result)


if __name__ == "__main__":
    main()
