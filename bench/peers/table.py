"""The peers that a user would pick instead, beside ours, in one run: the same rows, columns and parameters.

    python bench/peers/table.py [--data DIR] [--set default_credit] [--environments DIR] [--out DIR]
                                [--only WORD ... [--add]]

Makes a virtual environment per peer where there is none, measures one system after the other, writes `peers.csv` and
`peers.json` into OUT, prints the JSON and a readable table. A system that cannot be installed or run is left out with
the reason. One thread per party. Slow systems train the few trees only, so accuracies stand beside each other at
both counts. Bytes of systems in several processes are what the loopback carried, counted in a network of their own
(which needs the rights for `unshare -n`); of ours in one process, the messages of all parties. Memory is the peak of
the largest process, with its libraries and data. Lines are those that a user writes for the federation, as they stand
in the scripts here.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from columns import COLUMNS, as_markdown
from environments import NotInstalled, interpreter
from systems import KEY_BITS, SYSTEMS, System

from common import arguments, as_matrix, hold_out, load, machine, note, today
from exchange import recorded_exchange
from line import LINES
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable

HERE = Path(__file__).parent
OWN_NETWORK = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


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
    for name, part in (("train", train), ("test", test)):
        np.savez(folder / name, x=as_matrix(part.columns), y=part.label.astype(np.float32))
    columns = {column.name: np.asarray(column.values) for column in train.columns}
    pq.write_table(pa.table({"id": train.ids, **columns, "label": train.label}), folder / "training.parquet")
    own = parameters["active_columns"]
    halves = {
        "active": PartyTable(train.ids, train.columns[:own], train.label, train.label_classes),
        "passive": PartyTable(train.ids, train.columns[own:]),
    }
    config = TrainingConfig(
        objective="binary", n_estimators=1, max_depth=parameters["max_depth"], max_bin=parameters["max_bin"]
    )
    recorded_exchange(halves, "active", config).save(folder / "exchange.npz")


def measured(system: System, task: Task) -> dict[str, Any]:
    """What the system's script found."""
    python = sys.executable
    if system.environment is not None:
        python = interpreter(system.environment, task.environments)
    settings = {**task.parameters, "mode": system.setting, **system.parameters}
    if system.slow:
        settings |= {"trees": task.few, "few_trees": 1, "repeats": 1, "warm_up": False}
    file = task.folder / "parameters.json"
    file.write_text(json.dumps(settings))
    given: tuple[object, ...] = (task.folder / "train.npz", task.folder / "test.npz", file)
    if system.script == "ours_tls.py":
        given = (task.folder, file)
    elif system.script == "heu_ou.py":
        given = (task.folder / "exchange.npz", KEY_BITS, settings["repeats"])
    command = [*task.prefix, python, str(HERE / system.script), *map(str, given)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=task.timeout)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not done in {task.timeout:g} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise NotInstalled((done.stderr.strip().splitlines() or ["no result"])[-1])
    return json.loads(lines[-1].removeprefix("RESULT "))


def lines_of(system: System) -> int | None:
    """Lines of the script between its marks, blank ones and comments left out."""
    begin = f"# What a user{f' of {system.writes}' if system.writes else ''} writes: from here"
    count, inside, seen = 0, False, False
    for line in (text.strip() for text in (HERE / system.script).read_text().splitlines()):
        if line == begin:
            inside = seen = True
        elif line == "# to here":
            inside = False
        elif inside and line and not line.startswith("#"):
            count += 1
    return count if seen else None


def row(system: System, found: Mapping[str, Any], counted: bool) -> dict[str, Any]:
    """A line of the table; values that a system does not report stay empty."""
    in_one = system.runs_as == "one process"
    sent = found.get("bytes_per_tree") if in_one or counted else None
    few, every = found.get("auc_few"), found.get("auc")
    if system.slow:
        few, every = every, None
    values = (
        system.setting, system.name, system.protection, system.key, system.runs_as, found["seconds_per_tree"],
        found.get("cpu_seconds_per_tree"), None if sent is None else sent / 1e6, few, every, found.get("megabytes"),
        found.get("lines", lines_of(system)),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def own_network() -> tuple[str, ...]:
    probe = subprocess.run([*OWN_NETWORK, "true"], capture_output=True, check=False)
    if probe.returncode == 0:
        return OWN_NETWORK
    note("bytes of systems in several processes are left out: no right to make a network of their own")
    return ()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--set", default="default_credit", help="the data set: two classes")
    parser.add_argument("--trees", type=int, default=60)
    parser.add_argument("--few-trees", type=int, default=3, help="what slow systems train")
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()) / "veilboost-peers")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs" / "results")
    parser.add_argument(
        "--line", default="none", choices=["none", *LINES], help="the line between parties that run as processes"
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="systems whose name or script has it")
    parser.add_argument("--add", action="store_true", help="keep what OUT holds of other systems")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for one system")
    parser.add_argument("--quick", action="store_true", help="few rows, trees and levels: to see that all of it runs")
    choice = parser.parse_args()
    if not (choice.data / f"{choice.set}.parquet").exists():
        parser.error(f"{choice.set}.parquet is not in {choice.data}")
    data = load(choice.data, choice.set)
    fit, held = hold_out(data.rows)
    if choice.quick:
        fit, choice.trees, choice.few_trees, choice.depth, choice.repeats = fit[:3000], 10, 2, 4, 1
    parameters = {
        "trees": choice.trees, "few_trees": choice.few_trees, "max_depth": choice.depth, "max_bin": 32,
        "learning_rate": 0.3, "reg_lambda": 1.0, "active_columns": len(data.columns) // 2, "repeats": choice.repeats,
        "line": choice.line,
    }  # fmt: skip
    record: dict[str, Any] = {"rows": {}, "skipped": {}, "details": {}, "runs": 1}
    if choice.add and (choice.out / "peers.json").exists():
        stored = json.loads((choice.out / "peers.json").read_text())
        rows = dict(zip(stored["details"], stored["rows"], strict=True))
        record = {**stored, "rows": rows, "runs": stored["runs"] + 1}
    record |= {
        "benchmark": "peers",
        "machine": machine(),
        "measured": today(),
        "settings": {"set": choice.set, "rows": len(fit), "test_rows": len(held), **parameters},
    }
    prefix = own_network()
    with tempfile.TemporaryDirectory() as name:
        task = Task(Path(name), parameters, prefix, choice.environments, choice.timeout)
        prepare(task.folder, data.take(fit), data.take(held), parameters)
        for system in SYSTEMS:
            if choice.only and not any(word in f"{system.title} {system.script}" for word in choice.only):
                continue
            for kind in ("rows", "details", "skipped"):
                record[kind].pop(system.title, None)
            try:
                found = measured(system, task)
            except NotInstalled as reason:
                record["skipped"][system.title] = str(reason)
                note(f"skipped {system.title}: {reason}")
            else:
                record["details"][system.title] = found
                found["load"] = os.getloadavg()[0]  # above the cores that were used, seconds of the clock mean little
                record["rows"][system.title] = row(system, found, bool(prefix))
                note(f"{system.title}: {found}")
            result = write(record, choice.out)
    note("\n" + as_markdown(result["rows"], choice.few_trees, choice.trees))
    print(json.dumps(result, indent=2))


def write(record: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """What is known so far, in the order of the systems: a run that is stopped loses nothing but its last system."""
    order = [system.title for system in SYSTEMS if system.title in record["rows"]]
    rows = [record["rows"][title] for title in order]
    result = {**record, "rows": rows, "details": {title: record["details"][title] for title in order}}
    out.mkdir(parents=True, exist_ok=True)
    (out / "peers.json").write_text(json.dumps(result, indent=2) + "\n")
    with (out / "peers.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return result


if __name__ == "__main__":
    main()
