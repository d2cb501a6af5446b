"""Epsilon of `sealed` from below at the trees and depth that it chooses itself, and that of its broken twins.

python bench/lower_bound.py [--repeats 2000] [--twins 200] [--only labels features cuts] [--eps 1] [--delta 0.1]

--repeats: runs on each of two neighbouring tables, as calibrated; --twins: the same for each twin of
`tests/sealed_twins.py`. A third of the noise takes --repeats runs to show. A budget that is spent twice takes many
more, so it is measured with one tree of depth 1, in ten times as many runs.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import pytest

from common import arguments, note, report
from veilboost.audit.lower_bound import DELTA, LowerBound, feature_lower_bound, label_lower_bound

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import sealed_twins

BOUNDS = {
    "labels": label_lower_bound,
    "features": feature_lower_bound,
    "cuts": partial(feature_lower_bound, cuts_move=True),
}
CALIBRATED, THIRD = "as calibrated", "noise a third"
LITTLE = {THIRD: sealed_twins.little_noise(3), "noise a thirtieth": sealed_twins.little_noise(30)}
ALWAYS = {"noise of one draw for all trees": sealed_twins.reused, "noise from a seed": sealed_twins.seeded}
TWINS: dict[str, dict[str, sealed_twins.Twin]] = {
    "labels": {
        **LITTLE,
        "selection without noise": sealed_twins.best_wins,
        "selection without noise below the root": sealed_twins.best_wins_below,
        "selections that are not in the budget": sealed_twins.unbooked,
        **ALWAYS,
    },
    "features": {**LITTLE, "no noise below the root": sealed_twins.bare_below, **ALWAYS},
    "cuts": {},
}
SMALL: dict[str, dict[str, sealed_twins.Twin | None]] = {
    "labels": {CALIBRATED: None, "a budget that is spent twice": sealed_twins.spent_twice}
}


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(repeats=2000)
    parser.add_argument("--twins", type=int, default=200, help="runs of each twin on each table")
    parser.add_argument("--only", nargs="*", default=list(BOUNDS), choices=list(BOUNDS))
    parser.add_argument("--eps", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=DELTA)
    given = parser.parse_args()
    rows: list[dict[str, object]] = []

    def measure(of: str, name: str, twin: sealed_twins.Twin | None, repeats: int, **size: int) -> None:
        began = time.perf_counter()
        with pytest.MonkeyPatch.context() as patch:
            if twin is not None:
                twin(patch)
            found: LowerBound = BOUNDS[of](given.eps, repeats, delta=given.delta, **size)
        seconds = time.perf_counter() - began
        rows.append({**found.to_dict(), "of": of, "twin": name, **size, "seconds": seconds})
        note(f"{of:9s} {name:40s} {size or 'default size'} {repeats} runs: {found.epsilon:.3f}, {seconds:.0f} s")

    for of in given.only:
        for name, twin in TWINS[of].items():
            measure(of, name, twin, given.repeats if name == THIRD else given.twins)
        measure(of, CALIBRATED, None, given.repeats)
        for name, one in SMALL.get(of, {}).items():
            measure(of, name, one, 10 * given.repeats, trees=1, depth=1)
    report({"benchmark": "lower_bound", "rows": rows})


if __name__ == "__main__":
    main()
