"""Many short jobs and predictions on the same daemons: memory, descriptors, threads and disk must not grow.

    python tests/drill/soak.py [--jobs 200] [--scores 100000] [--protocol plain] [--out soak.json] [--plot soak.svg]

Run folders, transcripts and ledgers grow with every job by design: their bytes per job must not grow. The first tenth
warms the daemons up; then the last quarter is compared with the first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import preload

if __name__ == "__main__":
    preload.with_shim()

import pyarrow.parquet as pq
from town import BOUND, Process, Town

from veilboost.report.plots import line_chart

KINDS = ("megabytes", "descriptors", "threads")
MORE = {"megabytes": 8.0, "descriptors": 2.0, "threads": 2.0, "kilobytes per step": 8.0}  # allowed growth
Sample = dict[str, float | str]


def sample(town: Town, step: int, what: str, seconds: float) -> Sample:
    """The most that any daemon holds now, and the bytes of all folders."""
    found: Sample = {"step": step, "what": what, "seconds": seconds}
    processes = [Path(f"/proc/{daemon.pid}") for daemon in town.daemons.values()]
    pages = [int((process / "statm").read_text().split()[1]) for process in processes]
    found["megabytes"] = max(pages) * os.sysconf("SC_PAGESIZE") / 2**20
    found["descriptors"] = max(len(os.listdir(process / "fd")) for process in processes)
    found["threads"] = max(len(os.listdir(process / "task")) for process in processes)
    files = [path for name in town.everyone for path in (town.folder / f"runs-{name}").rglob("*") if path.is_file()]
    found["kilobytes"] = sum(path.stat().st_size for path in files) / 1024
    found["temporary"] = sum("partial" in path.name or "tmp" in path.name for path in files)
    return found


def common_rows(town: Town) -> int:
    """Write the driver's rows that every owner has as `new.parquet`; in a fork, because pyarrow starts threads."""
    receive, send = os.pipe()
    if os.fork() == 0:
        tables = {name: pq.read_table(town.folder / f"{name}.parquet") for name in town.owners}
        common = set.intersection(*(set(table["id"].to_pylist()) for table in tables.values()))
        own = tables[town.driver]
        own = own.filter([name in common for name in own["id"].to_pylist()])
        pq.write_table(own, town.folder / "new.parquet")
        os.write(send, str(own.num_rows).encode())
        os._exit(0)
    os.wait()
    return int(os.read(receive, 20))


def seconds_of(process: Process) -> float:
    """Wait for a command. Raises if it fails."""
    began = time.monotonic()
    while not process.ended:
        if time.monotonic() - began > BOUND:
            process.kill()
        time.sleep(0.01)
    if process.code != 0:
        raise RuntimeError(f"a command ends with {process.code}: {process.err}")
    return time.monotonic() - began


def soak(town: Town, jobs: int, scores: int) -> list[Sample]:
    """Jobs first, then predictions with the last model."""
    town.serve(*town.others)
    samples = list[Sample]()
    for number in range(jobs):
        town.job = f"job{number}"
        samples.append(sample(town, number, "job", seconds_of(town.train())))
        forget_logs(town)
    rows = common_rows(town) if scores else 1
    files = ("--model", f"runs-{town.driver}/{town.job}", "--data", "new.parquet", "--out", "scores.csv")
    for number in range(-(-scores // rows)):
        process = town.command(town.driver, "predict", "--config", f"{town.driver}.toml", *files)
        samples.append(sample(town, jobs + number, "prediction", seconds_of(process)))
        forget_logs(town)
    return samples


def forget_logs(town: Town) -> None:
    kept = {daemon._logs.name for daemon in town.daemons.values()}
    for path in town.logs.iterdir():
        if path.name.rsplit(".", 1)[0] not in kept:
            path.unlink()


def growth(samples: list[Sample]) -> dict[str, float]:
    """By how much the last quarter exceeds the first, after the warm-up; of disk, the kilobytes of one step."""
    samples = samples[len(samples) // 10 :]
    quarter = max(1, len(samples) // 4)
    first, last = samples[:quarter], samples[-quarter:]

    def middle(part: list[Sample], kind: str) -> float:
        return statistics.median(float(each[kind]) for each in part)

    found = {kind: middle(last, kind) - middle(first, kind) for kind in KINDS}
    steps = [
        (float(part[-1]["kilobytes"]) - float(part[0]["kilobytes"])) / max(1, len(part) - 1) for part in (first, last)
    ]
    return found | {"kilobytes per step": steps[1] - steps[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--scores", type=int, default=100_000)
    parser.add_argument("--protocol", default="plain")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        town = Town(Path(folder) / given.protocol, given.protocol)
        samples = soak(town, given.jobs, given.scores)
        town.clear()
    parts = {what: [each for each in samples if each["what"] == what] for what in ("job", "prediction")}
    found = {what: growth(part) for what, part in parts.items() if part}
    flat = all(value <= MORE[kind] for part in found.values() for kind, value in part.items())
    flat &= all(not each["temporary"] for each in samples)
    told = {"protocol": given.protocol, "flat": flat, "growth": found, "samples": samples}
    if given.out:
        given.out.write_text(json.dumps(told, indent=1))
    if given.plot:
        lines = {kind: [(float(each["step"]), float(each[kind])) for each in samples] for kind in KINDS}
        title = f"{given.jobs} jobs of {given.protocol}, then {given.scores:,} scores: the most of any daemon"
        given.plot.write_text(line_chart(title, "jobs, then predictions", "MB, or number", lines, reach=(0.0,)))
    print(json.dumps(told | {"samples": len(samples)}, indent=1))
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
