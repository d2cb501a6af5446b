"""`secagg` with 5, 20 and 100 participants: CPU seconds per tree, and bytes of a participant per tree and per job.

    python bench/horizontal.py [--data FOLDER] [--set adult] [--participants 5 20 100] [--dropouts]
        [--peers ENVIRONMENTS]

All participants run in one process, one after the other, so CPU seconds are those of all parties together. Seconds and
bytes per tree are the difference of two jobs of `--few` and `--trees` trees: what both share cancels. `--dropouts` also
measures jobs of which one participant may be lost, in turn with the others, and prints the ratio. `--peers` also
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


def config_of(trees: int, dropouts: int) -> TrainingConfig:
    options = {"dropouts": dropouts} if dropouts else {}
    return TrainingConfig(objective="binary", n_estimators=trees, options=options)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--set", default="adult")
    parser.add_argument("--participants", nargs="+", type=int, default=(5, 20, 100))
    parser.add_argument("--few", type=int, default=2)
    parser.add_argument("--trees", type=int, default=7)
    parser.add_argument("--dropouts", action="store_true", help="also with dropouts = 1")
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    options = parser.parse_args()
    table = load(options.data, options.set)
    found: list[dict[str, Any]] = []
    for participants in options.participants:
        by_dropouts: dict[int, list[tuple[float, ...]]] = {}
        for _ in range(options.repeats):
            for dropouts in (0, 1) if options.dropouts else (0,):
                few, many = (
                    measured(table, participants, config_of(trees, dropouts)) for trees in (options.few, options.trees)
                )
                per_tree = [(b - a) / (options.trees - options.few) for a, b in zip(few, many, strict=True)]
                by_dropouts.setdefault(dropouts, []).append((*per_tree, many[1]))
        for dropouts, runs in by_dropouts.items():
            seconds, size, whole = min(runs)
            found.append(
                {
                    "participants": participants,
                    "dropouts": dropouts,
                    "cpu_s_per_tree": seconds,
                    "cpu_ratio": seconds / min(by_dropouts[0])[0],
                    "bytes_per_participant_and_tree": size,
                    "bytes_per_participant": whole,
                }
            )
            note(
                f"{participants} participants, dropouts {dropouts}: {seconds:.4f} CPU s (ratio "
                f"{seconds / min(by_dropouts[0])[0]:.2f}) and {size / 1e3:.1f} kB of a participant per tree"
            )
    report({"set": options.set, "rows": table.rows, "trees": options.trees, "results": found})
    if options.peers is not None:
        peers = Path(__file__).parent / "peers" / "table.py"
        command = [sys.executable, str(peers), "--data", str(options.data), "--only", "horizontal"]
        command += ["--sets", "default_credit", "--lines"]
        folders = ["--environments", str(options.peers), "--out", str(options.peers / "results")]
        subprocess.run([*command, *folders], check=True)


if __name__ == "__main__":
    main()
