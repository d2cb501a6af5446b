"""XGBoost 3.2's own federated column split, two processes on loopback, without encryption. Called by `bench/wire.py`.

    python bench/peers/xgboost_federated.py DATA_FOLDER

Runs in an environment with the full `xgboost` wheel, which has the federated plugin. Gradients and the whole model go
to every party in the clear there.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import xgboost
import xgboost.federated

TREES, PARTIES = 30, 2


def data(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    table = pq.read_table(folder / "default_credit.parquet")
    names = [name for name in table.column_names if name not in ("id", "label")]
    order = np.sort(np.random.default_rng(0).permutation(table.num_rows)[:24000])
    x = np.stack([table[name].to_numpy() for name in names], axis=1).astype(np.float32)
    return x[order], table["label"].to_numpy().astype(np.float32)[order]


def serve(port: int) -> None:
    xgboost.federated.run_federated_server(n_workers=PARTIES, port=port)


def party(rank: int, port: int, folder: Path, pipe) -> None:  # type: ignore[no-untyped-def]
    x, y = data(folder)
    blocks = np.array_split(np.arange(x.shape[1]), PARTIES)
    arguments = {
        "dmlc_communicator": "federated",
        "federated_server_address": f"localhost:{port}",
        "federated_world_size": PARTIES,
        "federated_rank": rank,
    }
    with xgboost.collective.CommunicatorContext(**arguments):
        matrix = xgboost.DMatrix(
            x[:, blocks[rank]],
            label=y if rank == 0 else None,
            data_split_mode=xgboost.core.DataSplitMode.COL,
            nthread=1,
        )
        parameters = {
            "objective": "binary:logistic",
            "tree_method": "hist",
            "max_depth": 6,
            "max_bin": 32,
            "eta": 0.3,
            "nthread": 1,
        }
        stamps: list[float] = []

        class Clock(xgboost.callback.TrainingCallback):
            def after_iteration(self, model, epoch, evals_log):  # type: ignore[no-untyped-def]
                stamps.append(time.perf_counter())
                return False

        xgboost.train(parameters, matrix, TREES, callbacks=[Clock()])
        pipe.send(float(np.median(np.diff(stamps))))


def main() -> None:
    folder = Path(sys.argv[1])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(port,), daemon=True)
    server.start()
    time.sleep(2.0)
    pipes, processes = [], []
    for rank in range(PARTIES):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=party, args=(rank, port, folder, send))
        process.start()
        pipes.append(receive)
        processes.append(process)
    seconds = max(pipe.recv() for pipe in pipes)
    for process in processes:
        process.join()
    server.terminate()
    print("RESULT " + json.dumps({"seconds_per_tree": seconds, "version": xgboost.__version__}))


if __name__ == "__main__":
    main()
