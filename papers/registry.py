"""The papers and their targets."""

from __future__ import annotations

from importlib import import_module

from papers.target import Target
from veilboost.errors import ImpossibleParameter

PAPERS = {
    "maskedxgboost": "Bilateral Differentially Private Vertical Federated Boosted Decision Trees",
    "fedxgboost": "FedXGBoost: Privacy-Preserving XGBoost for Federated Learning",
    "elxgb": "ELXGB: An Efficient and Privacy-Preserving XGBoost for Vertical Federated Learning",
    "mal": "Masked Aggregation Learning for Enhancing Distributed Gradient Boosting Decision Trees",
}


def targets_of(paper: str) -> tuple[Target, ...]:
    """All targets of a paper, in the paper's order: `TARGETS` of its package, which loads only when it is asked for."""
    if paper not in PAPERS:
        raise ImpossibleParameter(f"there is no paper {paper!r}", f"choose one of {', '.join(PAPERS)}")
    return import_module(f"papers.{paper}").TARGETS


def targets_named(paper: str, name: str) -> tuple[Target, ...]:
    """The target of this name, or all targets of the group of this name."""
    every = targets_of(paper)
    found = tuple(target for target in every if name in (target.name, target.group))
    if not found:
        known = dict.fromkeys(name for target in every for name in (target.name, target.group) if name)
        raise ImpossibleParameter(f"{paper} has no target {name!r}", f"choose one of {', '.join(known)}")
    return found
