"""From options to noise: what both sides compute alike from the job's parameters (MaskedXGBoost, step S1).

C is 1 throughout: only C sigma2^2 and sigma1^2 / sigma2^2 matter. The ratio comes from the passive party's budget
(Theorem 3), the scale from the active party's (Theorem 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from veilboost.boost.bins import BinLayout
from veilboost.config import TrainingConfig
from veilboost.privacy.calibrate import gaussian_sigma
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.protocols.masked.theorems import (
    LEAST_ACTIVE,
    PAPER_MU,
    advanced_share,
    energy_allowed,
    label_energy,
    largest_ratio,
)
from veilboost.types import Float32Array, Float64Array

_SIZES = (4, 5, 6, 8, 16, 64)  # small active sets tell most; beyond 64 the eigenvalues no longer change
REFUSED_ONCE_IN = 1e-15  # how rarely an honest mask may be taken for one that is too small


@dataclass(frozen=True)
class Noise:
    """The noise of a job with a passive party that has at most `candidates` at a node.

    `ratio` is sigma1^2 / sigma2^2, `mu` the largest change of a gradient, `energy` what v' Sigma^-1 v may be for one
    released vector.
    """

    options: MaskedOptions
    candidates: int
    delta_pp: float
    ratio: float
    mu: float
    energy: float

    @property
    def law(self) -> str:
        """All that the masks' size follows from."""
        return repr((self.options.sigma1, self.options.sigma2, self.ratio, self.mu, self.energy, self.vectors))

    @staticmethod
    def of(config: TrainingConfig, rows: int, candidates: int, trees_per_round: int = 1) -> Noise:
        """For a job of so many rows with a passive party that has at most so many candidates at a node."""
        options = MaskedOptions.from_dict(config.options)
        reach = gradient_bound(config, options)
        if options.formulas == "printed" and options.clip is None:
            mu = PAPER_MU
        elif options.budget == "label" and options.clip is None:
            mu = reach  # a label that flips moves its gradient by one
        else:
            mu = 2.0 * reach
        delta_pp = options.delta_pp if options.delta_pp is not None else min(1.0 / rows, 0.5)
        if options.by_hand:
            sigma1, sigma2 = options.sigma1 or 0.0, options.sigma2 or 0.0
            ratio = sigma1**2 / sigma2**2 if sigma2 else 0.0
            return Noise(options, candidates, delta_pp, ratio, mu, math.inf)
        printed = options.formulas == "printed"
        sizes = (rows,) if printed else _SIZES
        ratio = largest_ratio(options.eps_pp, delta_pp, options.vectors, sizes, printed)
        epsilon, delta = options.eps_ap, options.delta_ap
        if options.budget == "label":
            # A label is in the vectors of every candidate, level and tree, of two classes where there are several.
            releases = candidates * config.max_depth * config.n_estimators * min(trees_per_round, 2)
            energy = 1.0 / gaussian_sigma(epsilon, delta, releases=releases) ** 2
        else:
            if options.budget == "composed":
                epsilon, delta = advanced_share(epsilon, delta, config.n_estimators * config.max_depth)
            energy = energy_allowed(epsilon, delta)
        return Noise(options, candidates, delta_pp, ratio, mu, energy)

    @property
    def vectors(self) -> int:
        return self.options.vectors

    @property
    def off(self) -> bool:
        return self.options.noise_off

    @property
    def least_active(self) -> int:
        """Candidates that send fewer rows left are left out: their masks would show who these are."""
        return 1 if self.off else LEAST_ACTIVE

    def sigma2(self, n_active: ArrayLike, n_rows: int) -> Float64Array:
        """sigma2 for candidates that send so many of a node's rows left."""
        active = np.asarray(n_active, dtype=np.float64)
        if self.options.by_hand:
            return np.full(active.shape, self.options.sigma2 or 0.0)
        if self.options.scale == "worst":
            active = np.full(active.shape, float(n_rows))
        if self.options.budget == "label":
            energies = {
                n: label_energy(int(n), self.mu, math.sqrt(self.ratio), 1.0) for n in set(active.ravel().tolist())
            }
            return np.array([math.sqrt(energies[n] / self.energy) for n in active.ravel()]).reshape(active.shape)
        # Theorem 2 with equality, sigma1^2 being ratio * sigma2^2.
        return self.mu * np.sqrt((active + (n_rows - active) / (2.0 * self.ratio + 1.0)) / self.energy)

    def factors(self, n_active: ArrayLike, n_rows: int) -> Float32Array:
        """What unit normals are multiplied by, shape (candidates, 3): in the active set the entry's own and the one
        before it, in the inactive set the entry's own.

        own * e_k - before * e_{k-1} around a circle has variance own^2 + before^2 and covariance -own * before between
        neighbours; with own - before = sigma2 and own + before = sqrt(4 sigma1^2 + sigma2^2) that is eq. (12), the law
        of the published sum of active and disturbing noise, at one draw per entry instead of two.
        """
        sigma2 = self.sigma2(n_active, n_rows)
        sigma1 = np.full_like(sigma2, self.options.sigma1 or 0.0) if self.off else math.sqrt(self.ratio) * sigma2
        both = np.sqrt(4.0 * sigma1**2 + sigma2**2)
        alone = np.sqrt(2.0 * sigma1**2 + sigma2**2)  # eq. (13)
        return np.stack(((both + sigma2) / 2.0, (both - sigma2) / 2.0, alone), axis=-1).astype(np.float32)

    def least_deviation(self, n_rows: int) -> float:
        """The deviation that every entry of an honest noise vector of a node has at least, eq. (13)."""
        return float(self.factors(np.array([min(LEAST_ACTIVE, n_rows), n_rows]), n_rows)[:, 2].min())

    def least_norm(self, n_rows: int) -> float:
        """Below this squared length no honest noise vector of a node lies, but for one in 10^15."""
        sigma2 = float(self.sigma2(np.array([min(LEAST_ACTIVE, n_rows), n_rows]), n_rows).min())
        # |b|^2 is at least chi-square of n degrees times the least eigenvalue of the covariance, sigma2^2. With
        # P(chi2_n < n q) <= (q e^(1-q))^(n/2), the q that makes this small:
        target = 2.0 * math.log(REFUSED_ONCE_IN) / n_rows
        low, high = -800.0, 0.0
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (middle, high) if middle + 1.0 - math.exp(middle) < target else (low, middle)
        return n_rows * math.exp(low) * sigma2**2


def gradient_bound(config: TrainingConfig, options: MaskedOptions) -> float:
    """The largest |g| that noise is measured by. An objective that is still open counts as classification."""
    return options.clip if options.clip is not None else max(1.0, config.scale_pos_weight)


def layout_bound(layout: BinLayout) -> int:
    """The most candidates a node can have: every bin of values, in two directions where values are missing."""
    missing = layout.missing.astype(np.int64)
    return int(((layout.widths - missing) * (1 + missing)).sum())
