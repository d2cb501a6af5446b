"""What the attacks on `masked`, `smm1`, `smm2` and `mal` get: the papers' attackers beside those that work.

    python bench/attacks.py [--data DIR] [--sets adult,default_credit] [--seeds 3] [--rows 0]

Two parties, two trees of depth 2. `masked` has the noise of its paper's setting (60 trees of depth 6, epsilon 4 by
advanced composition over all 360 steps: each step here gets the same share of it as there), and W = 3 with Theorem 3's
budget raised to where it applies to three vectors. What its masks reveal about features adds up over the roots of all
trees, so there all trees are grown, of depth 1 and on a sample of the rows, with the noise that all rows would have: 60
trees and 32 bins as in the paper, then this package's defaults. `mal` runs on the diabetes data as in its paper, ten
participants and 16 buckets, with the guard off, by default, and stricter. Values are means over seeds (of `mal`: over
seeds and participants) with Student's interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from common import among, arguments, load, note, report
from papers.measure import attacked
from papers.tables import sampled
from veilboost.audit.attack import Finding, over_runs
from veilboost.audit.attacks import (
    audit,
    combined,
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
from veilboost.audit.sources import views_of_simulation
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.masked.parameters import PAPER_SETTING, MaskedOptions
from veilboost.protocols.masked.theorems import advanced_share

SETS = ("adult", "default_credit")
ON_LABELS = (masked_network, masked_projection, masked_sphere, masked_stacking)
ON_FEATURES = (masked_split_search, masked_split_likelihood)
SAMPLE = 2_000
PAPER_BUDGET = MaskedOptions()
SHARE = advanced_share(
    PAPER_BUDGET.eps_ap, PAPER_BUDGET.delta_ap, PAPER_SETTING["n_estimators"] * PAPER_SETTING["max_depth"]
)
PRESET = {**PAPER_SETTING["options"], "budget": "release", "eps_ap": SHARE[0], "delta_ap": SHARE[1]}


@dataclass(frozen=True)
class Case:
    """A job and the attacks on it; `sample` limits its rows."""

    protocol: str
    attacks: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)
    trees: int = 2
    depth: int = 2
    bins: int = 32
    sample: int = 0


PARTICIPANTS = 10
MAL_CASES: dict[str, dict[str, Any]] = {
    "mal, guard off": {"guard": "allow"},
    "mal, defaults": {},
    "mal, leverage 0.3": {"max_leverage": 0.3},
}
PRINTED = PAPER_SETTING["options"]
CASES = {
    "masked, preset": Case("masked", ON_LABELS, PRESET),
    "masked, W=3": Case("masked", ON_LABELS, {**PRESET, "noise_vectors": 3, "eps_pp": 3.0}),
    "masked, preset, all roots": Case("masked", ON_FEATURES, PRINTED, PAPER_SETTING["n_estimators"], 1, sample=SAMPLE),
    "masked, defaults, all roots": Case("masked", ON_FEATURES, {}, 100, 1, 64, SAMPLE),
    "smm1": Case("smm1", (smm1_columns, smm1_labels)),
    "smm2": Case("smm2", (smm2_program, smm2_stacking, smm2_columns)),
}


def against_mal(table: PartyTable, seeds: int) -> dict[str, list[Finding]]:
    """The server's attacks on every participant, each attack once."""
    found: dict[str, list[Finding]] = {}
    for label, options in MAL_CASES.items():
        every: list[Finding] = []
        for seed in range(seeds):
            shares = np.array_split(np.random.default_rng(seed).permutation(table.rows), PARTICIPANTS)
            tables = {f"participant{at}": table.take(np.sort(share)) for at, share in enumerate(shares)}
            config = TrainingConfig(objective="binary", n_estimators=2, max_bin=16, random_state=seed, options=options)
            run = simulate_training(tables, SERVER, "mal", config, record="payload")
            every += audit(*views_of_simulation(run, tables), seed=seed)
        names = dict.fromkeys(finding.attack for finding in every)
        found[label] = [over_runs([finding for finding in every if finding.attack == name]) for name in names]
    return found


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
            table = sampled(table, options.rows)
        result[name] = {"rows": table.rows}
        for label, case in CASES.items():
            some, own = table, case.options
            if 0 < case.sample < table.rows:
                some = sampled(table, case.sample)
                own = {**own, "delta_pp": 1.0 / table.rows}
            config = TrainingConfig(
                objective="binary",
                n_estimators=case.trees,
                max_depth=case.depth,
                max_bin=case.bins,
                categories="ordinal",
                options=own,
            )
            seeds = [replace(config, random_state=seed) for seed in range(options.seeds)]
            found = combined(attacked(among(some, 2), case.protocol, each, case.attacks) for each in seeds)
            result[name][label] = [finding.to_dict() for finding in found]
            for finding in found:
                outcome = finding.outcome
                note(
                    f"{name:15} {label:28} {finding.attack:42} {finding.data:9} {outcome.value:.4f} "
                    f"[{outcome.low:.4f}, {outcome.high:.4f}] {finding.verdict}, {finding.seconds:.1f} s"
                )
    if (options.data / "diabetes.parquet").exists():
        result["diabetes"] = {}
        for label, found in against_mal(load(options.data, "diabetes"), options.seeds).items():
            result["diabetes"][label] = [finding.to_dict() for finding in found]
            for finding in found:
                outcome = finding.outcome
                note(
                    f"{'diabetes':15} {label:28} {finding.attack:42} {finding.data:9.9} {outcome.value:.4f} "
                    f"[{outcome.low:.4f}, {outcome.high:.4f}], without the run {outcome.baseline:.4f}"
                )
    report(result)


if __name__ == "__main__":
    main()
