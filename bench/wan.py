"""Training between companies: seconds, exchanges and bytes of a tree over lines with latency and limited bandwidth.

    python bench/wan.py [--lines lan wan] [--protocols plain lattice] [--trees 8] [--repeats 3] [--against COMMIT]
                        [--plot FILE.svg] [--markdown PAGE] [--json]

Two parties as processes over mutual TLS, one thread each, on default_credit (24,000 rows, 23 columns; the active party
has 11), depth 6, 32 bins. The active party's connection goes through the proxy of `line.py`. Seconds are the
difference of a job of 16 + TREES trees and one of 16, divided by TREES: keys, bins and the start of processes cancel.
Exchanges and bytes of messages are those of the longer job from its first round on, per tree; `MB once` is what it
sends before. An exchange is a request, or several at once, and its answers.
`--against` builds another commit and measures both in turn, so that other load on the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import os
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
from parties import write_settings
from veilboost.report.plots import line_chart

ROWS, OWN_COLUMNS = 24_000, 11
TRAINING = {"objective": "binary", "max_depth": 6, "max_bin": 32}
OPTIONS: Mapping[str, Mapping[str, Any]] = {"sealed": {"eps": 10.0}, "masked": {"allow_unprotected": True}}
VERTICAL = ("plain", "masked", "ldp", "federboost", "smm1", "smm2", "elxgb", "paillier", "lattice", "sealed")
FIGURES = ("seconds", "exchanges", "mb_sent", "mb_received", "cpu_seconds")
SHOWN = (*FIGURES, "mb_once")
FEW = 16  # trees of the shorter job: enough for what is sent once to pay, so that the longer one has the same layout


@dataclass(frozen=True)
class Parties:
    """Two parties of one checkout in a folder: the driver's command, and the other party's daemon."""

    folder: Path
    command: str
    daemon: subprocess.Popen[str]
    port: int

    def train(self, name: str, protocol: str, line: str, trees: int) -> tuple[dict[str, float], str]:
        """The figures of one whole job, and how it encrypted."""
        training = "\n".join(f"{key} = {json.dumps(value)}" for key, value in TRAINING.items())
        options = "\n".join(f"{key} = {json.dumps(value)}" for key, value in OPTIONS.get(protocol, {}).items())
        with line_to(self.port, line) as port:
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
            before, began = process_seconds(self.daemon.pid), time.perf_counter()
            with (self.folder / "driver.log").open("w") as log:
                driver = subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=log)
            _, status, used = os.wait4(driver.pid, 0)
            driver.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.perf_counter() - began
        if driver.returncode:
            sys.exit(f"{protocol} over {line} failed:\n{(self.folder / 'driver.log').read_text()}")
        run = self.folder / "runs-bank" / name
        layout = json.loads((run / "status.json").read_text()).get("layout", "")
        lines = (run / "transcript" / "transcript.jsonl").read_text().splitlines()
        every = [json.loads(entry) for entry in lines]
        first = next(at for at, entry in enumerate(every) if entry["message"].endswith("Round"))
        entries = every[first:]
        sent = [entry["direction"] == "sent" for entry in entries]
        size = np.array([entry["size"] for entry in entries])
        figures = {
            "seconds": seconds,
            "exchanges": float(sum(now and (at == 0 or not sent[at - 1]) for at, now in enumerate(sent))),
            "mb_sent": float(size[np.array(sent)].sum()) / 1e6,
            "mb_received": float(size[~np.array(sent)].sum()) / 1e6,
            "cpu_seconds": used.ru_utime + used.ru_stime + process_seconds(self.daemon.pid) - before,
            "mb_once": sum(entry["size"] for entry in every[:first]) / 1e6,
        }
        return figures, layout

    def per_tree(self, label: str, protocol: str, line: str, trees: int) -> dict[str, float]:
        """Figures of a tree. A job chooses for the line that it measures: jobs with other layouts do not compare."""
        few, before = self.train(f"{label}-few", protocol, line, FEW)
        many, after = self.train(f"{label}-many", protocol, line, FEW + trees)
        if before.partition(": ")[2] != after.partition(": ")[2]:
            note(f"{label}: the jobs encrypt differently, so their difference is not a tree: {before}; {after}")
        elif after:
            note(f"{label}: {after}")
        each = {figure: (many[figure] - few[figure]) / trees for figure in ("seconds", "cpu_seconds")}
        counted = {figure: many[figure] / (FEW + trees) for figure in ("exchanges", "mb_sent", "mb_received")}
        return {**each, **counted, "mb_once": many["mb_once"]}


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
    head = ("protocol", "line", "commit", "s/tree", "exchanges", "MB sent", "MB received", "CPU s", "MB once")
    shown = [(row["protocol"], row["line"], row["commit"], *(f"{row[figure]:.3g}" for figure in SHOWN)) for row in rows]
    return table(head, shown)


def plot(rows: list[dict[str, Any]], file: Path) -> None:
    """Seconds of a tree over the round trip of the line, a curve for each protocol and commit."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        name = f"{row['protocol']} ({row['commit']})"
        milliseconds = 1e3 * LINES[row["line"]].round_trip
        series.setdefault(name, []).append((milliseconds, row["seconds"]))
    title = "Seconds of a tree on lan, metro, wan and far"
    chart = line_chart(title, "round trip, ms", "seconds", series, log_x=True, log_y=True)
    file.write_text(chart, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", nargs="+", choices=["none", *LINES], default=list(LINES))
    parser.add_argument("--protocols", nargs="+", choices=VERTICAL, default=["plain", "lattice", "sealed"])
    parser.add_argument("--trees", type=int, default=8, help="trees that the longer job has more")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each; the median counts")
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit in turn with the checkout")
    parser.add_argument("--data", type=Path, help="parquet file with the columns id and label (0 or 1) and features")
    parser.add_argument("--plot", type=Path, help="draw seconds per tree into this file")
    parser.add_argument("--markdown", type=Path, help="write the table into this page")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    with ExitStack() as stack:
        data = options.data or DEFAULT_DATA / "default_credit.parquet"
        if options.data is None and not data.exists():
            data = made_up(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "made_up.parquet")
        pythons = {git("rev-parse", "--short", "HEAD"): sys.executable}
        if options.against:
            commit = git("rev-parse", "--short", f"{options.against}^{{commit}}")
            pythons[commit] = stack.enter_context(built(commit))
        codes = {code: stack.enter_context(parties(python, data)) for code, python in pythons.items()}
        rows = []
        for protocol in options.protocols:
            for line in options.lines:
                found: dict[str, list[dict[str, float]]] = {code: [] for code in codes}
                for repeat in range(options.repeats):
                    for code, own in codes.items():
                        label = f"{protocol}-{line}-{repeat}"
                        found[code].append(own.per_tree(label, protocol, line, options.trees))
                for code, values in found.items():
                    middle = {figure: statistics.median(value[figure] for value in values) for figure in SHOWN}
                    rows.append({"protocol": protocol, "line": line, "commit": code, **middle})
                    note(table_of(rows[-1:]).splitlines()[-1])
    if options.plot:
        plot(rows, options.plot)
    if options.markdown:
        where = machine()
        text = f"Measured on {today()}, {where['cores']} cores of {where['cpu']}.\n\n{table_of(rows)}"
        replace_block(options.markdown, "wan", text)
    if options.json:
        settings = {"trees": options.trees, "repeats": options.repeats, "rows": ROWS, **TRAINING}
        print(json.dumps({"machine": machine(), "measured": today(), "settings": settings, "rows": rows}, indent=2))
    else:
        print(table_of(rows))


if __name__ == "__main__":
    main()
