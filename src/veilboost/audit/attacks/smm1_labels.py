"""`smm1`: labels from the kernel vectors, for a passive party that knows some labels already.

In the first tree all hessians are equal, and gradients are p - y: vectors orthogonal to both are orthogonal to y. That
alone is also true of many other vectors between 0 and 1; known labels are what singles y out, where the vectors are
many enough.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome, balanced_accuracy
from veilboost.audit.view import Truth, View
from veilboost.protocols.common.kernels import KernelOptions
from veilboost.protocols.smm1.messages import Smm1Request
from veilboost.types import PartyName

NAME = "kernel vectors with some labels known"
PROTOCOLS = frozenset({"smm1"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"

KNOWN = 20  # rows whose labels the attacker knows beforehand
_ROWS = 4_000


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    from scipy.optimize import linprog  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    played = rounds(view, victim)
    if view.config.objective != "binary" or not played or not played[0].levels:
        return None
    root = played[0].levels[0]
    request, rows = root.request, int(root.build.counts[0])
    if not isinstance(request, Smm1Request) or request.halves[0] or not KNOWN < rows <= _ROWS:
        return None
    vectors = KernelOptions.from_dict(view.config.options).count(rows, 2)
    kernel = request.kernel[: rows * vectors].reshape(rows, vectors)
    labels = truth.labels(victim)[played[0].fit]
    known = rng.permutation(rows) < KNOWN
    bounds = np.where(known[:, None], labels[:, None], [0.0, 1.0])
    found = linprog(  # pyright: ignore[reportUnknownVariableType]
        rng.normal(size=rows), A_eq=kernel.T, b_eq=np.zeros(vectors), bounds=bounds, method="highs"
    )
    guess = np.zeros(rows) if found.x is None else (np.asarray(found.x) > 0.5).astype(np.float64)  # pyright: ignore
    return balanced_accuracy(
        labels[~known],
        guess[~known],
        f"{vectors} kernel vectors and {KNOWN} known labels give {{value:.3f}} of the other labels",
    )
