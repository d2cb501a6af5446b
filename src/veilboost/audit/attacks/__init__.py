"""The attacks, a module for each family; those of other packages come by the entry point `veilboost.attacks`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from veilboost.audit.attack import Attack
from veilboost.audit.attacks.bins import histogram_bins
from veilboost.audit.attacks.federboost import own_cuts, reported_buckets
from veilboost.audit.attacks.gradients import gradient_signs, noisy_gradients
from veilboost.audit.attacks.mal import mal_buckets, mal_ends, mal_extremes, mal_labels, mal_zero_masks
from veilboost.audit.attacks.masked_features import masked_split_likelihood, masked_split_search
from veilboost.audit.attacks.masked_labels import masked_network, masked_projection, masked_sphere, masked_stacking
from veilboost.audit.attacks.nodes import instance_clusters
from veilboost.audit.attacks.order import active_order, feature_order
from veilboost.audit.attacks.secagg import secagg_shares, secagg_values
from veilboost.audit.attacks.smm1 import smm1_columns, smm1_labels
from veilboost.audit.attacks.smm2 import smm2_columns, smm2_program, smm2_stacking
from veilboost.protocols.spec import Evidence

BUILT_IN = (
    instance_clusters,
    noisy_gradients,
    gradient_signs,
    histogram_bins,
    feature_order,
    active_order,
    own_cuts,
    reported_buckets,
    masked_network,
    masked_projection,
    masked_sphere,
    masked_split_likelihood,
    masked_split_search,
    masked_stacking,
    smm1_columns,
    smm1_labels,
    smm2_columns,
    smm2_program,
    smm2_stacking,
    mal_zero_masks,
    mal_labels,
    mal_buckets,
    mal_ends,
    mal_extremes,
    secagg_shares,
    secagg_values,
)


@cache
def all_attacks() -> dict[str, Attack]:
    """Key to attack, ours first."""
    found = {each.key: each for each in BUILT_IN}
    for entry in entry_points(group="veilboost.attacks"):
        brought: Attack = entry.load()
        found.setdefault(brought.key, brought)
    return found


def name_of(evidence: Evidence) -> str:
    """What people call the attack that decides; its key, where nobody brought it."""
    if evidence.attack is None:
        return "lower bound on epsilon"
    found = all_attacks().get(evidence.attack)
    return evidence.attack if found is None else found.name
