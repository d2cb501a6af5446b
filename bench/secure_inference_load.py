"""A load of users for `bench/elxgb.py`: daemons over mutual TLS on this machine, so many users at a time."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from veilboost.data import PartyTable
from veilboost.party.certs import init_authority, issue
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.messages import OpenService
from veilboost.party.settings import load_party
from veilboost.secure_inference.client import ServiceClient, publish
from veilboost.secure_inference.roles import ServiceUser
from veilboost.wire.channel import Peers

HELPERS = {"ta": "authority", "csp": "csp"}
NAMES = (*HELPERS, "shop", "bank", "user")
ROWS = 2000  # to train on; the load does not depend on it


def _write(folder: Path, name: str, ports: dict[str, int]) -> None:
    peers = "".join(
        f'[peers.{other}]\naddress = "127.0.0.1:{port}"\nconnect = "in"\n'
        for other, port in ports.items()
        if other != name
    )
    data = f'[data]\npath = "{name}.parquet"\nid = "id"\n' if name in ("bank", "shop") else ""
    data += 'label = "label"\n' if name == "bank" else ""
    allowed = "\n".join(f'{other} = ["any"]' for other in NAMES if other != name)
    (folder / f"{name}.toml").write_text(
        f'name = "{name}"\nlisten = "127.0.0.1:{ports.get(name, 0)}"\nruns = "runs-{name}"\nthreads = 2\n{peers}'
        f'[certificates]\ncert = "{name}.crt"\nkey = "{name}.key"\nca = "ca.crt"\n{data}'
        '[policy]\nprotocols = ["elxgb"]\nallow_unprotected = ["elxgb"]\npredictions_per_day = 1000000\n'
        f'serve_users = ["bank"]\n[policy.peers]\n{allowed}\n'
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def load_over_tls(table: PartyTable, at_once: int = 32) -> dict[str, Any]:
    """Train (T = 5, D = 3), publish, take the passive party away, and let all users ask in the same moment."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        init_authority(folder)
        ports = {each: _free_port() for each in NAMES if each != "user"}
        for each in NAMES:
            issue(folder, each, ["localhost"])
            _write(folder, each, ports)
        few = table.take(np.arange(ROWS))
        columns = {column.name: column.values for column in few.columns if column.categories is None}
        half = len(columns) // 2
        for owner, own in (("bank", list(columns)[:half]), ("shop", list(columns)[half:])):
            own_columns = {"id": [str(k) for k in range(ROWS)], **{key: columns[key] for key in own}}
            label = {"label": few.label.astype(np.int64)} if owner == "bank" and few.label is not None else {}
            pq.write_table(pa.table(own_columns | label), folder / f"{owner}.parquet")
        parties = "".join(
            f'[parties.{each}]\naddress = "127.0.0.1:{ports[each]}"\nrole = "{HELPERS.get(each, "passive")}"\n'
            for each in ("shop", *HELPERS)
        )
        (folder / "job.toml").write_text(
            f'name = "load"\nalignment = "hmac_csp"\nprotocol = "elxgb"\n[parties.bank]\nrole = "active"\n{parties}'
            '[training]\nobjective = "binary"\nn_estimators = 5\nmax_depth = 3\n'
            'max_bin = 32\ncategories = "ordinal"\n[training.options]\nbackend = "lattice"\n'
        )
        daemons = {each: Daemon(load_party(folder / f"{each}.toml")) for each in ("ta", "csp", "shop")}
        try:
            bank = load_party(folder / "bank.toml")
            with coordinate(bank, load_job(folder / "job.toml")) as driver:
                driver.train()
            known = publish(bank, "load", "ta", "csp", "lattice")
            daemons.pop("shop").stop()
            daemons["bank"] = Daemon(bank)
            return {"users": at_once, "M": known.directory.size, **_ask(folder, few, at_once)}
        finally:
            for daemon in daemons.values():
                daemon.stop()


def _ask(folder: Path, table: PartyTable, at_once: int) -> dict[str, Any]:
    client = ServiceClient(load_party(folder / "user.toml"), OpenService("load", "ta", ""))
    together, waited = threading.Barrier(at_once), [0.0] * at_once

    def ask(k: int) -> None:
        user = ServiceUser(Peers({"authority": client.way("ta"), "active": client.way("bank")}))
        own = {column.name: column.take(np.array([k])) for column in table.columns}
        together.wait()
        began = time.perf_counter()
        user.predict(own, 1)
        waited[k] = time.perf_counter() - began

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(at_once)]
    with client:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return {
        "answered": sum(value > 0 for value in waited),
        "median_wait": float(np.median(waited)),
        "longest_wait": max(waited),
    }
