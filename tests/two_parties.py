"""A bank that drives and a shop that runs as a daemon, in one process, over real TLS."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from veilboost.party.certs import init_authority, issue
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import Job, read_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings, load_party

TWO = ("bank", "shop")


def make_two(folder: Path) -> Path:
    """Certificates and tables of both parties, and new.parquet: rows for a prediction of the bank."""
    init_authority(folder)
    for party in TWO:
        issue(folder, party, [])
    write_tables(folder)
    return folder


def write_tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for party in TWO:
        table: dict[str, Any] = {"id": [f"c{at:03d}" for at in range(200)], f"x_{party}": rng.normal(size=200)}
        if party == "bank":
            table["label"] = rng.integers(0, 2, size=200)
        else:
            table["id"] = table["id"][20:] + [f"d{at:03d}" for at in range(20)]
            table["shade"] = np.array(["crimson", "turquoise"])[rng.integers(2, size=200)]
        pq.write_table(pa.table(table), folder / f"{party}.parquet")
        if party == "bank":
            pq.write_table(pa.table(table).slice(30, 10).drop("label"), folder / "new.parquet")


def settings_of(folder: Path, party: str, pins: tuple[str, ...] = ("any",), certificates: str = "", more: str = ""):
    """The settings of one party, with these pins for the other, more keys of [certificates] and more tables."""
    other = "shop" if party == "bank" else "bank"
    file = folder / f"{party}.toml"
    file.write_text(f"""
name = "{party}"
listen = "127.0.0.1:0"
runs = "runs-{party}"
[certificates]
cert = "{party}.crt"
key = "{party}.key"
ca = "ca.crt"
{certificates}
[data]
path = "{party}.parquet"
id = "id"
{'label = "label"' if party == "bank" else ""}
[limits]
connect_seconds = 5
[policy]
protocols = ["plain"]
allow_unprotected = ["plain"]
[policy.peers]
{other} = {list(pins)}
{more}
""")
    return load_party(file)


@contextmanager
def running(settings: PartySettings) -> Generator[Daemon]:
    daemon = Daemon(settings)
    try:
        yield daemon
    finally:
        daemon.stop()


def job_with(daemon: Daemon, name: str = "first", more: str = "") -> Job:
    return read_job(f"""
name = "{name}"
protocol = "plain"
alignment = "ecdh"
{more}
[parties.bank]
role = "active"
[parties.shop]
address = "127.0.0.1:{daemon.port}"
[training]
n_estimators = 2
max_depth = 2
""")


def trained(bank: PartySettings, job: Job) -> RunFolder:
    with coordinate(bank, job) as coordinator:
        run, _ = coordinator.train()
    assert run.status["state"] == "finished"
    return run
