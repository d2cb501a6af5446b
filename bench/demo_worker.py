"""One measurement of `bench/demo.py`: prints the figures of one job of the demo as JSON.

    PYTHON bench/demo_worker.py LAYOUT LINE

Run with the interpreter of either checkout.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from against_worker import process_seconds
from line import line_to
from veilboost.experiment import demo
from veilboost.experiment.demo import ACTIVE, party_file, runs_of, serving, write_job, write_parties
from veilboost.party.federation import Federation
from veilboost.party.runs import read_exchanges


def children() -> list[int]:
    """The processes that this one started; Linux."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def once(layout: str, line: str) -> dict[str, Any]:
    """The figures of one job."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name, ExitStack() as running:
        folder = Path(name)
        parties = write_parties(folder, "lattice")
        others = [party for party in parties if party != ACTIVE]
        listening = running.enter_context(serving(*(party_file(folder, party) for party in others)))
        daemons = children()
        ports = [running.enter_context(line_to(int(each.rpartition(":")[2]), line)) for each in listening]
        addresses = {party: f"127.0.0.1:{port}" for party, port in zip(others, ports, strict=True)}
        if layout != "auto":
            demo.TRAINING = replace(demo.TRAINING, options={"layout": layout})
        federation = Federation(write_job(folder, "lattice", addresses), party_file(folder, ACTIVE))
        before = sum(map(process_seconds, [os.getpid(), *daemons]))
        done = federation.train()
        cpu_seconds = sum(map(process_seconds, [os.getpid(), *daemons])) - before
        run = runs_of(folder, parties)[ACTIVE]
        status, (_, exchanges) = json.loads((run / "status.json").read_text()), read_exchanges(run)
        sent, received = (
            sum(each.size for each in exchanges if (each.sender == ACTIVE) == own) / 1e6 for own in (True, False)
        )
        return {
            "seconds": done.seconds_by_stage["training"],
            "cpu_seconds": cpu_seconds,
            "mb_sent": sent,
            "mb_received": received,
            "layout": status.get("layout", ""),
        }


if __name__ == "__main__":
    print(json.dumps(once(*sys.argv[1:])))
