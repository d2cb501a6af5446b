"""How many kernel vectors hide what: the attacks on one node of FedXGBoost-SMM, against the share of vectors.

    python bench/smm_attacks.py [--rows 200] [--seeds 10]

The node is the root of a first tree (two-valued gradients, equal hessians). Every number is a mean over seeds of the
share that the attacker gets right; `guessing` is what the most common value gives.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy.optimize import linprog

from common import note, report
from veilboost.crypto.csprng import Csprng
from veilboost.protocols.smm1.active import MaskedNode
from veilboost.protocols.smm1.passive import SplitColumns
from veilboost.protocols.vertical.smm import KernelOptions, draw_mask, masked, null_vectors

SHARES = (0.02, 0.1, 0.3, 0.45, 0.55, 0.7, 0.9)
ANCHORS = 20  # rows whose labels the attacker knows


def all_vectors(share: float, rows: int) -> KernelOptions:
    return KernelOptions(r=rows, share=share, revealed=1 - share)  # r' = r: what most favours the victim


def between(answer: np.ndarray, mask: np.ndarray, low: float, high: float, direction: np.ndarray) -> np.ndarray:
    """A point of answer + span(mask) between low and high."""
    room = 1e-6 * (high - low)
    found = linprog(
        direction @ mask,
        A_ub=np.vstack((mask, -mask)),
        b_ub=np.concatenate((high - answer, answer - low)) + room,
        bounds=(None, None),
        method="highs",
    )
    return answer if found.x is None else answer + mask @ found.x


def one_node(rows: int, share: float, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    source = Csprng(seed.to_bytes(8, "big"))
    label = rng.random(rows) < 0.3
    pairs = np.where(label[:, None], [-734_003, 220_200], [314_573, 220_200]).astype(np.int32)
    options = all_vectors(share, rows)
    direction = rng.normal(size=rows)

    # smm1: the active party wants the bits of a median split.
    left = rng.permutation(rows) < rows // 2
    (kernel,) = MaskedNode.make(pairs, options, source).kernels
    mask = draw_mask(kernel, options, 1, source)
    columns = SplitColumns(left[:, None].astype(np.uint8), np.zeros(1, dtype=np.int32))
    answer = np.empty((1, rows))
    columns.mask_into(mask, answer)  # the one column: rows of bin 0
    by_programming = between(answer[0], mask, 0.0, 1.0, direction)

    # smm1: a passive party wants labels; they are orthogonal to the vectors, as the constant is.
    known = rng.permutation(rows) < ANCHORS
    bounds = [(float(y), float(y)) if anchor else (0.0, 1.0) for y, anchor in zip(label, known, strict=True)]
    guess = linprog(direction, A_eq=kernel.T, b_eq=np.zeros(kernel.shape[1]), bounds=bounds, method="highs")
    guessed = np.zeros(rows) if guess.x is None else guess.x

    # smm2: a passive party wants labels.
    decoys = rng.integers(2, size=(rows, max(1, rows // 20))).astype(np.float64)
    vectors = min(kernel.shape[1], rows - decoys.shape[1] - 1)
    own = null_vectors(decoys, vectors, source)
    response = masked(draw_mask(own, options, 1, source), pairs.astype(np.float64))[:, 0]
    unmasked = between(response / 2**20, own, -0.7, 0.3, direction)
    return {
        "smm1 columns, rounding": float(np.mean((answer[0] > 0.5) == ~left)),
        "smm1 columns, linear programming": float(np.mean((by_programming > 0.5) == ~left)),
        "smm1 labels, linear programming": float(np.mean((guessed > 0.5)[~known] == label[~known])),
        "smm2 labels, signs": float(np.mean((response < 0) == label)),
        "smm2 labels, linear programming": float(np.mean((unmasked < 0) == label)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for share in SHARES:
        runs = [one_node(options.rows, share, seed) for seed in range(options.seeds)]
        found[str(share)] = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
        note(f"{share:4.2f}  " + "  ".join(f"{name} {value:.3f}" for name, value in found[str(share)].items()))
    report({"benchmark": "smm_attacks", "rows": options.rows, "guessing": {"columns": 0.5, "labels": 0.7}, **found})


if __name__ == "__main__":
    main()
