"""VeilBoost as two organisations would run it: a process each, over mutual TLS on loopback, one thread each.

    python bench/peers/ours_tls.py DATA_FOLDER PARAMETERS.json

DATA_FOLDER holds the training rows as `training.parquet`. The model is compared with that of one process.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[1]))

from measure import loopback_bytes, print_result

from veilboost.party.certs import init_authority, issue
from wire import training


def main() -> None:
    parameters = json.loads(Path(sys.argv[2]).read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        init_authority(folder)
        for party in ("bank", "shop"):
            issue(folder, party, ["localhost"])
        trees, before = parameters["trees"], loopback_bytes()
        run = training(
            folder,
            Path(sys.argv[1]),
            trees,
            parameters["protocol"],
            parameters["active_columns"],
            name="training",
            rows=None,
            objective=parameters["task"],
            options=parameters["options"],
            depth=parameters["max_depth"],
            line=parameters.get("line", "none"),
        )
        written = "\n".join((folder / file).read_text() for file in ("bank.toml", "shop.toml", "job.toml"))
    print_result(
        {
            "seconds_per_tree": run["seconds_per_tree_tls"],
            "bytes_per_tree": (loopback_bytes() - before) / trees,
            "same_model": run["same_model"],
            "lines": sum(bool(line.strip()) for line in written.splitlines()),
        }
    )


if __name__ == "__main__":
    main()
