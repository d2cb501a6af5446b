"""What leaves a participant, as privacy events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.privacy.event import Account, Adjacency, Event, ExactRelease, RandomizedResponse
from veilboost.privacy.mechanism import randomized_response
from veilboost.protocols.mal.options import MalOptions
from veilboost.types import Role, UInt8Array


def bucket_event(column: int, categories: int, epsilon: float, content: str = "", rows: int | None = None) -> Event:
    """One column's buckets. A record has one in every column, so its epsilon is that of all columns together."""
    common: dict[str, Any] = {
        "what": "the bucket of every row in one column",
        "adjacency": Adjacency.RECORD,
        "adversary": "the server",
        "protocol": "mal",
        "release": f"buckets of column {column}",
        "content": content,
    }
    if epsilon == 0:
        return ExactRelease(**common, rows=rows, bins=categories)
    return RandomizedResponse(**common, paper_epsilon=epsilon, epsilon=epsilon, categories=categories)  # Corollary 1


def label_event(content: str = "", rows: int | None = None, bins: int | None = None) -> Event:
    """Masks cancel in the sums, so no noise covers these."""
    return ExactRelease(
        what="the sum of labels in every bucket",
        adjacency=Adjacency.LABEL,
        adversary="the server",
        protocol="mal",
        release="masked labels",
        content=content,
        rows=rows,
        bins=bins,
    )


def extremes_event(content: str = "") -> Event:
    """The ends of columns, which no noise covers."""
    return ExactRelease(
        what="lowest and highest values, where they are this participant's",
        adjacency=Adjacency.RECORD,
        adversary="everybody who takes part",
        protocol="mal",
        release="extremes",
        content=content,
    )


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """What a participant would release of so many columns."""
    epsilon = MalOptions.from_dict(config.options).epsilon
    buckets = (bucket_event(column, config.max_bin, epsilon) for column in range(columns))
    return (*buckets, label_event(), extremes_event())


def perturb(
    buckets: UInt8Array, widths: Sequence[int], epsilon: float, randomness: JobRandomness, content: bytes
) -> UInt8Array:
    """MAL Alg. 1, line 15: every bucket stays with probability e^eps / (e^eps + q - 1), else becomes any other.

    Drawn from what the buckets are, so that asking twice gives the same rows and nothing to average.
    """
    if epsilon == 0:
        return buckets
    noisy = buckets.copy()
    for column, width in enumerate(widths):
        if width > 1:
            generator = randomness.for_request("mal", "buckets", column, content)
            noisy[:, column] = randomized_response(generator, buckets[:, column].astype(np.int64), width, epsilon)
    return noisy


def spend_rows(account: Account, widths: Sequence[int], epsilon: float, content: str, rows: int) -> None:
    """Book buckets and labels, before any of them leaves."""
    shown = [(column, width) for column, width in enumerate(widths) if width > 1]
    buckets = [bucket_event(column, width, epsilon, content, rows) for column, width in shown]
    account.spend(*buckets, label_event(content, rows, sum(widths)))
