"""Whether exact protocols still give the models on record, on three public data sets.

    python bench/golden.py [--data DIR] [--check]

Writes `bench/golden.json`: for each data set and protocol the hash of what the model computes. The file changes only in
a commit of its own that says why. --check writes nothing and fails where a model differs. `tests/golden/models.json`
holds the same for the small jobs of the contract tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from common import DEFAULT_DATA, among, load, note
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.model.joined import join
from veilboost.party.simulation import SERVER, simulate_training

RECORD = Path(__file__).with_suffix(".json")
SETS = {"default_credit": "binary", "adult": "binary", "california_housing": "regression"}
PROTOCOLS = {"plain": {}, "lattice": {}, "paillier": {"key_bits": 512, "allow_insecure_key": True}, "secagg": {}}


def model_hash(table: PartyTable, objective: str, protocol: str) -> str:
    """Two parties with half of the columns each, or three participants with a third of the rows each."""
    config = TrainingConfig(
        objective=objective, n_estimators=3, max_depth=5, max_bin=32, gradient_bits=20, options=PROTOCOLS[protocol]
    )
    if protocol == "secagg":
        rows = np.array_split(np.arange(table.rows), 3)
        tables = {f"participant{at}": table.take(part) for at, part in enumerate(rows)}
        return simulate_training(tables, SERVER, protocol, config).model.sha256()
    return join(simulate_training(among(table, 2), "party0", protocol, config, threads=1).shares).sha256()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of the parquet data sets")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a model differs")
    options = parser.parse_args()
    made: dict[str, dict[str, str]] = {}
    for name, objective in SETS.items():
        table, made[name] = load(options.data, name), {}
        for protocol in PROTOCOLS:
            made[name][protocol] = model_hash(table, objective, protocol)
            note(f"{name} {protocol} {made[name][protocol]}")
    if not options.check:
        RECORD.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        return
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    pairs = [(name, protocol) for name in SETS for protocol in PROTOCOLS]
    differ = [f"{name} {protocol}" for name, protocol in pairs if made[name][protocol] != record[name][protocol]]
    sys.exit(f"not the models on record: {', '.join(differ)}" if differ else 0)


if __name__ == "__main__":
    main()
