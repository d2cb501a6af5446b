"""All attacks, one module per family, and the audit, which runs every attack that applies to a party's view.

Other packages add attacks through the entry point `veilboost.attacks`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points

import numpy as np

from veilboost.audit.attack import Attack, Finding, over_runs
from veilboost.audit.attacks.alignment import csp_active_ids, csp_passive_ids
from veilboost.audit.attacks.bins import histogram_bins
from veilboost.audit.attacks.dropouts import secagg_differences
from veilboost.audit.attacks.gradients import gradient_signs, noisy_gradients
from veilboost.audit.attacks.horizontal import (
    mal_buckets,
    mal_ends,
    mal_extremes,
    mal_labels,
    mal_zero_masks,
    secagg_shares,
    secagg_values,
)
from veilboost.audit.attacks.masked import (
    masked_network,
    masked_projection,
    masked_sphere,
    masked_split_likelihood,
    masked_split_search,
    masked_stacking,
)
from veilboost.audit.attacks.nodes import (
    active_order,
    feature_order,
    instance_clusters,
    own_cuts,
    pooled_clusters,
    reported_buckets,
)
from veilboost.audit.attacks.noise import seeded_keys
from veilboost.audit.attacks.predictions import explained_order, membership, membership_horizontal, path_restriction
from veilboost.audit.attacks.smm import smm1_columns, smm1_labels, smm2_columns, smm2_program, smm2_stacking
from veilboost.audit.view import POOLED, USER, Truth, View, without_messages
from veilboost.protocols.spec import Evidence
from veilboost.types import PartyName

BUILT_IN = (
    instance_clusters,
    pooled_clusters,
    noisy_gradients,
    gradient_signs,
    histogram_bins,
    feature_order,
    active_order,
    own_cuts,
    reported_buckets,
    seeded_keys,
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
    secagg_differences,
    membership,
    membership_horizontal,
    path_restriction,
    explained_order,
    csp_active_ids,
    csp_passive_ids,
)


@cache
def all_attacks() -> dict[str, Attack]:
    """Attacks by key, built-in ones first."""
    found = {each.key: each for each in BUILT_IN}
    for entry in entry_points(group="veilboost.attacks"):
        other: Attack = entry.load()
        found.setdefault(other.key, other)
    return found


def name_of(evidence: Evidence) -> str:
    """The name of the attack that decides a status; its key if the attack is not installed."""
    if evidence.attack is None:
        return "lower bound on epsilon"
    found = all_attacks().get(evidence.attack)
    return evidence.attack if found is None else found.name


def attack(how: Attack, view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Finding | None:
    """Run one attack from one view on one victim; None if the view holds nothing that the attack can use."""
    began = time.perf_counter()
    outcome = how.run(view, truth, victim, rng)
    if outcome is None:
        return None
    return Finding(
        attack=how.name,
        protocol=view.protocol,
        adversary=view.party,
        adversary_role=view.role,
        victim=victim,
        victim_role=truth.roles[victim],
        data=how.data,
        outcome=outcome,
        seconds=time.perf_counter() - began,
    )


def audit(views: Mapping[PartyName, View], truth: Truth, seed: int = 0) -> list[Finding]:
    """Run all attacks, from all views, on all victims whose true data is known."""
    found: list[Finding] = []
    for number, (how, view, victim) in enumerate(_applicable(views, truth)):
        finding = attack(how, view, truth, victim, np.random.default_rng((seed, number)))
        if finding is not None:
            found.append(finding)
    return found


def combined(runs: Iterable[Sequence[Finding]]) -> list[Finding]:
    """Combine the findings of several runs of one job: each attack once, with an interval over the runs."""
    by_attack: defaultdict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for findings in runs:
        for finding in findings:
            by_attack[finding.attack, finding.adversary, finding.victim].append(finding)
    return [over_runs(findings) for findings in by_attack.values()]


def _applicable(views: Mapping[PartyName, View], truth: Truth) -> Iterator[tuple[Attack, View, PartyName]]:
    for how in all_attacks().values():
        for view in (*views.values(), *_extra_views(views)):
            if how.applies(view):
                for victim, role in truth.roles.items():
                    if role == how.victim and victim != view.party and victim in truth.tables:
                        yield how, view, victim


def _extra_views(views: Mapping[PartyName, View]) -> Iterator[View]:
    """Pooled views of all passive parties and of the CSP with the authority; a user who requests predictions."""
    like = next(iter(views.values()))
    passive = [view for view in views.values() if view.role == "passive"]
    if len(passive) > 1:
        yield without_messages(" and ".join(view.party for view in passive), POOLED, like, passive)
    helpers = {view.role: view for view in views.values()}
    if {"csp", "authority"} <= helpers.keys():
        csp, authority = helpers["csp"], helpers["authority"]
        messages = (*csp.messages, *authority.messages)
        yield replace(csp, party=f"{csp.party} and {authority.party}", messages=messages, members=(csp, authority))
    yield without_messages("a user", USER, like)
