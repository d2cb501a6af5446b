"""Twenty participants of `secagg` as processes of their own, over mutual TLS, and a server that drives their job.

    python tests/drill/participants.py [--participants 20] [--trees 3]

Prints one JSON object: how many parties ended with the model of the same job in one process, the job's seconds, the
CPU seconds of all processes together, and the most bytes of messages that a participant sent and received.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from forked import Process
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.party.simulation import simulate_training
from veilboost.wire.transcript import read_transcript

HUB, ROWS = "hub", 100


def write_party(folder: Path, name: str, everyone: list[str], at: int) -> None:
    issue(folder, name, ["localhost", "127.0.0.1"])
    data = ""
    if name != HUB:
        rng = np.random.default_rng(at)
        values = rng.normal(size=(2, ROWS)).astype(np.float32)
        label = (values.sum(axis=0) + rng.normal(size=ROWS) > 0).astype(np.int64)
        ids = np.arange(ROWS) + at * ROWS
        table = pa.table({"id": ids, "x": values[0], "z": values[1], "late": label})
        pq.write_table(table, folder / f"{name}.parquet")
        data = f'[data]\npath = "{name}.parquet"\nid = "id"\nlabel = "late"\n'
    peers = "".join(f'{other} = ["any"]\n' for other in everyone if other != name)
    (folder / f"{name}.toml").write_text(
        f'name = "{name}"\nlisten = "127.0.0.1:0"\nruns = "runs-{name}"\nn_jobs = 1\n'
        f'[certificates]\ncert = "{name}.crt"\nkey = "{name}.key"\nca = "ca.crt"\n{data}'
        "[limits]\nwait_seconds = 120\nrequest_seconds = 300\n"
        f'[policy]\nprotocols = ["secagg"]\nallow_unprotected = ["secagg"]\n[policy.peers]\n{peers}'
    )


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(folder: Path, participants: int, trees: int) -> dict[str, object]:
    names = [f"p{at:02d}" for at in range(participants)]
    init_authority(folder)
    for at, name in enumerate((HUB, *names)):
        write_party(folder, name, [HUB, *names], at)
    daemons = {name: Process("party", "serve", "--config", f"{name}.toml", "--json", folder=folder) for name in names}
    try:
        where = {name: json.loads(daemon.stdout.readline())["address"] for name, daemon in daemons.items()}
        parties = "".join(f'[parties.{name}]\naddress = "{address}"\n' for name, address in where.items())
        (folder / "job.toml").write_text(
            f'name = "credit"\nprotocol = "secagg"\n[parties.{HUB}]\nrole = "server"\n{parties}'
            f'[training]\nobjective = "binary"\nn_estimators = {trees}\nmax_depth = 3\nmax_bin = 16\n'
        )
        job = load_job(folder / "job.toml")
        processes = [os.getpid(), *(daemon.pid for daemon in daemons.values())]
        began, used = time.perf_counter(), sum(map(processor_seconds, processes))
        with coordinate(load_party(folder / f"{HUB}.toml"), job) as driver:
            driver.train()
        seconds, used = time.perf_counter() - began, sum(map(processor_seconds, processes)) - used
        runs = {name: RunFolder(folder / f"runs-{name}" / "credit") for name in (HUB, *names)}
        shares = [run.load_share() for run in runs.values()]
        sizes = [sum(entry.size for entry in read_transcript(runs[name].path / "transcript")) for name in names]
    finally:
        for daemon in daemons.values():
            daemon.kill()
    tables = [load_party(folder / f"{name}.toml").own_data.load() for name in names]
    expected = simulate_training(dict(zip(names, tables, strict=True)), "server", "secagg", job.training).model.sha256()
    same = sum(join({share.party: share}).sha256() == expected for share in shares)
    return {
        "participants": participants,
        "trees": trees,
        "seconds": seconds,
        "cpu_seconds": used,
        "bytes_of_a_participant": max(sizes),
        "same_model": same,
        "of": len(shares),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--participants", type=int, default=20)
    parser.add_argument("--trees", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="participants-") as folder:
        found = run(Path(folder), options.participants, options.trees)
    print(json.dumps(found))
    raise SystemExit(0 if found["same_model"] == found["of"] else 1)


if __name__ == "__main__":
    main()
