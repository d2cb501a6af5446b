"""Eight passive parties at once, job after job on the same daemons: nothing piles up."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.party.simulation import simulate_training

PARTIES = ["bank", *(f"shop{k}" for k in range(8))]


def write_party(folder: Path, name: str, columns: dict[str, np.ndarray]) -> None:
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    others = "\n".join(f'{other} = ["any"]' for other in PARTIES if other != name)
    (folder / f"{name}.toml").write_text(f"""
name = "{name}"
listen = "127.0.0.1:0"
runs = "runs-{name}"
n_jobs = 1
[certificates]
cert = "{name}.crt"
key = "{name}.key"
ca = "ca.crt"
[data]
path = "{name}.parquet"
id = "id"
{'label = "y"' if name == "bank" else ""}
[policy]
protocols = ["plain"]
allow_unprotected = ["plain"]
[policy.peers]
{others}
""")


def resources() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_eight_passive_parties_and_job_after_job(tmp_path):
    init_authority(tmp_path)
    rng = np.random.default_rng(0)
    ids = np.arange(400)
    data = {name: rng.normal(size=400).astype(np.float32) for name in PARTIES}
    y = (sum(data.values()) + rng.normal(size=400) > 0).astype(np.int64)
    for name in PARTIES:
        issue(tmp_path, name, ["localhost"])
        write_party(tmp_path, name, {"id": ids, f"x_{name}": data[name]} | ({"y": y} if name == "bank" else {}))
    daemons = {name: Daemon(load_party(tmp_path / f"{name}.toml")) for name in PARTIES[1:]}
    after = []
    try:
        for number in range(4):
            addresses = "\n".join(
                f'[parties.{name}]\naddress = "127.0.0.1:{daemon.port}"' for name, daemon in daemons.items()
            )
            (tmp_path / "job.toml").write_text(f"""
name = "job{number}"
[parties.bank]
role = "active"
{addresses}
[training]
objective = "binary"
n_estimators = 4
max_depth = 3
""")
            job = load_job(tmp_path / "job.toml")
            with coordinate(load_party(tmp_path / "bank.toml"), job) as driver:
                driver.train()
            after.append((*resources(), resident_mb()))
    finally:
        for daemon in daemons.values():
            daemon.stop()
    parts = {name: RunFolder(tmp_path / f"runs-{name}" / "job0").load_share() for name in PARTIES}
    tables = {name: load_party(tmp_path / f"{name}.toml").data.load() for name in PARTIES}
    assert join(parts).sha256() == join(simulate_training(tables, "bank", "plain", job.training).shares).sha256()
    (files, threads, _), (_, _, second), (last_files, last_threads, last) = after[0], after[1], after[-1]
    assert last_files <= files + 2, f"file handles grow: {after}"
    assert last_threads <= threads + 2, f"threads grow: {after}"
    assert last - second < 30, f"memory grows: {after}"
