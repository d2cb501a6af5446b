"""How a job grows with the rows, on one machine: seconds per row and tree, memory of the driver and of all processes.

    python bench/scale.py [--rows 1000000 10000000] [--protocols plain lattice] [--engines ray disk local] [--out DIR]
        [--plot FILE] [--markdown PAGE]

Two parties, ten made-up columns each, as folders of parquet files; three trees of depth 6. With the engine ray every
worker reads its shards itself. Each run is a process of its own that is watched from outside, with all processes that
it starts: `driver_mb` is the driver's own memory (anonymous pages), `all_mb` what all hold together, shared pages
counted once; both are peaks. Runs of the same rows and parameters must give the same model. Writes `scale.csv` and
`scale.svg` into DIR.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from blocks import replace_block, table
from common import note, report
from veilboost.report.plots import line_chart

COLUMNS = 10  # of each party
FILE_ROWS = 1 << 18
FIELDS = ("rows", "protocol", "engine", "workers", "trees", "seconds_per_tree", "microseconds_per_row_and_tree",
          "reading_seconds", "driver_mb", "all_mb", "gigabytes_sent", "model_sha256")  # fmt: skip


def write(folder: Path, rows: int) -> None:
    """Both parties' tables, a file at a time."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=2 * COLUMNS)
    for name in ("bank", "shop"):
        (folder / name).mkdir(parents=True)
    for number, first in enumerate(range(0, rows, FILE_ROWS)):
        count = min(FILE_ROWS, rows - first)
        values = rng.normal(size=(2 * COLUMNS, count)).astype(np.float32)
        y = (direction @ values + 2 * rng.normal(size=count) > 0).astype(np.float64)
        for party, name in enumerate(("bank", "shop")):
            own = range(party * COLUMNS, (party + 1) * COLUMNS)
            columns = {f"x{k}": values[k] for k in own} | ({"y": y} if name == "bank" else {})
            parquet.write_table(pa.table(columns), folder / name / f"{number:05}.parquet", compression="none")


def train(folder: Path, protocol: str, engine: str, workers: int, trees: int, depth: int) -> dict[str, Any]:
    """One run, in this process and its workers."""
    from veilboost.config import TrainingConfig
    from veilboost.data.load import load_table
    from veilboost.engine.api import open_engine
    from veilboost.engine.sharded import ShardedEngine
    from veilboost.engine.tables import table_in_place
    from veilboost.model.joined import join
    from veilboost.party.simulation import simulate_training

    config = TrainingConfig(objective="binary", n_estimators=trees, max_depth=depth)
    with open_engine(engine, workers if engine == "ray" else None) as opened:
        began = time.perf_counter()
        labels = {"bank": "y", "shop": None}
        tables = {
            name: table_in_place(opened, folder / name, label=label)
            if isinstance(opened, ShardedEngine)
            else load_table(folder / name, label=label)
            for name, label in labels.items()
        }
        rows = tables["bank"].rows
        read = time.perf_counter() - began
        run = simulate_training(tables, "bank", protocol, config, threads=workers, engine=opened)
        seconds = sum(result.seconds for result in run.history) / trees
        return {
            "rows": rows,
            "protocol": protocol,
            "engine": run.engine,
            "workers": run.workers,
            "trees": trees,
            "seconds_per_tree": seconds,
            "microseconds_per_row_and_tree": seconds / rows * 1e6,
            "reading_seconds": read,
            "gigabytes_sent": run.bytes_sent / 1e9,
            "model_sha256": join(run.shares).sha256(),
        }


def measured(arguments: list[str]) -> dict[str, Any]:
    """The same, watched from outside."""
    child = subprocess.Popen([sys.executable, __file__, "--one", *arguments], stdout=subprocess.PIPE, text=True)
    driver = together = 0.0
    while child.poll() is None:
        family = _family(child.pid)
        together = max(together, sum(_kilobytes(pid, "smaps_rollup", "Pss") for pid in family))
        for _ in range(8):  # what the driver holds for a moment counts too
            driver = max(driver, _kilobytes(child.pid, "status", "RssAnon"))
            time.sleep(0.03)
    output = child.stdout.read() if child.stdout else ""
    if child.returncode:
        raise SystemExit(f"a run failed: {arguments}")
    return json.loads(output.splitlines()[-1]) | {"driver_mb": driver / 1024, "all_mb": together / 1024}


def _family(root: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children[parent].append(int(folder.name))
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def _kilobytes(pid: int, file: str, name: str) -> float:
    try:
        for line in (Path("/proc") / str(pid) / file).read_text().splitlines():
            if line.startswith(f"{name}:"):
                return float(line.split()[1])
    except OSError:
        pass
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--protocols", nargs="+", default=["plain", "lattice"])
    parser.add_argument("--engines", nargs="+", default=["ray", "local"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trees", type=int, default=3)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("scale"))
    parser.add_argument("--plot", metavar="FILE", type=Path, help="SVG; by default scale.svg in the folder of --out")
    parser.add_argument("--markdown", metavar="PAGE", type=Path, help="write the table into this page")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="20,000 and 40,000 rows, one tree of depth 3")
    choice = parser.parse_args()
    if choice.one:
        folder, protocol, engine, workers, trees, depth = choice.one
        print(json.dumps(train(Path(folder), protocol, engine, int(workers), int(trees), int(depth))))
        return
    if choice.quick:
        choice.rows, choice.trees, choice.depth = [20_000, 40_000], 1, 3
    points: list[dict[str, Any]] = []
    for rows in sorted(choice.rows):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), rows)
            for protocol in choice.protocols:
                for engine in choice.engines:
                    sizes = (choice.workers, choice.trees, choice.depth)
                    points.append(measured([folder, protocol, engine, *map(str, sizes)]))
                    note(", ".join(f"{name} {points[-1][name]}" for name in FIELDS[:-1]))
    for rows in choice.rows:
        models = {point["model_sha256"] for point in points if point["rows"] == rows}
        assert len(models) == 1, f"{rows} rows gave several models"
    choice.out.mkdir(parents=True, exist_ok=True)
    with open(choice.out / "scale.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows({name: point[name] for name in FIELDS} for point in points)
    series = {
        f"{protocol}, {what}": [
            (point["rows"] / 1e6, point[key])
            for point in points
            if point["protocol"] == protocol and point["engine"] == "ray"
        ]
        for protocol in choice.protocols
        for what, key in (("driver", "driver_mb"), ("all processes", "all_mb"))
    }
    chart = line_chart("Peak memory over rows, engine ray", "million rows", "MB", series)
    (choice.plot or choice.out / "scale.svg").write_text(chart, encoding="utf-8")
    if choice.markdown is not None:
        head = ("rows", "protocol", "engine", "workers", "seconds per tree", "microseconds per row and tree",
                "driver, MB", "all processes, MB", "GB sent")  # fmt: skip
        lines = [
            (
                f"{point['rows']:,}", point["protocol"], point["engine"], str(point["workers"]),
                f"{point['seconds_per_tree']:.3g}", f"{point['microseconds_per_row_and_tree']:.3g}",
                f"{point['driver_mb']:.0f}", f"{point['all_mb']:.0f}", f"{point['gigabytes_sent']:.3g}",
            )
            for point in points
        ]  # fmt: skip
        replace_block(choice.markdown, "scale", table(head, lines))
    report({"benchmark": "scale", "points": points})


if __name__ == "__main__":
    main()
