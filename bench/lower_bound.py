"""Epsilon from below: of `sealed` at the trees and depth that it chooses itself, of `secagg`, and of broken twins.

python bench/lower_bound.py [--repeats 2000] [--twins 200] [--only labels features cuts records] [--eps 1] [--delta 0.1]

--repeats: runs on each of two neighbouring tables, as calibrated; --twins: the same for each twin of
`tests/sealed_twins.py`. A third of the noise takes --repeats runs to show. A budget that is spent twice takes many
more, so it is measured with one tree of depth 1, in ten times as many runs. Runs of records (`secagg`) are drawn at
once, so there are ten times as many, at the delta of `record_lower_bound`; twins of `tests/secagg_twins.py`.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import pytest

from common import arguments, note, report
from veilboost.audit.lower_bound import DELTA, LowerBound, feature_lower_bound, label_lower_bound
from veilboost.audit.record_bound import record_lower_bound

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import sealed_twins
import secagg_twins

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
RECORDS: dict[str, sealed_twins.Twin | None] = {
    CALIBRATED: None,
    "noise divided by the number of participants": secagg_twins.divided_by_participants,
    "noise in the wrong unit": secagg_twins.wrong_unit,
}
SMALL: dict[str, dict[str, sealed_twins.Twin | None]] = {
    "labels": {CALIBRATED: None, "a budget that is spent twice": sealed_twins.spent_twice}
}


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(repeats=2000)
    parser.add_argument("--twins", type=int, default=200, help="runs of each twin on each table")
    parser.add_argument("--only", nargs="*", default=[*BOUNDS, "records"], choices=[*BOUNDS, "records"])
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

    if "records" in given.only:
        for name, twin in RECORDS.items():
            with pytest.MonkeyPatch.context() as patch:
                if twin is not None:
                    twin(patch)
                found = record_lower_bound(given.eps, 10 * given.repeats)
            rows.append({**found.to_dict(), "twin": name})
            note(f"records   {name:40s} {found.repeats} runs, delta {found.delta}: {found.epsilon:.3f}")
    for of in (each for each in given.only if each in BOUNDS):
        for name, twin in TWINS[of].items():
            measure(of, name, twin, given.repeats if name == THIRD else given.twins)
        measure(of, CALIBRATED, None, given.repeats)
        for name, one in SMALL.get(of, {}).items():
            measure(of, name, one, 10 * given.repeats, trees=1, depth=1)
    report({"benchmark": "lower_bound", "rows": rows})


if __name__ == "__main__":
    main()
