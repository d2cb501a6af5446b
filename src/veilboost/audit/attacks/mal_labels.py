"""`mal`: labels from their sums per bucket, by linear programming and by projection.

Each sum is an equation about labels of zero and one. Up to about two rows for each equation there is one vector between
0 and 1 that fits, the labels themselves (Mangasarian and Recht, 2011). Beyond that the labels' projection onto the
buckets still ranks rows, and how many labels are 1 is a sum as well.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veilboost.audit.attacks.mal_rows import BucketSums, bucket_sums
from veilboost.audit.result import Outcome, balanced_accuracy
from veilboost.audit.solvers import between
from veilboost.audit.view import Truth, View
from veilboost.types import Float64Array, PartyName

NAME = "labels from sums per bucket"
PROTOCOLS = frozenset({"mal"})
ADVERSARY, VICTIM, DATA = "server", "participant", "labels"


def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    seen = bucket_sums(view, truth, victim)
    if seen is None:
        return None
    guess, only = labels_from_sums(seen, rng)
    how = "no other labels have these sums: they give" if only else "projected onto the buckets, masked labels give"
    found = balanced_accuracy(
        seen.labels,
        guess,
        f"{len(seen.inside)} sums about {seen.rows} rows; {how} {{value:.3f}} of the labels, where the other "
        f"participants' sums give {seen.baseline:.3f}",
    )
    # What masks leave open of a label is partly chance: a quarter of the way counts as success.
    return replace(found, baseline=seen.baseline, bar=seen.baseline + (1 - seen.baseline) / 4)


def labels_from_sums(seen: BucketSums, rng: np.random.Generator) -> tuple[Float64Array, bool]:
    """The label of each row, and whether no others fit: then opposite ends of what fits are the same point."""
    near, sums, highest = seen.projected(), seen.sums, np.ones(seen.rows)
    fitting = near.copy()
    for each in range(sums.shape[1]):
        towards = rng.normal(size=seen.rows)
        one, other = (between(sign * towards, seen.inside, sums[:, each], highest) for sign in (1.0, -1.0))
        if one is None or other is None or np.abs(one - other).max() > 1e-3:
            return seen.classes(near), False
        fitting[:, each] = one
    return seen.classes(fitting), True
