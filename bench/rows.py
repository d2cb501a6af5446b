"""How `lattice` grows with the rows: seconds per tree and peak memory from ten thousand to a million.

    python bench/rows.py [--rows 10000 100000 1000000] [--out DIR] [--plot FILE] [--markdown PAGE]

Made-up data; the passive party has 20 columns, the active one the labels and four; depth 6, 32 bins, two threads. Every
size runs in a process of its own, both parties in it, so its peak memory is that of both together. Writes `rows.csv`
into DIR and a plot to FILE; --markdown writes the table into a page between its marks.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from blocks import replace_block, table
from common import note, report
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.party.simulation import simulate_training
from veilboost.report.plots import line_chart
from veilboost.types import Column

ACTIVE_COLUMNS, PASSIVE_COLUMNS = 4, 20
FIELDS = ("rows", "seconds_per_tree", "cpu_seconds_per_tree", "megabytes_per_tree", "peak_rss_mb")


def _train(rows: int, trees: int, depth: int, protocol: str, threads: int, pipe: Any) -> None:
    rng = np.random.default_rng(0)
    columns = [
        Column(f"x{k}", rng.normal(size=rows).astype(np.float32)) for k in range(ACTIVE_COLUMNS + PASSIVE_COLUMNS)
    ]
    signal = sum(column.values * weight for column, weight in zip(columns, rng.normal(size=len(columns)), strict=True))
    y = (signal + rng.normal(size=rows) * 2 > 0).astype(np.float64)
    ids = np.arange(rows)
    tables = {
        "active": PartyTable(ids, tuple(columns[:ACTIVE_COLUMNS]), y),
        "passive": PartyTable(ids, tuple(columns[ACTIVE_COLUMNS:])),
    }
    config = TrainingConfig(objective="binary", n_estimators=trees + 1, max_depth=depth, max_bin=32)
    stamps: list[tuple[float, float]] = []
    run = simulate_training(
        tables,
        "active",
        protocol,
        config,
        threads=threads,
        watcher=lambda _: stamps.append((time.perf_counter(), time.process_time())),
    )
    wall, cpu = (np.array(stamps[-1]) - np.array(stamps[0])) / trees  # the first tree has keys and bins in it
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    megabytes = run.bytes_sent / config.n_estimators / 1e6
    pipe.send(dict(zip(FIELDS, (rows, float(wall), float(cpu), megabytes, peak), strict=True)))


def measure(*settings: Any) -> dict[str, float]:
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_train, args=(*settings, send))
    process.start()
    send.close()
    result = receive.recv()
    process.join()
    return result


def growth(points: list[dict[str, float]], name: str) -> float | None:
    """The exponent k of the fit: name grows like rows^k."""
    if len(points) < 2:
        return None
    logs = [(math.log(point["rows"]), math.log(point[name])) for point in points]
    return float(np.polyfit(*zip(*logs, strict=True), 1)[0])


def draw(points: list[dict[str, float]], exponents: dict[str, float | None]) -> str:
    """Wall and CPU seconds over rows, all logarithmic, each beside linear growth that ends at its last point."""
    lines: dict[str, list[tuple[float, float]]] = {}
    linear: dict[str, list[tuple[float, float]]] = {}
    for name, label in (("seconds_per_tree", "wall"), ("cpu_seconds_per_tree", "CPU")):
        fitted, last = exponents[name], points[-1]
        grows = "" if fitted is None else f", grows like rows^{fitted:.2f}"
        lines[label + grows] = [(point["rows"], point[name]) for point in points]
        ends = (points[0]["rows"], last["rows"])
        linear[f"{label}, if it grew like rows"] = [(rows, last[name] * rows / last["rows"]) for rows in ends]
    title = "Seconds per tree over rows"
    return line_chart(title, "rows", "seconds per tree", lines | linear, log_x=True, log_y=True, dashed=linear)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--trees", type=int, default=3, help="trees that are timed, after a first one that is not")
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--protocol", default="lattice")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("rows"))
    parser.add_argument("--plot", metavar="FILE", type=Path, help="SVG; by default rows.svg in the folder of --out")
    parser.add_argument("--markdown", metavar="PAGE", type=Path, help="write the table into this page")
    parser.add_argument("--quick", action="store_true", help="2,000 and 8,000 rows, one tree of depth 3")
    choice = parser.parse_args()
    if choice.quick:
        choice.rows, choice.trees, choice.depth = [2000, 8000], 1, 3
    points = []
    for rows in sorted(choice.rows):
        points.append(measure(rows, choice.trees, choice.depth, choice.protocol, choice.threads))
        note(", ".join(f"{name} {value:.4g}" for name, value in points[-1].items()))
    exponents = {name: growth(points, name) for name in FIELDS[1:]}
    choice.out.mkdir(parents=True, exist_ok=True)
    with open(choice.out / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(points)
    (choice.plot or choice.out / "rows.svg").write_text(draw(points, exponents))
    if choice.markdown is not None:
        head = ("rows", "seconds per tree", "CPU seconds per tree", "MB per tree", "peak memory, MB")
        cells = [(f"{point['rows']:,}", *(f"{point[name]:.3g}" for name in FIELDS[1:-1])) for point in points]
        lines = [(*cell, f"{point['peak_rss_mb']:.0f}") for cell, point in zip(cells, points, strict=True)]
        wall, cpu = exponents["seconds_per_tree"], exponents["cpu_seconds_per_tree"]
        text = (
            ""
            if wall is None
            else f"\n\nFitted growth: wall seconds like rows^{wall:.2f}, CPU seconds like rows^{cpu:.2f}."
        )
        replace_block(choice.markdown, "rows", table(head, lines) + text)
    settings = {"trees": choice.trees, "depth": choice.depth, "threads": choice.threads, "protocol": choice.protocol}
    report({"benchmark": "rows", "settings": settings, "points": points, "growth_exponents": exponents})


if __name__ == "__main__":
    main()
