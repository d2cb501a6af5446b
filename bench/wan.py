"""Training between companies: seconds, exchanges and bytes of a tree over lines with latency and limited bandwidth.

    python bench/wan.py [--lines lan wan] [--protocols plain lattice] [--trees 16] [--repeats 1]
                        [--against COMMIT [--compared plain]] [--rows FILE.json] [--plot FILE.svg] [--markdown PAGE]

Two parties as processes over mutual TLS, one thread each, on default_credit (24,000 rows, 23 columns; the active party
has 11), depth 6, 32 bins. The active party's connection goes through the proxy of `line.py`. A job has TREES trees,
or 3 of slow protocols; its first quarter is left out of seconds and CPU seconds, which are those of both processes. `MB
once` is what it sends before the first round. An exchange is a request, or several at once, and its answers.
`--against` builds another commit and measures both in turn, so that other load on the machine affects both.
`--rows` keeps what was measured before in that file, except what is measured now, so that several runs fill one table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from against import built, git, made_up
from against_worker import process_seconds
from blocks import replace_block, table
from common import DEFAULT_DATA, machine, note, today
from line import LINES, line_to
from settings import write_settings
from veilboost.report.plots import line_chart

ROWS, OWN_COLUMNS = 24_000, 11
TRAINING = {"objective": "binary", "max_depth": 6, "max_bin": 32}
OPTIONS: Mapping[str, Mapping[str, Any]] = {"sealed": {"eps": 10.0}}
VERTICAL = ("plain", "masked", "ldp", "federboost", "smm1", "smm2", "elxgb", "paillier", "lattice", "sealed")
FIGURES = ("seconds", "exchanges", "mb_sent", "mb_received", "cpu_seconds", "mb_once")
SLOW = {"paillier": 3, "masked": 3}  # most trees of a job: 20 CPU seconds, and 640 MB each
LEFT_OUT = 4  # one of so many trees: the first ones load what is loaded when it is first used
KEY = ("protocol", "line", "commit")
NAMES = ("none", *LINES)  # of lines; none is loopback as it is
TICK = 0.05  # seconds between two readings of the processes' CPU seconds


@dataclass(frozen=True)
class Parties:
    """Two parties of one checkout in a folder: the driver's command, and the other party's daemon."""

    folder: Path
    command: str
    daemon: subprocess.Popen[str]
    port: int

    def train(self, name: str, protocol: str, line: str, trees: int) -> dict[str, Any]:
        """The figures of a tree, and how the job encrypted."""
        training = "\n".join(f"{key} = {json.dumps(value)}" for key, value in TRAINING.items())
        options = "\n".join(f"{key} = {json.dumps(value)}" for key, value in OPTIONS.get(protocol, {}).items())
        with line_to(self.port, line) as port, (self.folder / "driver.log").open("w") as log:
            (self.folder / "job.toml").write_text(f"""
name = "{name}"
protocol = "{protocol}"
alignment = "prealigned"
[parties.bank]
role = "active"
[parties.shop]
address = "127.0.0.1:{port}"
[training]
n_estimators = {trees}
{training}
[training.options]
{options}
""")
            words = [self.command, "train", "job.toml", "--config", "bank.toml", "--json"]
            driver = subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=log)
            readings = list[tuple[float, float]]()
            while driver.poll() is None:
                # A process that has just ended has no figures any more.
                with contextlib.suppress(OSError, IndexError):
                    used = process_seconds(driver.pid) + process_seconds(self.daemon.pid)
                    readings.append((time.time(), used))
                time.sleep(TICK)
        if driver.returncode:
            sys.exit(f"{protocol} over {line} failed:\n{(self.folder / 'driver.log').read_text()}")
        run = self.folder / "runs-bank" / name
        lines = (run / "transcript" / "transcript.jsonl").read_text().splitlines()
        every = [json.loads(entry) for entry in lines]
        begins = [at for at, entry in enumerate(every) if entry["message"].endswith("Round")]
        first, last = begins[len(begins) // LEFT_OUT], begins[-1]  # the last tree is followed by the end of the job
        when = [every[at]["when"] for at in (first, last)]
        began, ended = np.interp(when, *np.transpose(readings))
        timed, entries = len(begins) - 1 - len(begins) // LEFT_OUT, every[begins[0] :]
        sent = np.array([entry["direction"] == "sent" for entry in entries])
        size = np.array([entry["size"] for entry in entries])
        return {
            "seconds": (when[1] - when[0]) / timed,
            "exchanges": float((sent & ~np.insert(sent[:-1], 0, False)).sum()) / trees,
            "mb_sent": float(size[sent].sum()) / trees / 1e6,
            "mb_received": float(size[~sent].sum()) / trees / 1e6,
            "cpu_seconds": float(ended - began) / timed,
            "mb_once": sum(entry["size"] for entry in every[: begins[0]]) / 1e6,
            "layout": json.loads((run / "status.json").read_text()).get("layout", ""),
        }


@contextmanager
def parties(python: str, data: Path) -> Iterator[Parties]:
    """Two parties that run the code of this interpreter."""
    command = str(Path(python).parent / "veilboost")
    with tempfile.TemporaryDirectory(prefix="wan-") as name:
        folder = Path(name)

        def run(*words: str) -> None:
            subprocess.run([command, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)

        run("certs", "init", "--folder", "certs")
        every = pq.read_table(data)
        every = every.take(np.sort(np.random.default_rng(0).permutation(every.num_rows)[:ROWS]))
        names = [column for column in every.column_names if column not in ("id", "label")]
        owned = {"bank": [*names[:OWN_COLUMNS], "label"], "shop": names[OWN_COLUMNS:]}
        for party, columns in owned.items():
            run("certs", "issue", party, "--folder", "certs")
            pq.write_table(every.select(["id", *columns]), folder / f"{party}.parquet")
            write_settings(folder, party, owned, VERTICAL)
        serve = [command, "party", "serve", "--config", "shop.toml", "--json"]
        with (folder / "daemon.log").open("w") as log:
            daemon = subprocess.Popen(serve, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert daemon.stdout is not None
            address = json.loads(daemon.stdout.readline())["address"]
            yield Parties(folder, command, daemon, int(address.rpartition(":")[2]))
        finally:
            daemon.terminate()
            daemon.wait()


def table_of(rows: list[dict[str, Any]]) -> str:
    head = ("protocol", "line", "commit", "s/tree", "exchanges", "MB sent", "MB received", "CPU s", "MB once", "levels")
    return table(
        head, [(*map(row.get, KEY), *(f"{row[figure]:.3g}" for figure in FIGURES), row["levels"]) for row in rows]
    )


def levels(layout: str) -> str:
    """A level's way to encrypt in a letter: "m m e" are two levels under reused masks and a dense one."""
    letters = {"in runs": "r", "as vectors under reused masks": "m", "densely": "e"}
    found = re.findall(rf"levels? (\d+)(?: to (\d+))? ({'|'.join(letters)})", layout)
    return " ".join(letters[how] for first, last, how in found for _ in range(int(first), int(last or first) + 1))


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Seconds of a tree over the round trip of the line, a curve for each protocol and commit."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["line"] == "none":
            continue
        name = f"{row['protocol']} ({row['commit']})"
        milliseconds = 1e3 * LINES[row["line"]].round_trip
        series.setdefault(name, []).append((milliseconds, row["seconds"]))
    title = "Seconds of a tree on lan, metro, wan and far"
    chart = line_chart(title, "round trip, ms", "seconds", series, log_x=True, log_y=True)
    file.write_text(chart, encoding="utf-8")


def busy_seconds() -> float:
    """CPU seconds of the whole machine; Linux."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", nargs="+", choices=NAMES, default=list(LINES))
    parser.add_argument("--protocols", nargs="+", choices=VERTICAL, default=["plain", "lattice", "sealed"])
    parser.add_argument("--trees", type=int, default=16, help="trees of a job")
    parser.add_argument("--repeats", type=int, default=1, help="jobs of each; the median counts")
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit in turn with the checkout")
    parser.add_argument("--compared", nargs="+", choices=VERTICAL, default=VERTICAL, help="protocols of that commit")
    parser.add_argument("--data", type=Path, help="parquet file with the columns id and label (0 or 1) and features")
    parser.add_argument("--rows", type=Path, help="read rows that were measured before, and write all rows")
    parser.add_argument("--plot", type=Path, help="draw seconds per tree into this file")
    parser.add_argument("--markdown", type=Path, help="write the table into this page")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    began, busy, own = time.perf_counter(), busy_seconds(), own_seconds()
    measured: list[dict[str, Any]] = []
    with ExitStack() as stack:
        data = options.data or DEFAULT_DATA / "default_credit.parquet"
        if options.data is None and not data.exists():
            data = made_up(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "made_up.parquet")
        here = git("rev-parse", "--short", "HEAD")
        pythons = {here: sys.executable}
        if options.against:
            commit = git("rev-parse", "--short", f"{options.against}^{{commit}}")
            pythons[commit] = stack.enter_context(built(commit))
        codes = {code: stack.enter_context(parties(python, data)) for code, python in pythons.items()}
        for protocol in options.protocols:
            trees = min(options.trees, SLOW.get(protocol, options.trees))
            compared = {code: each for code, each in codes.items() if code == here or protocol in options.compared}
            for line in options.lines:
                found: dict[str, list[dict[str, Any]]] = {code: [] for code in compared}
                for repeat in range(options.repeats):
                    for code, each in compared.items():
                        found[code].append(each.train(f"{protocol}-{line}-{repeat}", protocol, line, trees))
                for code, values in found.items():
                    middle = {figure: statistics.median(value[figure] for value in values) for figure in FIGURES}
                    layouts = dict.fromkeys(value["layout"] for value in values)
                    row = {"protocol": protocol, "line": line, "commit": code, **middle, "trees": trees}
                    measured.append(row | {"levels": " / ".join(map(levels, layouts)), "layouts": list(layouts)})
                    note(table_of(measured[-1:]).splitlines()[-1])
    # The parties have ended, so this process knows what they used.
    others = (busy_seconds() - busy - own_seconds() + own) / (time.perf_counter() - began) / (os.cpu_count() or 1)
    stamp = {"measured": today(), "cpu": machine()["cpu"], "others": round(max(others, 0.0), 2)}
    rows = [row | stamp for row in measured]
    if options.rows and options.rows.exists():
        new = {tuple(map(row.get, KEY)) for row in rows}
        kept = [row for row in json.loads(options.rows.read_text()) if tuple(map(row.get, KEY)) not in new]
        rows = sorted(kept + rows, key=lambda row: (VERTICAL.index(row["protocol"]), NAMES.index(row["line"])))
    if options.rows:
        options.rows.write_text(json.dumps(rows, indent=1))
    if options.plot:
        plot(rows, options.plot)
    if options.markdown:
        days, cpus = (" and ".join(sorted({row[name] for row in rows})) for name in ("measured", "cpu"))
        most = max(row["others"] for row in rows)
        where = f"Measured on {days}, {os.cpu_count()} cores of {cpus}, of which other programs used up to {most:.0%}."
        replace_block(options.markdown, "wan", f"{where}\n\n{table_of(rows)}")
    if options.json:
        print(json.dumps({"settings": {"rows": ROWS, **TRAINING}, "rows": rows}, indent=2))
    else:
        print(table_of(rows))


if __name__ == "__main__":
    main()
