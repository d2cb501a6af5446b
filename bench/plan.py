"""How far `veilboost plan` is from what runs take: seconds, bytes and memory over two decades of rows.

    python bench/plan.py [--protocols plain,lattice] [--quick] [--markdown PAGE]

Each protocol is calibrated by small runs here. Then jobs of a shape that was not among them are trained, each in a
process of its own, all parties one after the other: seconds are the processor's (of short runs the best of three or
more), memory is the peak of the process, and `together` and `memory_together` of a prediction are what they are
compared with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from blocks import replace_block, table
from common import note, report
from papers.measure import peak_rss_mb
from veilboost.plan.calibrate import calibrate, measure
from veilboost.plan.predict import Calibration, cost_of, predict
from veilboost.protocols.cost import PlannedJob
from veilboost.protocols.registry import all_protocols, protocol_named

DECADES = (1, 10, 100)  # times the rows of the smallest run that calibrates
QUICK = (1, 10)
BOUND = 0.3
WHAT = ("seconds", "bytes", "memory_mb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocols", default=",".join(all_protocols()), help="names, with commas")
    parser.add_argument("--quick", action="store_true", help="one decade of rows")
    parser.add_argument("--markdown", metavar="PAGE", type=Path, help="write the table into this page")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(trained(given.one[0], int(given.one[1]))))
        return
    names = given.protocols.split(",")
    calibrating: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    for name in names:
        began = time.process_time()
        costs = calibrate(name)  # right before its runs: the machine's pace changes
        calibrating[name] = time.process_time() - began
        note(f"{name}: calibrated in {calibrating[name]:.1f} s")
        rows += compared(name, costs, QUICK if given.quick else DECADES)
    worst = {name: {what: _worst(rows, name, what) for what in WHAT} for name in names}
    if given.markdown is not None:
        replace_block(given.markdown, "plan", as_markdown(rows, calibrating))
    report(
        {
            "bench": "plan",
            "rows": rows,
            "worst": worst,
            "within": {name: max(errors.values()) <= BOUND for name, errors in worst.items()},
            "calibration_seconds": calibrating,
        }
    )


def compared(protocol: str, costs: Calibration, decades: tuple[int, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for decade in decades:
        job = held_out_job(protocol, (cost_of(protocol).scale or 1000) * decade)
        made = predict(protocol, job, costs)
        predicted = (made.together, made.bytes_sent + made.bytes_answered, made.memory_together / 1e6)
        command = [sys.executable, __file__, "--one", protocol, str(job.rows)]
        measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        row: dict[str, Any] = {"protocol": protocol, "rows": job.rows}
        for what, expected in zip(WHAT, predicted, strict=True):
            row |= {what: measured[what], f"{what}_predicted": expected, f"{what}_error": expected / measured[what] - 1}
        found.append(row)
        note(f"  {job.rows} rows: " + ", ".join(_shown(row, what) for what in WHAT))
    return found


def trained(protocol: str, rows: int) -> dict[str, float]:
    """What a job takes here; of short ones the best of three or more: the first includes what is done once, and others
    may be disturbed."""
    job = held_out_job(protocol, rows)
    runs = [measure(protocol, job, seed=1)]
    memory = peak_rss_mb() * 1.024**2  # it counts in powers of two
    while runs[0].seconds < 4 and (len(runs) < 3 or sum(run.seconds for run in runs) < 1):
        runs.append(measure(protocol, job, seed=1))
    best = min(runs, key=lambda run: run.seconds)
    return {"seconds": best.seconds, "bytes": best.sent + best.answered, "memory_mb": memory}


def held_out_job(protocol: str, rows: int) -> PlannedJob:
    if protocol_named(protocol).setting == "horizontal":
        return PlannedJob(rows, (7,), trees=5, depth=1 if protocol == "mal" else 4, bins=16, participants=5)
    return PlannedJob(rows, (5, 8), trees=4, depth=5, bins=32)


def as_markdown(rows: list[dict[str, Any]], calibrating: dict[str, float]) -> str:
    head = ("protocol", "rows", "seconds, predicted / measured", "off by", "MB sent", "off by", "memory, MB", "off by")
    lines = [
        (
            f"`{row['protocol']}`", f"{row['rows']:,}", _pair(row, "seconds"), _error(row, "seconds"),
            _pair(row, "bytes", 1e-6), _error(row, "bytes"), _pair(row, "memory_mb"), _error(row, "memory_mb"),
        )
        for row in rows
    ]  # fmt: skip
    listed = ", ".join(f"`{name}` {seconds:.0f}" for name, seconds in calibrating.items())
    return f"{table(head, lines)}\n\nSeconds to calibrate: {listed}."


def _pair(row: dict[str, Any], what: str, unit: float = 1.0) -> str:
    return f"{_figure(unit * row[f'{what}_predicted'])} / {_figure(unit * row[what])}"


def _figure(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _error(row: dict[str, Any], what: str) -> str:
    error = row[f"{what}_error"]
    return f"**{error:+.0%}**" if abs(error) > BOUND else f"{error:+.0%}"


def _shown(row: dict[str, Any], what: str) -> str:
    return f"{what} {row[what]:.4g}, predicted {row[f'{what}_predicted']:.4g} ({row[f'{what}_error']:+.0%})"


def _worst(rows: list[dict[str, Any]], protocol: str, what: str) -> float:
    return max(abs(row[f"{what}_error"]) for row in rows if row["protocol"] == protocol)


if __name__ == "__main__":
    main()
