"""XGBoost 3.2's own federated mode, two processes on loopback and a server, without encryption.

    python bench/peers/xgboost_federated.py TRAIN.npz TEST.npz PARAMETERS.json

Runs in an environment with the full `xgboost` wheel, which has the federated plugin. The parameter `mode` divides by
columns (vertical; gradients and the whole model go to every party in the clear) or by rows (horizontal). The server
runs at the first party; `line` names the line over which the second reaches it (see `bench/line.py`).
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
import xgboost.federated
from measure import (
    categorical,
    given,
    loopback_bytes,
    peak_megabytes,
    print_result,
    processor_seconds,
    quality,
    xgboost_objective,
)

sys.path.insert(1, str(Path(__file__).parents[1]))
from line import line_to

PARTIES = 2


def serve(port: int) -> None:
    # What a user writes: from here
    xgboost.federated.run_federated_server(n_workers=PARTIES, port=port)
    # to here


def share(rank: int, x: np.ndarray, parameters: dict[str, Any], vertical: bool) -> np.ndarray:
    """This party's part: the first columns with the labels, or every second row."""
    if not vertical:
        return x[rank::PARTIES]
    own = parameters.get("active_columns", x.shape[1] // 2)
    return x[:, :own] if rank == 0 else x[:, own:]


def party(rank: int, port: int, arguments: list[str], pipe: Any) -> None:
    sys.argv = arguments
    train, test, parameters = given()
    vertical = parameters.get("mode", "vertical") == "vertical"
    x, y = share(rank, train["x"], parameters, vertical), train["y"]
    own = share(rank, np.arange(train["x"].shape[1])[None], parameters, vertical)[0] if vertical else range(x.shape[1])
    kinds = ["c" if column in categorical(parameters) else "q" for column in own]
    if not vertical:
        y = y[rank::PARTIES]
    stamps: list[tuple[float, float, int]] = []

    class Clock(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            stamps.append((time.perf_counter(), time.process_time(), loopback_bytes()))
            return False

    # What a user writes: from here
    connection = {
        "dmlc_communicator": "federated",
        "federated_server_address": f"localhost:{port}",
        "federated_world_size": PARTIES,
        "federated_rank": rank,
    }
    settings = {
        **xgboost_objective(parameters),
        "tree_method": "hist",
        "max_depth": parameters["max_depth"],
        "max_bin": parameters["max_bin"],
        "learning_rate": parameters["learning_rate"],
        "reg_lambda": parameters["reg_lambda"],
        "nthread": 1,
    }
    split = xgboost.core.DataSplitMode.COL if vertical else xgboost.core.DataSplitMode.ROW
    with xgboost.collective.CommunicatorContext(**connection):
        label = y if rank == 0 or not vertical else None
        data = xgboost.DMatrix(
            x, label=label, data_split_mode=split, nthread=1, feature_types=kinds, enable_categorical=True
        )
        model = xgboost.train(settings, data, parameters["trees"], callbacks=[Clock()])
        # to here
        held_out = test["x"] if not vertical else share(rank, test["x"], parameters, True)
        held = xgboost.DMatrix(held_out, data_split_mode=split, nthread=1, feature_types=kinds, enable_categorical=True)
        few = min(parameters.get("few_trees", 3), parameters["trees"])
        predicted = [model.predict(held, iteration_range=(0, trees)) for trees in (few, 0)]
        scores = [quality(parameters, test["y"], each) for each in predicted]
        pipe.send((np.array(stamps), scores, peak_megabytes()))


def answering(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(port,), daemon=True)
    server.start()
    while server.is_alive() and not answering(port):
        time.sleep(0.1)
    started = processor_seconds(server.pid or 0)
    pipes, processes = [], []
    with line_to(port, given()[2].get("line", "none")) as far:
        for rank, reached_at in enumerate((port, far)):
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=party, args=(rank, reached_at, sys.argv, send))
            process.start()
            send.close()
            pipes.append(receive)
            processes.append(process)
        found = [pipe.recv() for pipe in pipes]
        in_server = processor_seconds(server.pid or 0) - started
        for process in processes:
            process.join()
    server.terminate()
    steps = np.array([np.diff(stamps, axis=0) for stamps, _, _ in found])  # (parties, trees - 1, three readings)
    trees = steps.shape[1] + 1
    print_result(
        {
            "seconds_per_tree": float(np.median(steps[:, :, 0], axis=1).max()),
            "cpu_seconds_per_tree": float(steps[:, :, 1].mean(axis=1).sum()) + in_server / trees,
            "bytes_per_tree": float(steps[0, :, 2].mean()),
            "quality_few": found[0][1][0],
            "quality": found[0][1][1],
            "megabytes": max(megabytes for _, _, megabytes in found),
            "version": xgboost.__version__,
        }
    )


if __name__ == "__main__":
    main()
