"""How far `veilboost plan` is from what runs take: predictions beside measured runs over two decades of rows.

    python bench/plan.py [--protocols plain,lattice] [--quick]

Each protocol is calibrated by small runs, then jobs of shapes that were not among them are trained in this process, all
parties one after the other: seconds are the processor's, and `together` of a prediction is what they are compared with.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from common import note, report
from veilboost.plan.calibrate import calibrate
from veilboost.plan.job import PlannedJob
from veilboost.plan.measure import Measured, measure
from veilboost.plan.predict import predict
from veilboost.plan.spending import ALL, HORIZONTAL

DECADES = (1, 10, 100)  # times the rows of the smallest run that calibrates
QUICK = (1, 10)
BOUND = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocols", default=",".join(ALL), help="names, with commas")
    parser.add_argument("--quick", action="store_true", help="one decade of rows")
    given = parser.parse_args()
    rows = [row for name in given.protocols.split(",") for row in errors_of(name, QUICK if given.quick else DECADES)]
    worst = {
        name: max(abs(row["error"]) for row in rows if row["protocol"] == name) for name in given.protocols.split(",")
    }
    report({"bench": "plan", "rows": rows, "worst": worst, "within": {n: e <= BOUND for n, e in worst.items()}})


def errors_of(protocol: str, decades: tuple[int, ...]) -> list[dict[str, Any]]:
    began = time.process_time()
    costs = calibrate(protocol)
    seconds = time.process_time() - began
    note(f"{protocol}: calibrated in {seconds:.1f} s")
    found: list[dict[str, Any]] = []
    for decade in decades:
        job = held_out_job(protocol, ALL[protocol].scale * decade)
        measured, expected = best_of(protocol, job), predict(protocol, job, costs)
        crossed, told = measured.sent + measured.answered, expected.bytes_sent + expected.bytes_answered
        found.append(
            {
                "protocol": protocol,
                "rows": job.rows,
                "seconds": measured.seconds,
                "predicted": expected.together,
                "error": expected.together / measured.seconds - 1,
                "bytes": crossed,
                "bytes_error": told / crossed - 1,
                "calibration_seconds": seconds,
            }
        )
        note(
            f"  {job.rows} rows: {measured.seconds:.3f} s, predicted {expected.together:.3f} s, "
            f"bytes off by {told / crossed - 1:+.0%}"
        )
    return found


def best_of(protocol: str, job: PlannedJob) -> Measured:
    """One run; of short ones the best of three, since their first includes what is done once."""
    runs = [measure(protocol, job, seed=1)]
    while runs[0].seconds < 1 and len(runs) < 3:
        runs.append(measure(protocol, job, seed=1))
    return min(runs, key=lambda run: run.seconds)


def held_out_job(protocol: str, rows: int) -> PlannedJob:
    if protocol in HORIZONTAL:
        return PlannedJob(rows, (7,), trees=5, depth=1 if protocol == "mal" else 4, bins=16, participants=5)
    return PlannedJob(rows, (5, 8), trees=4, depth=5, bins=32)


if __name__ == "__main__":
    main()
