"""A tree's encrypted exchange on sf-heu's OU cipher, which SecretFlow uses. Called by `bench/encryption.py`.

    python bench/peers/heu_ou.py EXCHANGE.npz KEY_BITS REPEATS

Runs in an environment that has `sf-heu` (PyPI, Python 3.11). The file holds what a real tree asked of the passive
party: `pairs` (rows, 2) integer gradients, `bins` (rows, features) and, for every level, the rows of the nodes that are
summed (siblings are had by subtraction). g and h share a ciphertext. Fresh masks for the answers, and bytes for the
wire, are left out: the peer's time is the least it could be.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from heu import numpy as hnp
from heu import phe
from measure import peak_megabytes, print_result


class Clock:
    """CPU and wall seconds per step."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}

    def __call__(self, step: str, run: Callable[[], Any]) -> Any:
        cpu, wall = time.process_time(), time.perf_counter()
        result = run()
        self.cpu[step] = self.cpu.get(step, 0.0) + time.process_time() - cpu
        self.wall[step] = self.wall.get(step, 0.0) + time.perf_counter() - wall
        return result


def exchange(kit: Any, pairs: np.ndarray, bins: np.ndarray, levels: list[list[np.ndarray]]) -> tuple[Clock, bool]:
    """One tree; whether all sums came back exactly."""
    encoder, evaluator, clock, exact = kit.batch_integer_encoder(), kit.evaluator(), Clock(), True
    width = int(bins.max()) + 1
    ciphertexts = clock("encrypt", lambda: kit.encryptor().encrypt(kit.array(pairs, encoder)))
    for nodes in levels:
        members = [np.isin(np.arange(len(pairs)), rows).astype(np.int8) for rows in nodes]
        answers = clock(
            "sum",
            lambda members=members: evaluator.batch_feature_wise_bucket_sum(ciphertexts, members, bins, width, False),
        )
        for rows, answer in zip(nodes, answers, strict=True):
            sums = clock("decrypt", lambda answer=answer: kit.decryptor().decrypt(answer).to_numpy(encoder))
            for feature, found in enumerate(np.asarray(sums).reshape(bins.shape[1], width, 2)):
                for kind in range(2):
                    counted = np.bincount(bins[rows, feature], pairs[rows, kind], width)
                    exact &= bool(np.array_equal(found[:, kind], counted))
    return clock, exact


def main() -> None:
    stored, repeats = np.load(sys.argv[1]), int(sys.argv[3])
    levels = [np.split(stored[f"rows{k}"], np.cumsum(stored[f"counts{k}"])[:-1]) for k in range(int(stored["levels"]))]
    kit = hnp.setup(phe.SchemaType.OU, int(sys.argv[2]))
    bins = np.ascontiguousarray(stored["bins"].astype(np.int8))
    runs = [exchange(kit, stored["pairs"].astype(np.int64), bins, levels) for _ in range(repeats)]
    best = min((clock for clock, _ in runs), key=lambda clock: sum(clock.cpu.values()))
    result = {
        "cpu_seconds_per_tree": sum(best.cpu.values()),
        "seconds_per_tree": sum(best.wall.values()),
        "cpu_seconds_by_step": best.cpu,
        "exact": all(exact for _, exact in runs),
        "megabytes": peak_megabytes(),
    }
    print_result(result)


if __name__ == "__main__":
    main()
