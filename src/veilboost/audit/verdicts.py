"""What each status rests on: the decisive attack of every protocol, for each victim.

A test runs it at the protocol's default parameters and fails where the status no longer fits what it finds: where
`broken` resists, or `sound` and `heuristic` fall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veilboost.audit.attacks import (
    Attack,
    feature_order,
    histogram_bins,
    instance_clusters,
    masked_split_likelihood,
    masked_stacking,
    noisy_gradients,
    reported_buckets,
    smm1_columns,
    smm2_columns,
    smm2_stacking,
)


@dataclass(frozen=True)
class Evidence:
    """The attack that decides, and whether it succeeds at default parameters and the size that the status speaks of.

    None stands for the experiment of `audit.lower_bound`: a proved epsilon is tried by measuring it from below.
    """

    attack: Attack | None
    succeeds: bool

    @property
    def name(self) -> str:
        return "lower bound on epsilon" if self.attack is None else self.attack.NAME


# protocol -> victim's role -> evidence. Horizontal protocols have attacks of their own.
DECISIVE: Mapping[str, Mapping[str, Evidence]] = {
    "plain": {"active": Evidence(instance_clusters, True), "passive": Evidence(histogram_bins, True)},
    "paillier": {"active": Evidence(instance_clusters, True), "passive": Evidence(histogram_bins, True)},
    "lattice": {"active": Evidence(instance_clusters, True), "passive": Evidence(histogram_bins, True)},
    "masked": {"active": Evidence(masked_stacking, True), "passive": Evidence(masked_split_likelihood, True)},
    "ldp": {"active": Evidence(noisy_gradients, False), "passive": Evidence(feature_order, True)},
    "smm1": {"active": Evidence(instance_clusters, True), "passive": Evidence(smm1_columns, True)},
    "smm2": {"active": Evidence(smm2_stacking, True), "passive": Evidence(smm2_columns, False)},
    "federboost": {"passive": Evidence(reported_buckets, False)},
    "elxgb": {"active": Evidence(noisy_gradients, True), "passive": Evidence(feature_order, True)},
    "sealed": {"active": Evidence(None, False), "passive": Evidence(feature_order, True)},
}
# Seconds of a tree over those of `plain`: 5000 rows, two parties of 10 columns, 32 bins, depth 4, default options, one
# process. Rounded: what a job will take, `veilboost plan` says.
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
}


def decisive(protocol: str) -> dict[str, str]:
    """The names of the attacks that a protocol's statuses rest on, by victim."""
    return {victim: evidence.name for victim, evidence in DECISIVE.get(protocol, {}).items()}
