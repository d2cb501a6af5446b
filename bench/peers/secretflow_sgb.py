"""SecretFlow's SGB with Okamoto-Uchiyama encryption, two processes on loopback. Called by `bench/encryption.py`.

    python bench/peers/secretflow_sgb.py TRAIN.npz PARAMETERS.json

Runs in an environment with `secretflow==1.14.0b0` (Python 3.10). Production mode without Ray, as its wheel allows; the
label holder has the first block of columns. Trees are timed from one to the next after the first, which has start-up
in it, so at least two are trained.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import time
import traceback
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

PARTIES = ("alice", "bob")


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def party(name: str, ports: list[int], train: str, parameters: dict[str, Any], pipe: Any) -> None:
    import secretflow as sf
    import spu
    from secretflow.data import FedNdarray, PartitionWay
    from secretflow.ml.boost.sgb_v import Sgb

    addresses = {p: {"address": f"127.0.0.1:{port}"} for p, port in zip(PARTIES, ports, strict=True)}
    sf.init(
        cluster_config={"parties": addresses, "self_party": name},
        ray_mode=False,
        logging_level="warning",
    )
    alice, bob = sf.PYU("alice"), sf.PYU("bob")
    heu = sf.HEU(
        {
            "sk_keeper": {"party": "alice"},
            "evaluators": [{"party": "bob"}],
            "mode": "PHEU",
            "he_parameters": {"schema": "ou", "key_pair": {"generate": {"bit_size": parameters["key_bits"]}}},
        },
        spu.FieldType.FM128,
    )
    columns = np.load(train)["x"].shape[1]
    own = parameters["active_columns"]

    def block(path: str, first: int, last: int) -> np.ndarray:
        return np.load(path)["x"][:, first:last]

    def labels(path: str) -> np.ndarray:
        return np.load(path)["y"].reshape(-1, 1)

    x = FedNdarray({alice: alice(block)(train, 0, own), bob: bob(block)(train, own, columns)}, PartitionWay.VERTICAL)
    y = FedNdarray({alice: alice(labels)(train)}, PartitionWay.VERTICAL)
    stamps: list[tuple[float, float]] = []

    def after_tree(model: Any, epoch: int, log: Any) -> None:
        stamps.append((time.perf_counter(), time.process_time()))

    Sgb(heu).train(
        {
            "num_boost_round": parameters["trees"],
            "max_depth": parameters["max_depth"],
            "sketch_eps": 1 / parameters["max_bin"],
            "learning_rate": parameters["learning_rate"],
            "reg_lambda": parameters["reg_lambda"],
            "objective": "logistic",
            "first_tree_with_label_holder_feature": False,
        },
        x,
        y,
        dump_function=after_tree,
    )
    pipe.send(stamps)
    sf.shutdown()


def run_party(*arguments: Any) -> None:
    """Its communication threads would keep a process that failed alive."""
    try:
        party(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    with open(sys.argv[2]) as file:
        parameters = json.load(file)
    context = multiprocessing.get_context("spawn")
    ports, pipes, processes = free_ports(len(PARTIES)), [], []
    for name in PARTIES:
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=run_party, args=(name, ports, sys.argv[1], parameters, send))
        process.start()
        send.close()
        pipes.append(receive)
        processes.append(process)
    steps = np.array([np.diff(pipe.recv(), axis=0) for pipe in pipes])  # (parties, trees - 1, wall and CPU)
    result = {
        "seconds_per_tree": float(steps[:, :, 0].max(axis=0).min()),
        "cpu_seconds_per_tree": float(steps[:, :, 1].sum(axis=0).min()),
    }
    print("RESULT " + json.dumps(result), flush=True)
    for process in processes:
        process.join(60)


if __name__ == "__main__":
    main()
