"""Runs every attack that applies to each party's view, and puts names and time beside what it found."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from veilboost.audit.attack import Attack
from veilboost.audit.attacks import all_attacks
from veilboost.audit.result import Finding, over_runs
from veilboost.audit.view import Truth, View
from veilboost.types import PartyName


def attack(how: Attack, view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Finding | None:
    """One attack from one view on one victim; None where the view holds nothing to use."""
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
    """All attacks, from all views, on all whose truth is known."""
    found: list[Finding] = []
    for number, (how, view, victim) in enumerate(_chances(views, truth)):
        finding = attack(how, view, truth, victim, np.random.default_rng((seed, number)))
        if finding is not None:
            found.append(finding)
    return found


def combined(runs: Iterable[Sequence[Finding]]) -> list[Finding]:
    """The findings of several runs of the same job, each attack once with an interval over the runs."""
    together: defaultdict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for findings in runs:
        for finding in findings:
            together[finding.attack, finding.adversary, finding.victim].append(finding)
    return [over_runs(findings) for findings in together.values()]


def _chances(views: Mapping[PartyName, View], truth: Truth) -> Iterator[tuple[Attack, View, PartyName]]:
    for how in all_attacks().values():
        for view in views.values():
            if how.applies(view):
                for victim, role in truth.roles.items():
                    if role == how.victim and victim != view.party and victim in truth.tables:
                        yield how, view, victim
