"""The peers that a user would pick instead, beside ours, in one run: the same rows, columns and parameters.

    python bench/peers/table.py [--data DIR] [--sets NAME ...] [--lines NAME ...] [--environments DIR] [--out DIR]
                                [--only WORD ...] [--add | --resume]

Makes a virtual environment per peer where there is none, measures one system after the other on each data set, writes
`peers.json` and a table of each data set, `peers-SET.csv`, into OUT, prints the JSON and readable tables. A system that
cannot be installed or run is left out with the reason; one that has no such task is not listed. Categories are
categories to the systems that have them, and numbers to the others; numbers to predict are standardised. With several
classes "a tree" is a round, a tree for each class.

One thread per party. Slow systems train the few trees only, so accuracies stand beside each other at both counts.
Systems whose parties are processes are measured over loopback and then, with a few trees, over each of LINES
(see `bench/line.py`). Bytes of these are what the loopback carried, counted in a network of their own (which needs the
rights for `unshare -n`); of ours in one process, the messages of all parties. Memory is the peak of the largest
process, with its libraries and data. Lines are those that a user writes for the federation, as they stand in the
scripts here.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from columns import ALL, COLUMNS, FEW, as_markdown
from environments import NotInstalled, interpreter
from measure import METRICS
from systems import BINARY, KEY_BITS, MULTICLASS, REGRESSION, SYSTEMS, System

from common import arguments, as_matrix, hold_out, load, machine, note, today
from exchange import recorded_exchange
from line import LINES
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.types import Column

HERE = Path(__file__).parent
OWN_NETWORK = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
SETS = {"default_credit": BINARY, "adult": BINARY, "dry_bean": MULTICLASS, "california_housing": REGRESSION}
LINE_TREES, SLOW_LINE_TREES = 5, 2  # of a measurement over a line


@dataclass(frozen=True)
class Task:
    """The files that all systems are given."""

    folder: Path
    parameters: Mapping[str, Any]
    prefix: tuple[str, ...]  # before every command: a network of its own, if that can be had
    environments: Path
    timeout: float

    @property
    def few(self) -> int:
        return self.parameters["few_trees"]


def prepare(folder: Path, train: PartyTable, test: PartyTable, parameters: Mapping[str, Any]) -> None:
    """Training and test rows as matrices, as a table for our daemons, and what one tree asks for sf-heu."""
    mean, scale = (train.label.mean(), train.label.std()) if parameters["task"] == REGRESSION else (0.0, 1.0)
    train, test = (replace(part, label=(part.label - mean) / scale) for part in (train, test))
    for name, part in (("train", train), ("test", test)):
        np.savez(folder / name, x=as_matrix(part.columns), y=part.label.astype(np.float32))
    columns = {column.name: _values(column) for column in train.columns}
    pq.write_table(pa.table({"id": train.ids, **columns, "label": train.label}), folder / "training.parquet")
    if parameters["task"] != BINARY:
        return
    own = parameters["active_columns"]
    halves = {
        "active": PartyTable(train.ids, train.columns[:own], train.label, train.label_classes),
        "passive": PartyTable(train.ids, train.columns[own:]),
    }
    config = TrainingConfig(
        objective="binary", n_estimators=1, max_depth=parameters["max_depth"], max_bin=parameters["max_bin"]
    )
    recorded_exchange(halves, "active", config).save(folder / "exchange.npz")


def _values(column: Column) -> np.ndarray:
    """As in the owner's file: categories in words."""
    values = np.asarray(column.values)
    if column.categories is None:
        return values
    return np.where(values < 0, None, np.array(column.categories, dtype=object)[values])


def measured(system: System, task: Task, line: str = "none") -> dict[str, Any]:
    """What the system's script found, with this line between the parties."""
    python = sys.executable
    if system.environment is not None:
        python = interpreter(system.environment, task.environments)
    settings = {**task.parameters, "mode": system.setting, "line": line, **system.parameters}
    if not system.categories:
        settings["categorical"] = []
    if system.slow:
        settings |= {"trees": task.few, "few_trees": 1, "repeats": 1, "warm_up": False}
    if line != "none":
        settings["trees"] = SLOW_LINE_TREES if system.slow else min(LINE_TREES, settings["trees"])
    file = task.folder / "parameters.json"
    file.write_text(json.dumps(settings))
    given: tuple[object, ...] = (task.folder / "train.npz", task.folder / "test.npz", file)
    if system.script == "ours_tls.py":
        given = (task.folder, file)
    elif system.script == "heu_ou.py":
        given = (task.folder / "exchange.npz", KEY_BITS, settings["repeats"])
    command = [*task.prefix, python, str(HERE / system.script), *map(str, given)]
    stdout, stderr = output_of(command, task)
    lines = [line for line in stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise NotInstalled((stderr.strip().splitlines() or ["no result"])[-1])
    return json.loads(lines[-1].removeprefix("RESULT "))


def output_of(command: Sequence[str], task: Task) -> tuple[str, str]:
    """What a command prints on stdout and stderr. Its folder is the task's, where a peer may leave its log; what it
    started ends with it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, cwd=task.folder, start_new_session=True
    ) as process:
        try:
            return process.communicate(timeout=task.timeout)
        except subprocess.TimeoutExpired:
            raise NotInstalled(f"not done in {task.timeout:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def over_lines(system: System, task: Task, lines: Sequence[str]) -> dict[str, Any]:
    """Over loopback, and seconds per tree over each line where the parties are processes."""
    found = measured(system, task)
    over: dict[str, float | str] = {}
    for line in lines if system.apart else ():
        try:
            over[line] = measured(system, task, line)["seconds_per_tree"]
        except NotInstalled as reason:
            over[line] = str(reason)
    return found | {"over": over, "load": os.getloadavg()[0]}  # above the cores, seconds of the clock mean little


def lines_of(system: System) -> int | None:
    """Lines of the script between its marks, blank ones and comments left out."""
    begins = [f"# What a user of {whose} writes: from here" for whose in system.writes]
    begins = begins or ["# What a user writes: from here"]
    count, inside, seen = 0, False, False
    for line in (text.strip() for text in (HERE / system.script).read_text().splitlines()):
        if line in begins:
            inside = seen = True
        elif line == "# to here":
            inside = False
        elif inside and line and not line.startswith("#"):
            count += 1
    return count if seen else None


def row(system: System, found: Mapping[str, Any], counted: bool) -> dict[str, Any]:
    """A line of the table; values that a system does not report stay empty."""
    sent = found.get("bytes_per_tree") if counted or not system.apart else None
    few, every = found.get("quality_few"), found.get("quality")
    if system.slow:
        few, every = every, None
    over = found.get("over", {}).get("wan")
    values = {
        "setting": system.setting,
        "system": system.name,
        "protection": system.protection,
        "key": system.key,
        "runs as": system.runs_as,
        "seconds per tree": found["seconds_per_tree"],
        "seconds per tree, wan": over if isinstance(over, float) else None,
        "CPU seconds per tree": found.get("cpu_seconds_per_tree"),
        "MB per tree": None if sent is None else sent / 1e6,
        FEW: few,
        ALL: every,
        "peak MB": found.get("megabytes"),
        "lines": found.get("lines", lines_of(system)),
    }
    return {name: values[name] for name in COLUMNS}


def own_network() -> tuple[str, ...]:
    probe = subprocess.run([*OWN_NETWORK, "true"], capture_output=True, check=False)
    if probe.returncode == 0:
        return OWN_NETWORK
    note("bytes of systems in several processes are left out: no right to make a network of their own")
    return ()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS, metavar="NAME", help="data sets; all")
    parser.add_argument(
        "--lines", nargs="*", default=["wan"], choices=LINES, help="between parties that run as processes, beside none"
    )
    parser.add_argument("--trees", type=int, default=60)
    parser.add_argument("--few-trees", type=int, default=3, help="what slow systems train")
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()) / "veilboost-peers")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs" / "results")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="systems whose name or script has it")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--add", action="store_true", help="keep what OUT holds of other systems and data sets")
    kept.add_argument("--resume", action="store_true", help="keep all that OUT holds, and measure the rest")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one system on one line")
    parser.add_argument("--quick", action="store_true", help="few rows, trees and levels: to see that all of it runs")
    choice = parser.parse_args()
    missing = [name for name in choice.sets if not (choice.data / f"{name}.parquet").exists()]
    if missing:
        parser.error(f"not in {choice.data}: {', '.join(f'{name}.parquet' for name in missing)}")
    stored = choice.out / "peers.json"
    kept_too = (choice.add or choice.resume) and stored.exists()
    sets: dict[str, Any] = json.loads(stored.read_text())["sets"] if kept_too else {}
    if choice.quick:
        choice.trees, choice.few_trees, choice.depth, choice.repeats = 10, 2, 4, 1
    prefix = own_network()
    for name in choice.sets:
        with tempfile.TemporaryDirectory() as folder:
            measure_set(name, choice, Path(folder), prefix, sets)
    print(json.dumps({"benchmark": "peers", "sets": sets}, indent=2))


def measure_set(
    name: str, choice: argparse.Namespace, folder: Path, prefix: tuple[str, ...], sets: dict[str, Any]
) -> None:
    """Measure the systems on one data set; each is stored at once, so that a stopped run loses only its last."""
    data = load(choice.data, name)
    fit, held = hold_out(data.rows)
    if choice.quick:  # drawn: rows may come in the order of their labels
        fit = np.sort(np.random.default_rng(0).permutation(fit)[:3000])
    parameters = {
        "task": SETS[name], "metric": METRICS[SETS[name]], "classes": len(set(data.label.tolist())),
        "categorical": [at for at, column in enumerate(data.columns) if column.categories is not None],
        "trees": choice.trees, "few_trees": choice.few_trees, "max_depth": choice.depth, "max_bin": 32,
        "learning_rate": 0.3, "reg_lambda": 1.0, "active_columns": len(data.columns) // 2, "repeats": choice.repeats,
    }  # fmt: skip
    old = sets.get(name, {"rows": [], "details": {}, "skipped": {}, "runs": 0})
    rows = dict(zip(old["details"], old["rows"], strict=True))
    details, skipped = dict(old["details"]), dict(old["skipped"])
    task = Task(folder, parameters, prefix, choice.environments, choice.timeout)
    prepare(folder, data.take(fit), data.take(held), parameters)
    for system in SYSTEMS:
        wanted = not choice.only or any(word in f"{system.title} {system.script}" for word in choice.only)
        if not wanted or SETS[name] not in system.tasks or (choice.resume and system.title in rows):
            continue
        for kind in (rows, details, skipped):
            kind.pop(system.title, None)
        try:
            details[system.title] = over_lines(system, task, choice.lines)
        except NotInstalled as reason:
            skipped[system.title] = str(reason)
            note(f"{name}: skipped {system.title}: {reason}")
        else:
            rows[system.title] = row(system, details[system.title], bool(prefix))
            note(f"{name}: {system.title}: {details[system.title]}")
        order = [each.title for each in SYSTEMS if each.title in rows]
        sets[name] = {
            "machine": machine(),
            "measured": today(),
            "runs": old["runs"] + 1,
            "settings": {"rows": len(fit), "test_rows": len(held), **parameters},
            "rows": [rows[title] for title in order],
            "details": {title: details[title] for title in order},
            "skipped": skipped,
        }
        write(sets, choice.out)
    if name in sets:
        note("\n" + as_markdown(sets[name]["rows"], parameters))


def write(sets: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    ordered = {name: sets[name] for name in (*SETS, *sets) if name in sets}
    (out / "peers.json").write_text(json.dumps({"benchmark": "peers", "sets": ordered}, indent=2) + "\n")
    for name, found in ordered.items():
        with (out / f"peers-{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(found["rows"])


if __name__ == "__main__":
    main()
