"""What parties' own processes hold, where tables stay in files: two owners, an authority and a CSP as four processes.

    python bench/in_place.py [--rows 1000000 4000000] [--engines disk local] [--protocol plain] [--trees 1]

Tables are folders of parquet files, nine of ten ids are common, rows are aligned by `hmac_csp`. `memory_mb` is the peak
of each process's own memory (anonymous pages; those of files may go at any time), `seconds` are those of the stages of
the driver. Runs of the same rows must give the same model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from common import note, report
from veilboost.config import TrainingConfig
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.job import Job, JobParty
from veilboost.party.policy import Policy
from veilboost.party.runs import RunFolder
from veilboost.party.sections import commented_toml
from veilboost.party.settings import CertificateSettings, DataSettings, PartySettings, PeerSettings

OWNERS, HELPERS = ("bank", "shop"), {"ta": "authority", "csp": "csp"}
EVERYONE = (*HELPERS, *OWNERS)
COLUMNS, FILE_ROWS = 10, 1 << 18
COMMAND = str(Path(sys.executable).parent / "veilboost")


def write(folder: Path, rows: int) -> None:
    """Both owners' tables in orders of their own."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(OWNERS):
        (folder / name).mkdir(parents=True)
        ids = rng.permutation(rows) + number * (rows // 10)
        for file, first in enumerate(range(0, rows, FILE_ROWS)):
            own = ids[first : first + FILE_ROWS]
            columns: dict[str, Any] = {"id": own}
            columns |= {f"{name}{k}": rng.normal(size=len(own)).astype(np.float32) for k in range(COLUMNS)}
            if name == "bank":
                columns["y"] = (columns["bank0"] + rng.normal(size=len(own)) > 0).astype(np.int8)
            parquet.write_table(pa.table(columns), folder / name / f"{file:05}.parquet", compression="none")


def settle(folder: Path, tables: Path, name: str, engine: str, protocol: str, ports: Mapping[str, str]) -> None:
    owner = name in OWNERS
    certs = folder.parent / "certs"
    settings = PartySettings(
        name=name,
        certificates=CertificateSettings(certs / f"{name}.crt", certs / f"{name}.key", certs / "ca.crt"),
        data=DataSettings(tables / name, id="id", label="y" if name == "bank" else None) if owner else None,
        listen="127.0.0.1:0",
        n_jobs=1,
        engine=engine if owner else "local",
        peers={helper: PeerSettings(ports[helper], "in") for helper in HELPERS if owner},
        runs=Path(f"runs-{name}"),
        policy=Policy(
            protocols=(protocol,),
            allow_unprotected=(protocol,),
            peers={other: ("any",) for other in EVERYONE if other != name},
        ),
    )
    (folder / f"{name}.toml").write_text(commented_toml(settings, name))


def run(folder: Path, tables: Path, engine: str, protocol: str, trees: int) -> dict[str, Any]:
    """One job, from daemons to a model, in a folder of its own."""
    processes: dict[str, subprocess.Popen[str]] = {}
    ports: dict[str, str] = {}

    def start(name: str, *words: str) -> subprocess.Popen[str]:
        processes[name] = subprocess.Popen([COMMAND, *words, "--json"], cwd=folder, stdout=subprocess.PIPE, text=True)
        return processes[name]

    try:
        for name in EVERYONE:
            settle(folder, tables, name, engine, protocol, ports)
            if name != "bank":
                daemon = start(name, "party", "serve", "--config", f"{name}.toml")
                assert daemon.stdout is not None
                ports[name] = json.loads(daemon.stdout.readline())["address"]
        job = Job(
            name="first",
            parties={"bank": JobParty(role="active")}
            | {name: JobParty(ports[name], role=HELPERS.get(name, "passive")) for name in ("shop", *HELPERS)},
            alignment="hmac_csp",
            protocol=protocol,
            training=TrainingConfig(objective="binary", n_estimators=trees, max_depth=6, max_bin=64),
        )
        (folder / "job.toml").write_text(commented_toml(job, "the job"))
        began = time.perf_counter()
        driver = start("bank", "train", "job.toml", "--config", "bank.toml")
        peaks = dict.fromkeys(processes, 0.0)
        watcher = threading.Thread(target=watch, args=(processes, driver, peaks))
        watcher.start()
        output, _ = driver.communicate()
        watcher.join()
        if driver.returncode:
            sys.exit(f"the job ended with {driver.returncode}")
        runs = {name: RunFolder.open(folder / f"runs-{name}", "first") for name in OWNERS}
        return {
            "engine": engine,
            "batches": runs["bank"].batches,
            "common_rows": runs["bank"].rows,
            "seconds_in_all": round(time.perf_counter() - began, 1),
            "seconds": {stage: round(took, 1) for stage, took in json.loads(output)["seconds_by_stage"].items()},
            "memory_mb": {name: round(peak) for name, peak in peaks.items()},
            "model_sha256": join({name: each.load_share() for name, each in runs.items()}).sha256(),
        }
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()


def watch(
    processes: Mapping[str, subprocess.Popen[str]], driver: subprocess.Popen[str], peaks: dict[str, float]
) -> None:
    """Peaks of each process's own memory, until the driver ends."""
    while driver.poll() is None:
        for name, process in processes.items():
            try:
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            except OSError:
                continue
            own = next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)
            peaks[name] = max(peaks[name], own / 1024)
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--engines", nargs="+", default=["disk", "local"])
    parser.add_argument("--protocol", default="plain")
    parser.add_argument("--trees", type=int, default=1)
    chosen = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        init_authority(root / "certs")
        for name in EVERYONE:
            issue(root / "certs", name, ["localhost", "127.0.0.1"])
        for rows in chosen.rows:
            tables = root / f"tables-{rows}"
            write(tables, rows)
            for engine in chosen.engines:
                folder = root / f"{engine.partition(':')[0]}-{rows}"
                folder.mkdir()
                found.append({"rows": rows, **run(folder, tables, engine, chosen.protocol, chosen.trees)})
                note(json.dumps(found[-1]))
            if len({each["model_sha256"] for each in found if each["rows"] == rows}) > 1:
                sys.exit(f"the engines gave different models of {rows} rows")
    report({"protocol": chosen.protocol, "trees": chosen.trees, "columns": COLUMNS, "runs": found})


if __name__ == "__main__":
    main()
