"""`smm1`: labels from the kernel vectors, for a passive party that knows some labels already.

In the first tree all hessians are equal, and gradients are p - y: vectors orthogonal to both are orthogonal to y. That
alone is also true of many other vectors between 0 and 1; known labels are what singles y out, where the vectors are
many enough.
"""

from __future__ import annotations

import numpy as np

from veilboost.audit.attacks.recovered import scored, tells_two_classes
from veilboost.audit.replay import rounds
from veilboost.audit.result import Outcome
from veilboost.audit.solvers import between
from veilboost.audit.view import Truth, View
from veilboost.protocols.smm1.messages import Smm1Request
from veilboost.protocols.vertical.kernels import KernelOptions
from veilboost.types import PartyName

NAME = "kernel vectors with some labels known"
PROTOCOLS = frozenset({"smm1"})
ADVERSARY, VICTIM, DATA = "passive", "active", "labels"

KNOWN = 20  # rows whose labels the attacker knows beforehand
_ROWS = 4_000


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    played = rounds(view, victim)
    if not played or not tells_two_classes(view, played[0]) or not played[0].levels:
        return None
    root = played[0].levels[0]
    request, rows = root.request, int(root.build.counts[0])
    if not isinstance(request, Smm1Request) or request.halves[0] or not KNOWN < rows <= _ROWS:
        return None
    vectors = KernelOptions.from_dict(view.config.options).count(rows, 2)
    kernel = request.kernel[: rows * vectors].reshape(rows, vectors)
    labels = truth.labels(victim)[played[0].fit]
    known = rng.permutation(rows) < KNOWN
    told = -kernel[known].T @ labels[known]  # what the other rows have to bring the products back to 0
    found = between(rng.normal(size=rows - KNOWN), kernel[~known].T, told, np.ones(rows - KNOWN))
    guess = np.zeros(rows - KNOWN) if found is None else (found > 0.5).astype(np.float64)
    return scored(
        truth,
        victim,
        played[0].fit[~known],
        guess,
        f"{vectors} kernel vectors and {KNOWN} known labels give {{value:.3f}} of the other labels",
    )
