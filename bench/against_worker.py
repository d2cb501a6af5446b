"""One measurement of `bench/against.py`: prints the CPU seconds that a tree takes in one bench.

    PYTHON bench/against_worker.py BENCH DATA TREES

Run with the interpreter of either checkout, so it uses only the public estimators and the command line. A bench
trains 1 tree and then 1 + TREES trees; the difference leaves out bins, keys and the start of processes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from settings import write_settings

COMMAND = str(Path(sys.executable).parent / "veilboost")
# Not the default depth, in whose place `sealed` takes another.
TRAINING = {"objective": "binary", "max_depth": 5, "max_bin": 32}


# An older commit has other names for the active party and the protocol.
OLD_GRAMMAR = importlib.util.find_spec("veilboost.party.job") is None
JOB_HEAD = (
    'active = "bank"\nalignment = "prealigned"\n[protocol]\nname = "lattice"\n[parties.bank]'
    if OLD_GRAMMAR
    else 'protocol = "lattice"\nalignment = "prealigned"\n[parties.bank]\nrole = "active"'
)


def in_process(bench: str, data: Path) -> Callable[[int], float]:
    """All parties in this process, one thread."""
    from veilboost import HorizontalClassifier, VerticalClassifier

    table = pq.read_table(data)
    names = [name for name in table.column_names if name not in ("id", "label")]
    x, y = table.select(names).to_pandas(), table["label"].to_numpy()

    def cpu_seconds(trees: int) -> float:
        if bench == "secagg":
            model: Any = HorizontalClassifier(protocol=bench, participants=3, n_estimators=trees, **TRAINING)
        else:
            model = VerticalClassifier(protocol=bench, parties=2, n_estimators=trees, **TRAINING)
        began = time.process_time()
        model.fit(x, y)
        return time.process_time() - began

    cpu_seconds(1)  # loads what is loaded when it is first used
    return cpu_seconds


def run(folder: Path, *words: str) -> None:
    subprocess.run([COMMAND, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def over_tls(
    folder: Path, data: Path, environment: dict[str, str] | None = None
) -> tuple[subprocess.Popen[str], Callable[[int], float]]:
    """Two parties as processes that talk over mutual TLS on loopback, one thread each. Gives the daemon to stop."""
    run(folder, "certs", "init", "--folder", "certs")
    table = pq.read_table(data)
    names = [name for name in table.column_names if name not in ("id", "label")]
    half = len(names) // 2
    for party, columns in (("bank", [*names[:half], "label"]), ("shop", names[half:])):
        run(folder, "certs", "issue", party, "--folder", "certs")
        pq.write_table(table.select(["id", *columns]), folder / f"{party}.parquet")
        write_settings(folder, party, ("bank", "shop"), ["lattice"])
    daemon = subprocess.Popen(
        [COMMAND, "party", "serve", "--config", "shop.toml", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert daemon.stdout is not None
    address = json.loads(daemon.stdout.readline())["address"]

    def cpu_seconds(trees: int) -> float:
        training = "\n".join(f"{key} = {json.dumps(value)}" for key, value in TRAINING.items())
        (folder / "job.toml").write_text(f"""
name = "trees{trees}"
{JOB_HEAD}
[parties.shop]
address = "{address}"
[training]
n_estimators = {trees}
{training}
""")
        before = process_seconds(daemon.pid)
        words = [COMMAND, "train", "job.toml", "--config", "bank.toml", "--json"]
        driver = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(driver.pid, 0)
        driver.returncode = os.waitstatus_to_exitcode(status)
        if driver.returncode:
            sys.exit(f"training over TLS ended with {driver.returncode}")
        return used.ru_utime + used.ru_stime + process_seconds(daemon.pid) - before

    return daemon, cpu_seconds


def process_seconds(pid: int) -> float:
    """What all threads of a running process have used so far; Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def per_tree(cpu_seconds: Callable[[int], float], trees: int) -> float:
    first = cpu_seconds(1)
    return (cpu_seconds(1 + trees) - first) / trees


def main() -> None:
    bench, data, trees = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if bench != "tls":
        print(per_tree(in_process(bench, data), trees))
        return
    with tempfile.TemporaryDirectory() as name:
        daemon, cpu_seconds = over_tls(Path(name), data)
        try:
            print(per_tree(cpu_seconds, trees))
        finally:
            daemon.terminate()
            daemon.wait()


if __name__ == "__main__":
    main()
