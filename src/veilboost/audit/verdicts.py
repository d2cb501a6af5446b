"""What each status rests on: the decisive attack of every protocol, for each victim and what it is about.

A test runs it at the protocol's default parameters and fails where the status no longer fits what it finds: where
`broken` resists, or `sound` and `heuristic` fall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veilboost.audit.attacks import (
    Attack,
    active_order,
    feature_order,
    histogram_bins,
    instance_clusters,
    mal_buckets,
    mal_ends,
    mal_extremes,
    mal_labels,
    masked_split_likelihood,
    masked_stacking,
    noisy_gradients,
    own_cuts,
    reported_buckets,
    secagg_shares,
    secagg_values,
    smm1_columns,
    smm2_columns,
    smm2_stacking,
)


@dataclass(frozen=True)
class Evidence:
    """The attack that decides, and whether it succeeds at default parameters and the size that the status speaks of.

    `subject` is what the protocol's statement calls it. No attack stands for the experiment of `audit.lower_bound`: a
    proved epsilon is tried by measuring it from below. `applies` is False where the run holds nothing that the attack
    could use, which is then the whole point.
    """

    victim: str
    subject: str
    attack: Attack | None
    succeeds: bool
    applies: bool = True

    @property
    def name(self) -> str:
        return "lower bound on epsilon" if self.attack is None else self.attack.NAME


OWN_FEATURES = Evidence("active", "features", active_order, True)
LABELS_BY_NODES = Evidence("active", "labels", instance_clusters, True)
FEATURES_BY_SUMS = Evidence("passive", "features", histogram_bins, True)
FEATURES_BY_CUTS = Evidence("passive", "features", feature_order, True)

DECISIVE: Mapping[str, tuple[Evidence, ...]] = {
    "plain": (LABELS_BY_NODES, OWN_FEATURES, FEATURES_BY_SUMS),
    "paillier": (LABELS_BY_NODES, OWN_FEATURES, FEATURES_BY_SUMS),
    "lattice": (LABELS_BY_NODES, OWN_FEATURES, FEATURES_BY_SUMS),
    "masked": (
        Evidence("active", "labels", masked_stacking, True),
        OWN_FEATURES,
        Evidence("passive", "features", masked_split_likelihood, True),
    ),
    "ldp": (Evidence("active", "labels", noisy_gradients, False), OWN_FEATURES, FEATURES_BY_CUTS),
    "smm1": (LABELS_BY_NODES, OWN_FEATURES, Evidence("passive", "features", smm1_columns, True)),
    "smm2": (
        Evidence("active", "labels", smm2_stacking, True),
        OWN_FEATURES,
        Evidence("passive", "features", smm2_columns, False),
    ),
    "federboost": (
        Evidence("active", "labels", own_cuts, False),
        Evidence("active", "features", active_order, False, applies=False),
        Evidence("passive", "features", reported_buckets, False),
    ),
    "elxgb": (Evidence("active", "labels", noisy_gradients, True), OWN_FEATURES, FEATURES_BY_CUTS),
    "sealed": (
        Evidence("active", "labels", None, False),
        OWN_FEATURES,
        Evidence("passive", "statistics of features", histogram_bins, True),
        Evidence("passive", "sides of winning cuts", feature_order, True),
    ),
    "mal": (
        Evidence("participant", "labels", mal_labels, True),
        Evidence("participant", "features", mal_buckets, True),
        Evidence("participant", "lowest and highest values", mal_extremes, False),
        Evidence("participant", "the lowest and highest value of all", mal_ends, True),
    ),
    "secagg": (
        Evidence("participant", "its own sums", secagg_shares, False),
        Evidence("participant", "rows", secagg_values, True),
    ),
}
# Seconds of a tree over those of `plain`: 5000 rows, two parties of 10 columns, 32 bins, depth 4, default options, one
# process; `elxgb` of five trees, the first under Paillier; `mal` of sixty, all done before the first; horizontal ones
# with five participants (bench/costs.py). Rounded: what a job will take, `veilboost plan` says.
COST: Mapping[str, float] = {
    "plain": 1,
    "paillier": 1000,
    "lattice": 8,
    "masked": 16,
    "ldp": 1.2,
    "federboost": 0.3,
    "smm1": 6,
    "smm2": 30,
    "sealed": 6.5,
    "elxgb": 350,
    "mal": 3,
    "secagg": 3,
}


def decisive(protocol: str) -> dict[tuple[str, str], str]:
    """The names of the attacks that a protocol's statuses rest on, by victim and subject."""
    return {(each.victim, each.subject): each.name for each in DECISIVE.get(protocol, ())}
