"""How fast the wire is: a large message and a small round trip over loopback mutual TLS, and what TLS costs a tree.

    python bench/wire.py --data DIR [--xgboost PYTHON]

`training` trains `plain` on default_credit once in one process and once with the passive party in a process of its own,
over TLS, with checkpoints after every tree. --xgboost names a Python with the full xgboost wheel (federated plugin),
whose own federated column split, without encryption, is then measured in the same run.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow.parquet as pq

from common import arguments, as_matrix, hold_out, load, note, report
from line import line_to
from veilboost.config import TrainingConfig
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.hub import tls_files
from veilboost.party.identity import load_identity, peer_identity, server_name
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.party.simulation import simulate_training
from veilboost.types import UInt8Array
from veilboost.wire.grpc import HELLO_BYTES, Greeting, LinkServer, dial
from veilboost.wire.message import ArraySpec, Catalogue, Done, Message, Reveals, encode
from veilboost.wire.rpc import Caller, Kind, Packet
from veilboost.wire.transcript import Transcript

MOST = 1 << 30


@dataclass(frozen=True)
class Load(Message):
    reveals: ClassVar[tuple[Reveals, ...]] = ()
    data: Annotated[UInt8Array, ArraySpec("uint8", 1)]


def _answer(folder: Path, pipe: Any) -> None:
    identity = load_identity(folder / "shop.crt", folder / "shop.key", folder / "ca.crt")
    done = encode(Done())

    def welcome(link: Any, peer: Any) -> Any:
        return lambda p: Packet(Kind.ANSWER, p.session, p.number, done)

    server = LinkServer("127.0.0.1:0", lambda: tls_files(identity), peer_identity, lambda *_: b"", welcome, MOST)
    pipe.send(server.port)
    pipe.recv()
    server.stop()


def messages(folder: Path, megabytes: int, repeats: int) -> dict[str, float]:
    """Throughput of one large message and the median of small round trips."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_answer, args=(folder, theirs))
    process.start()
    identity = load_identity(folder / "bank.crt", folder / "bank.key", folder / "ca.crt")
    address = f"127.0.0.1:{ours.recv()}"
    greeting = Greeting("shop", bytes(HELLO_BYTES), lambda proof: None, 60.0)
    caller = Caller(
        "shop",
        lambda left: dial(address, tls_files(identity), server_name("shop"), MOST, greeting),
        bytes(16),
        Catalogue([Done]),
        Transcript("bank"),
        60.0,
    )
    large = Load(np.frombuffer(os.urandom(megabytes << 20), dtype=np.uint8))
    caller.send(Done())()
    rates, trips = [], []
    for _ in range(repeats):
        began = time.perf_counter()
        caller.send(large)()
        rates.append((megabytes << 20) / (time.perf_counter() - began) / 1e6)
    for _ in range(200):
        began = time.perf_counter()
        caller.send(Done())()
        trips.append(time.perf_counter() - began)
    caller.close()
    ours.send(None)
    process.join()
    return {"megabytes_per_second": max(rates), "round_trip_ms": float(np.median(trips)) * 1e3}


def _serve(file: Path, pipe: Any) -> None:
    daemon = Daemon(load_party(file))
    pipe.send(daemon.port)
    pipe.recv()
    daemon.stop()


def _write_parties(
    folder: Path, data: Path, protocol: str, own: int, threads: int, name: str, rows: int | None
) -> None:
    table = pq.read_table(data / f"{name}.parquet")
    order = np.random.default_rng(0).permutation(table.num_rows)[:rows]
    table = table.take(np.sort(order))
    names = [name for name in table.column_names if name not in ("id", "label")]
    for party, columns in (("bank", [*names[:own], "label"]), ("shop", names[own:])):
        pq.write_table(table.select(["id", *columns]), folder / f"{party}.parquet")
        (folder / f"{party}.toml").write_text(f"""
name = "{party}"
listen = "127.0.0.1:0"
runs = "runs-{party}"
n_jobs = {threads}
[certificates]
cert = "{party}.crt"
key = "{party}.key"
ca = "ca.crt"
[data]
path = "{party}.parquet"
id = "id"
{'label = "label"' if party == "bank" else ""}
[policy]
protocols = ["{protocol}"]
allow_unprotected = ["{protocol}"]
[policy.peers]
{"shop" if party == "bank" else "bank"} = ["any"]
""")


def training(
    folder: Path,
    data: Path,
    trees: int,
    protocol: str = "plain",
    own: int = 12,
    threads: int = 1,
    name: str = "default_credit",
    rows: int | None = 24_000,
    objective: str = "binary",
    options: Mapping[str, Any] | None = None,
    depth: int = 6,
    line: str = "none",
) -> dict[str, Any]:
    """The same job in one process and in two, over a line; the active party has the first `own` columns.

    `rows`: so many, drawn by chance; None for all.
    """
    _write_parties(folder, data, protocol, own, threads, name, rows)
    own_options = "\n".join(f"{key} = {json.dumps(value)}" for key, value in (options or {}).items())
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(folder / "shop.toml", theirs), daemon=True
    )
    process.start()
    with line_to(ours.recv(), line) as port:
        (folder / "job.toml").write_text(f"""
name = "bench"
alignment = "prealigned"
protocol = "{protocol}"
[parties.bank]
role = "active"
[parties.shop]
address = "127.0.0.1:{port}"
[training]
objective = "{objective}"
n_estimators = {trees}
max_depth = {depth}
max_bin = 32
[training.options]
{own_options}
""")
        settings, job = load_party(folder / "bank.toml"), load_job(folder / "job.toml")
        with coordinate(settings, job) as driver:
            began = time.perf_counter()
            _, outcome = driver.train()
            whole = time.perf_counter() - began
    ours.send(None)
    process.join()
    parts = {name: RunFolder(folder / f"runs-{name}" / "bench").load_share() for name in ("bank", "shop")}
    tables = {name: load_party(folder / f"{name}.toml").data.load() for name in ("bank", "shop")}
    config = TrainingConfig.from_dict(job.training.to_dict())
    alone = simulate_training(tables, "bank", protocol, config, threads=threads)
    plain = simulate_training(tables, "bank", "plain", replace(config, options={}), threads=threads)
    over_tls = float(np.median([r.seconds for r in outcome.history]))
    in_process = float(np.median([r.seconds for r in alone.history]))
    return {
        "seconds_per_tree_tls": over_tls,
        "seconds_per_tree_in_process": in_process,
        "extra_ms_per_tree": (over_tls - in_process) * 1e3,
        "whole_job_seconds": whole,
        "same_model": join(parts).sha256() == join(alone.shares).sha256(),
        "same_as_plain": join(parts).sha256() == join(plain.shares).sha256(),
    }


def xgboost_federated(python: str, data: Path, trees: int) -> subprocess.CompletedProcess[str]:
    """XGBoost's federated mode on as many rows, with its half of the columns at each party."""
    table = load(data, "default_credit")
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name) / file for file in ("train.npz", "test.npz", "parameters.json")]
        for file, rows in zip(files, hold_out(table.rows), strict=False):
            np.savez(file, x=as_matrix(table.columns)[rows], y=table.label[rows].astype(np.float32))
        files[2].write_text(json.dumps({**TrainingConfig(max_bin=32).to_dict(), "trees": trees}))
        peer = Path(__file__).parent / "peers" / "xgboost_federated.py"
        command = [python, str(peer), *map(str, files)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--trees", type=int, default=30)
    parser.add_argument("--xgboost", help="a Python with the full xgboost 3.2 wheel")
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "wire"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        init_authority(folder)
        for party in ("bank", "shop"):
            issue(folder, party, ["localhost"])
        result["messages"] = messages(folder, options.megabytes, options.repeats)
        if (options.data / "default_credit.parquet").exists():
            result["training"] = training(folder, options.data, options.trees)
        else:
            note(f"skipped training: default_credit is not in {options.data}")
    if options.xgboost is None:
        note("skipped XGBoost's federated mode: no --xgboost PYTHON given (pip install 'xgboost==3.2.*')")
    else:
        done = xgboost_federated(options.xgboost, options.data, options.trees)
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        result["xgboost_federated"] = json.loads(lines[-1].removeprefix("RESULT ")) if lines else None
        if not lines:
            note(f"skipped XGBoost's federated mode: {(done.stderr.strip().splitlines() or ['no result'])[-1]}")
        elif "training" in result:
            theirs = result["xgboost_federated"]["seconds_per_tree"]
            result["times_xgboost_federated"] = result["training"]["seconds_per_tree_tls"] / theirs
    report(result)


if __name__ == "__main__":
    main()
