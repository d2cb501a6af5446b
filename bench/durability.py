"""What it costs that state survives a power failure: seconds per tree with and without flushes to the disk.

    python bench/durability.py [--rounds 6] [--trees 20] [--rows 1000 24000] [--data FILE] [--json]

`lattice` with two parties as processes over mutual TLS on loopback. The same jobs run in turn as they are, and with a
library loaded in which fsync and fdatasync return at once. `ratio` is the median over rounds of with / without, of the
wall-clock seconds of the trees after the first; its interval holds the true median with the probability that is shown.
Flushes and the seconds that they take are those of both parties, per tree; some are waited for by no one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import against
from against_worker import over_tls
from common import DEFAULT_DATA, machine, note, today

SHIM = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int flush(long number, int file) {
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  int result = getenv("NO_FLUSH") ? 0 : (int)syscall(number, file);
  clock_gettime(CLOCK_MONOTONIC, &to);
  int out = open(getenv("FLUSHES"), O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (out >= 0) {
    dprintf(out, "%.9f\\n", (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    close(out);
  }
  return result;
}
int fsync(int file) { return flush(SYS_fsync, file); }
int fdatasync(int file) { return flush(SYS_fdatasync, file); }
"""


@dataclass(frozen=True)
class PerTree:
    """Wall-clock seconds of a tree, how often both parties flush, and the seconds that the flushes take."""

    seconds: float
    flushes: float
    flushing: float


def per_tree(data: Path, trees: int, library: Path, *, flushed: bool) -> PerTree:
    """Both jobs, of 1 and of 1 + `trees` trees, run on the same daemon."""
    with tempfile.TemporaryDirectory(prefix="durability-") as name:
        log = Path(name) / "flushes"
        log.touch()
        environment = os.environ | {"LD_PRELOAD": str(library), "FLUSHES": str(log)}
        daemon, train = over_tls(Path(name), data, environment if flushed else environment | {"NO_FLUSH": "1"})
        try:
            found: list[np.ndarray] = []
            for count in (1, 1 + trees):
                began = time.monotonic()
                train(count)
                ended, lines = time.monotonic(), log.read_text().split()
                log.write_text("")
                found.append(np.array([ended - began, len(lines), sum(map(float, lines))]))
        finally:
            daemon.terminate()
            daemon.wait()
    return PerTree(*((found[1] - found[0]) / trees).tolist())


def measured(data: Path, rows: int, trees: int, rounds: int, library: Path) -> dict[str, Any]:
    with_flushes, ratios = list[PerTree](), list[float]()
    with tempfile.TemporaryDirectory(prefix="durability-") as name:
        some = Path(name) / "rows.parquet"
        pq.write_table(pq.read_table(data).slice(0, rows), some)
        for number in range(rounds):
            order = (True, False) if number % 2 else (False, True)
            taken = {flushed: per_tree(some, trees, library, flushed=flushed) for flushed in order}
            with_flushes.append(taken[True])
            ratios.append(taken[True].seconds / taken[False].seconds)
            note(f"{rows} rows, round {number + 1}: {ratios[-1]:.3f} of {taken[False].seconds:.3f} s")
    low, high, sure = against.interval_of_median(ratios)
    medians = {
        name: statistics.median(getattr(each, name) for each in with_flushes) for name in PerTree.__annotations__
    }
    return {"rows": rows, **medians, "ratio": statistics.median(ratios), "interval": [low, high], "probability": sure}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=against.FEWEST_ROUNDS)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 24000])
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA / "default_credit.parquet")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="durability-") as name:
        library = Path(name) / "flushes.so"
        compiler = ["gcc", "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", str(library)]
        subprocess.run(compiler, input=SHIM, text=True, check=True)
        data = given.data if given.data.exists() else against.made_up(Path(name) / "made_up.parquet")
        found = [measured(data, rows, given.trees, given.rounds, library) for rows in given.rows]
    if given.json:
        print(json.dumps({"machine": machine(), "date": today(), "results": found}, indent=1))
        return
    print("| rows | s per tree | with / without flushes | interval | flushes per tree | ms of flushing per tree |")
    print("|---:|---:|---:|---|---:|---:|")
    for each in found:
        low, high = each["interval"]
        print(
            f"| {each['rows']} | {each['seconds']:.3f} | {each['ratio']:.3f} | {low:.3f} to {high:.3f} "
            f"({each['probability']:.0%}) | {each['flushes']:.1f} | {1e3 * each['flushing']:.1f} |"
        )


if __name__ == "__main__":
    main()
