"""The attacks, one idea a file. An attack is a module; this is the list of them.

An attack sees what an attacker sees: a `View`. It may read messages, model parts and what a protocol's `messages` and
`options` declare; it may not call any side's code.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from veilboost.audit.attacks import (
    active_order,
    feature_order,
    gradient_signs,
    histogram_bins,
    instance_clusters,
    mal_buckets,
    mal_ends,
    mal_extremes,
    mal_labels,
    mal_zero_masks,
    masked_network,
    masked_projection,
    masked_sphere,
    masked_split_likelihood,
    masked_split_search,
    masked_stacking,
    noisy_gradients,
    own_cuts,
    reported_buckets,
    secagg_shares,
    secagg_values,
    smm1_columns,
    smm1_labels,
    smm2_columns,
    smm2_program,
    smm2_stacking,
)
from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.types import PartyName


class Attack(Protocol):
    """What a module must have to be an attack. `PROTOCOLS` is None for all protocols that have these roles."""

    @property
    def NAME(self) -> str: ...  # noqa: N802
    @property
    def PROTOCOLS(self) -> frozenset[str] | None: ...  # noqa: N802
    @property
    def ADVERSARY(self) -> str: ...  # noqa: N802
    @property
    def VICTIM(self) -> str: ...  # noqa: N802
    @property
    def DATA(self) -> str: ...  # noqa: N802
    @staticmethod
    def run(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
        """Attack one victim from one view; None where the run holds nothing that this attack could use."""
        ...


ATTACKS: tuple[Attack, ...] = (
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
