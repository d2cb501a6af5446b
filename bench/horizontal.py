"""`secagg` with 5, 20 and 100 participants: CPU seconds per tree, and bytes of a participant per tree and per job.

    python bench/horizontal.py [--data FOLDER] [--set adult] [--participants 5 20 100] [--peers ENVIRONMENTS]

All participants run in one process, one after the other, so CPU seconds are those of all parties together. Seconds and
bytes per tree are the difference of two jobs of `--few` and `--trees` trees: what both share cancels. `--peers` also
runs `bench/peers/table.py --only horizontal`, which measures FedTree and XGBoost's federated plugin beside `secagg`
with two participants, in environments under that folder.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import arguments, load, note, report
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.party.simulation import SERVER, simulate_training


def measured(table: PartyTable, participants: int, config: TrainingConfig) -> tuple[float, float]:
    """CPU seconds of the job, and the bytes that its first participant sent and received."""
    parts = np.array_split(np.random.default_rng(0).permutation(table.rows), participants)
    tables = {f"p{at}": table.take(np.sort(rows)) for at, rows in enumerate(parts)}
    began = time.process_time()
    run = simulate_training(tables, SERVER, "secagg", config)
    return time.process_time() - began, float(sum(entry.size for entry in run.transcripts["p0"].entries))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--set", default="adult")
    parser.add_argument("--participants", nargs="+", type=int, default=(5, 20, 100))
    parser.add_argument("--few", type=int, default=2)
    parser.add_argument("--trees", type=int, default=7)
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    options = parser.parse_args()
    table = load(options.data, options.set)
    found: list[dict[str, Any]] = []
    for participants in options.participants:
        few, many = (
            measured(table, participants, TrainingConfig(objective="binary", n_estimators=trees))
            for trees in (options.few, options.trees)
        )
        seconds, size = ((b - a) / (options.trees - options.few) for a, b in zip(few, many, strict=True))
        found.append(
            {
                "participants": participants,
                "cpu_s_per_tree": seconds,
                "bytes_per_participant_and_tree": size,
                "bytes_per_participant": many[1],
            }
        )
        note(f"{participants} participants: {seconds:.4f} CPU s and {size / 1e3:.1f} kB of a participant per tree")
    report({"set": options.set, "rows": table.rows, "trees": options.trees, "results": found})
    if options.peers is not None:
        peers = Path(__file__).parent / "peers" / "table.py"
        command = [sys.executable, str(peers), "--data", str(options.data), "--only", "horizontal"]
        folders = ["--environments", str(options.peers), "--out", str(options.peers / "results")]
        subprocess.run([*command, *folders], check=True)


if __name__ == "__main__":
    main()
