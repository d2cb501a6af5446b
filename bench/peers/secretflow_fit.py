"""SecretFlow's SGB (Okamoto-Uchiyama encryption) and SS-XGB (secret sharing, SEMI2K), two processes on loopback.

    python bench/peers/secretflow_fit.py TRAIN.npz TEST.npz PARAMETERS.json

Runs in an environment with `secretflow==1.14.0b0` (Python 3.10). Production mode without Ray, as its wheel allows; the
label holder has the first block of columns. The parameter `system` is sgb or ss_xgb. Trees are timed from one to the
next after the first, which has start-up in it, so at least two are trained. `line` names the line between the parties
(see `bench/line.py`).
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from measure import given, loopback_bytes, peak_megabytes, print_result, quality

sys.path.insert(1, str(Path(__file__).parents[1]))
from line import line_to

PARTIES = ("alice", "bob")
OBJECTIVES = {"binary": "logistic", "regression": "linear"}
Addresses = dict[str, dict[str, str]]


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def sgb(sf: Any, parameters: dict[str, Any], addresses: Addresses) -> Any:
    """SecureBoost: the label holder's gradients under additively homomorphic encryption."""
    # What a user of sgb writes: from here
    import spu
    from secretflow.ml.boost.sgb_v import Sgb

    heu = sf.HEU(
        {
            "sk_keeper": {"party": "alice"},
            "evaluators": [{"party": "bob"}],
            "mode": "PHEU",
            "he_parameters": {"schema": "ou", "key_pair": {"generate": {"bit_size": parameters["key_bits"]}}},
        },
        spu.FieldType.FM128,
    )
    settings = {
        "num_boost_round": parameters["trees"],
        "max_depth": parameters["max_depth"],
        "sketch_eps": 1 / parameters["max_bin"],
        "learning_rate": parameters["learning_rate"],
        "reg_lambda": parameters["reg_lambda"],
        "objective": OBJECTIVES[parameters.get("task", "binary")],
        "first_tree_with_label_holder_feature": False,
    }
    return lambda x, y, after: Sgb(heu).train(settings, x, y, dump_function=after)
    # to here


def ss_xgb(sf: Any, parameters: dict[str, Any], addresses: Addresses) -> Any:
    """Everything but the owner of a split is computed on secret shares; the first party generates the triples."""
    # What a user of ss_xgb writes: from here
    from secretflow.ml.boost.ss_xgb_v import Xgb

    device = sf.SPU(
        {
            "nodes": [{"party": party, **place} for party, place in addresses.items()],
            "runtime_config": {"protocol": "SEMI2K", "field": "FM128"},
        }
    )
    settings = {
        "num_boost_round": parameters["trees"],
        "max_depth": parameters["max_depth"],
        "sketch_eps": 1 / parameters["max_bin"],
        "learning_rate": parameters["learning_rate"],
        "reg_lambda": parameters["reg_lambda"],
        "objective": OBJECTIVES[parameters.get("task", "binary")],
    }
    return lambda x, y, after: Xgb(device).train(settings, x, y, dump_function=after)
    # to here


def party(name: str, ports: list[int], device_ports: list[int], arguments: list[str], pipe: Any) -> None:
    sys.argv = arguments
    _, test, parameters = given()
    stamps: list[tuple[float, float, int]] = []

    def after_tree(model: Any, epoch: int, log: Any) -> None:
        stamps.append((time.perf_counter(), time.process_time(), loopback_bytes()))

    def addresses(chosen: list[int]) -> Addresses:
        return {p: {"address": f"127.0.0.1:{port}"} for p, port in zip(PARTIES, chosen, strict=True)}

    system = {"sgb": sgb, "ss_xgb": ss_xgb}[parameters.get("system", "sgb")]
    # What a user of either writes: from here
    import secretflow as sf
    from secretflow.data import FedNdarray, PartitionWay

    sf.init(
        cluster_config={"parties": addresses(ports), "self_party": name},
        ray_mode=False,
        logging_level="warning",
    )
    alice, bob = sf.PYU("alice"), sf.PYU("bob")
    own = parameters["active_columns"]

    def block(path: str, first: int, last: int | None) -> np.ndarray:
        return np.load(path)["x"][:, first:last]

    def labels(path: str) -> np.ndarray:
        return np.load(path)["y"].reshape(-1, 1)

    def columns(path: str) -> FedNdarray:
        return FedNdarray({alice: alice(block)(path, 0, own), bob: bob(block)(path, own, None)}, PartitionWay.VERTICAL)

    y = FedNdarray({alice: alice(labels)(sys.argv[1])}, PartitionWay.VERTICAL)
    train = system(sf, parameters, addresses(device_ports))
    model = train(columns(sys.argv[1]), y, after_tree)
    # to here
    scores = sf.reveal(model.predict(columns(sys.argv[2]), to_pyu=alice).partitions[alice])
    pipe.send((np.array(stamps), quality(parameters, test["y"], np.asarray(scores).ravel()), peak_megabytes()))
    sf.shutdown()


def run_party(*arguments: Any) -> None:
    """Its communication threads would keep a process that failed alive."""
    try:
        party(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    ports = free_ports(2 * len(PARTIES))  # of the parties, and of their devices for secret sharing
    with ExitStack() as lines:
        far = [lines.enter_context(line_to(port, given()[2].get("line", "none"))) for port in ports]
        for own, name in enumerate(PARTIES):
            reached_at = [near if at % len(PARTIES) == own else far[at] for at, near in enumerate(ports)]
            own_ports = (reached_at[: len(PARTIES)], reached_at[len(PARTIES) :])
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=run_party, args=(name, *own_ports, sys.argv, send))
            process.start()
            send.close()
            pipes.append(receive)
            processes.append(process)
        found = [pipe.recv() for pipe in pipes]
    steps = np.array([np.diff(stamps, axis=0) for stamps, _, _ in found])  # (parties, trees - 1, three readings)
    print_result(
        {
            "seconds_per_tree": float(steps[:, :, 0].max(axis=0).min()),
            "cpu_seconds_per_tree": float(steps[:, :, 1].sum(axis=0).min()),
            "bytes_per_tree": float(steps[0, :, 2].mean()),
            "quality": found[0][1],
            "megabytes": max(megabytes for _, _, megabytes in found),
        }
    )
    for process in processes:
        process.join(60)


if __name__ == "__main__":
    main()
