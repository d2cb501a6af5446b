"""Noise on a round's gradients, on a fixed-point grid.

The grid and the noise depend only on public parameters. Gaussian and Laplace noise is drawn as integers, to avoid
attacks on floating point; the other mechanisms return few or continuous values, which are rounded afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.crypto.fingerprint import content_digest
from veilboost.errors import InvalidParameter, MalformedMessage, UnsupportedCombination
from veilboost.fields import param
from veilboost.fixedpoint import MAX_BITS, Scale, exponent_for
from veilboost.privacy import mechanism
from veilboost.privacy.calibrate import gaussian_sigma
from veilboost.privacy.discrete import discrete_gaussian, discrete_laplace
from veilboost.privacy.event import Adjacency, Event
from veilboost.privacy.mechanism import Generator
from veilboost.protocols.vertical.roles import ActiveContext
from veilboost.types import BoolArray, Float64Array, Int32Array

MECHANISMS = ("gaussian", "laplace", "duchi", "piecewise", "hybrid", "none")
_CLASSIFICATION = {"binary": (1.0, 0.25), "multiclass": (1.0, 0.5), "auto": (1.0, 0.25)}  # |g| and h at weight 1
_LEAST_BOUND = 1e-9  # of a range; the grid of smaller ones would leave that of floats
_SIGMAS, _SCALES = 12.0, 40.0  # noise is clipped here; more has a probability below 1e-17
_LOCAL: dict[str, Callable[[Generator, Float64Array, float], Float64Array]] = {
    "duchi": mechanism.duchi,
    "piecewise": mechanism.piecewise,
    "hybrid": mechanism.hybrid,
}


@dataclass(frozen=True)
class NoiseOptions(ProtocolOptions):
    """How gradients are perturbed."""

    mechanism: str = param("gaussian", "noise on each row's gradient", choices=MECHANISMS)
    epsilon: float = param(1.0, "epsilon of one release of one row's gradient and hessian", low=0, low_open=True)
    delta: float = param(
        1e-3,
        "delta of one release (gaussian), as in the paper; totals are composed at the policy's delta",
        low=0,
        high=1,
        low_open=True,
    )
    noise_multiplier: float = param(
        0.0,
        "sigma divided by the sensitivity of a release (gaussian); 0: computed from epsilon and delta",
        low=0,
    )
    clip: float = param(0.0, "gradients are clipped to plus and minus this; 0: the range of the loss", low=0)
    clip_hessian: float = param(0.0, "hessians are clipped to this; 0: the range of the loss", low=0)
    private_leaves: bool = param(
        False, "compute leaf weights from the noisy gradients too, so that only the releases depend on the labels"
    )


def refuse_void_noise(config: TrainingConfig, options: NoiseOptions, protocol: str) -> None:
    """Raise for parameters that make the noise useless."""
    if options.delta == 1 and options.mechanism == "gaussian":
        raise InvalidParameter("delta=1 protects nothing", "set delta between 0 and 1, well below 1 / rows")
    if config.sampling == "goss":
        raise UnsupportedCombination(
            f"goss reveals to passive parties which rows have large gradients, which {protocol} must hide",
            "use sampling='uniform'",
        )


def refuse_true_sums(config: TrainingConfig) -> None:
    """With `private_leaves` nothing that passive parties receive may depend on true sums."""
    if config.min_child_weight > 0 or config.base_score is None:
        raise UnsupportedCombination(
            "with private_leaves neither min_child_weight, which uses true hessians, nor a base_score computed from "
            "the labels is allowed",
            "set min_child_weight to 0 and base_score to a number known beforehand",
        )


@dataclass(frozen=True)
class Ranges:
    """The ranges [-g, g] of gradients and [0, h] of hessians; without h, hessians are not sent and rows are counted."""

    g: float
    h: float | None

    def __post_init__(self) -> None:
        if any(bound is not None and 0 < bound < _LEAST_BOUND for bound in (self.g, self.h)):
            raise InvalidParameter(
                f"gradients or hessians are clipped to less than {_LEAST_BOUND:g}",
                f"set clip and clip_hessian to {_LEAST_BOUND:g} or more",
            )

    @property
    def channels(self) -> int:
        """How many numbers of a row are released at once."""
        return 1 if self.h is None else 2


def multiplier(options: NoiseOptions) -> float:
    """Sigma over the sensitivity of a whole Gaussian release."""
    return options.noise_multiplier or gaussian_sigma(options.epsilon, options.delta)


@dataclass(frozen=True)
class Noise:
    """The noise on one number of a row, which is in [low, high]."""

    options: NoiseOptions
    low: float
    high: float
    channels: int

    @property
    def epsilon(self) -> float:
        """This number's share of epsilon if gradient and hessian are released together."""
        return self.options.epsilon / self.channels

    @property
    def spread(self) -> float:
        """Sigma of a Gaussian, scale of a Laplace. The sensitivity is the whole range."""
        width = self.high - self.low
        if self.options.mechanism == "gaussian":
            # Squared distances of the channels add up, so each gets an equal share.
            return width * multiplier(self.options) * math.sqrt(self.channels)
        return width / self.epsilon

    @property
    def reach(self) -> float:
        """The largest magnitude of a noisy value."""
        largest = max(-self.low, self.high)
        half, middle = (self.high - self.low) / 2, abs(self.high + self.low) / 2
        match self.options.mechanism:
            case "gaussian":
                return largest + _SIGMAS * self.spread
            case "laplace":
                return largest + _SCALES * self.spread
            case "duchi":
                return middle + half * mechanism.duchi_bound(self.epsilon)
            case _:
                return middle + half * mechanism.duchi_bound(self.epsilon / 2)

    def exponent(self, bits: int) -> int:
        """The exponent of the grid: as fine as for exact gradients, but coarse enough for the noise."""
        return min(exponent_for(max(-self.low, self.high), bits), exponent_for(self.reach, MAX_BITS))

    def add(self, values: Float64Array, exponent: int, randomness: Generator) -> Int32Array:
        """Add noise to values on the grid."""
        unit = math.ldexp(1.0, exponent)
        if self.options.mechanism in _LOCAL:
            half, middle = (self.high - self.low) / 2, (self.high + self.low) / 2
            drawn = _LOCAL[self.options.mechanism](
                randomness, np.clip((values - middle) / half, -1.0, 1.0), self.epsilon
            )
            noisy = np.rint((drawn * half + middle) * unit)
        else:
            sampler = discrete_gaussian if self.options.mechanism == "gaussian" else discrete_laplace
            noisy = values * unit + sampler(randomness, self.spread * unit, len(values))
        return np.clip(noisy, -(2.0**MAX_BITS), 2.0**MAX_BITS).astype(np.int32)


@dataclass(frozen=True)
class Perturbation:
    """The noise on the gradients of a job, the same for every round."""

    options: NoiseOptions
    ranges: Ranges
    bits: int

    def _noises(self) -> list[Noise]:
        ranges = self.ranges
        every = [Noise(self.options, -ranges.g, ranges.g, ranges.channels)]
        if ranges.h is not None:
            every.append(Noise(self.options, 0.0, ranges.h, ranges.channels))
        return every

    def scale(self) -> Scale:
        """The grid of the released values."""
        exponents = [noise.exponent(self.bits) for noise in self._noises()]
        return Scale(exponents[0], exponents[1] if len(exponents) > 1 else self.bits)

    def clean(self, gradients: Int32Array, scale: Scale) -> Int32Array:
        """Gradients on the grid of released values, (trees, rows, channels): clipped, or refused if out of range."""
        units, grid = (scale.g_unit, scale.h_unit), self.scale()
        clips = self.options.clip, self.options.clip_hessian
        clean = np.empty((*gradients.shape[:2], self.ranges.channels), dtype=np.int32)
        for at, noise in enumerate(self._noises()):
            values = gradients[..., at] * units[at]
            # Half a step of either grid is rounding.
            if not clips[at] and np.abs(values).max(initial=0.0) > noise.high + units[at]:
                name = ("clip", "clip_hessian")[at]
                raise InvalidParameter(
                    f"a {('gradient', 'hessian')[at]} exceeds {noise.high:g}, the range that the noise hides",
                    f"set the option {name} (required for weights and for losses other than classification), or set "
                    "the objective",
                )
            steps = math.ldexp(1.0, (grid.g_exponent, grid.h_exponent)[at])
            clean[..., at] = np.clip(np.rint(values * steps), noise.low * steps, noise.high * steps)
        return clean

    def noisy(self, clean: Int32Array, released: BoolArray, randomness: Generator) -> Int32Array:
        """The values to send: with noise at `released` (trees, rows), zero elsewhere."""
        grid = self.scale()
        sent = np.zeros_like(clean)
        for at, noise in enumerate(self._noises()):
            exponent = (grid.g_exponent, grid.h_exponent)[at]
            values: Float64Array = clean[..., at][released].astype(np.float64) * math.ldexp(1.0, -exponent)
            sent[released, at] = noise.add(values, exponent, randomness)
        return sent


def released_to_passive(protocol: str, what: str, release: str, content: str = "") -> dict[str, Any]:
    """The common fields of all events of noisy gradients."""
    about = {"what": what, "release": release, "content": content, "protocol": protocol}
    return {**about, "adjacency": Adjacency.LABEL, "adversary": "passive parties"}


def released_gradients(
    context: ActiveContext,
    event: Event,
    perturbation: Perturbation | None,
    grid: tuple[Ranges, Scale],
    clean: Int32Array,
    released: BoolArray,
    *request: str | int,
) -> Int32Array:
    """Book and compute the gradients to send, the same for all passive parties: two noises could be averaged.

    The same gradients get the same noise; other gradients, or another noise distribution, get new noise. Without a
    perturbation the gradients are sent unchanged.
    """
    digest = content_digest(context.randomness, repr((event, *grid)), clean, released)
    randomness = context.randomness.for_request(*request, digest)
    context.account.spend(replace(event, content=digest.hex()))
    if perturbation is None:
        return np.where(released[..., None], clean, np.int32(0))
    return perturbation.noisy(clean, released, randomness)


def loss_ranges(config: TrainingConfig, trees_per_round: int) -> tuple[float, float]:
    """The bounds of |g| and h for a classification (or "auto"); 0: no bound. They never depend on the data."""
    name = "multiclass" if config.objective == "auto" and trees_per_round > 1 else config.objective
    g, h = _CLASSIFICATION.get(name, (0.0, 0.0))
    weight = max(1.0, config.scale_pos_weight)
    return g * weight, h * weight


def with_counts(gradients: Int32Array, scale: Scale) -> Int32Array:
    """Pairs to sum, (trees, rows, 2): if no hessians were released, every row counts one."""
    if gradients.shape[2] == 2:
        return gradients
    ones = np.full_like(gradients, 1 << scale.h_exponent)
    return np.concatenate((gradients, ones), axis=2)


def checked_scale(g_exponent: int, h_exponent: int) -> Scale:
    """Return the grid that a message names, after validation."""
    if max(abs(g_exponent), abs(h_exponent)) > 1000:
        raise MalformedMessage("the grid of the gradients is impossible")
    return Scale(g_exponent, h_exponent)


def checked_pairs(gradients: Int32Array, scale: Scale, trees: int, rows: int) -> Int32Array:
    """Return pairs to sum from received noisy gradients, after validation."""
    channels = gradients.shape[2]
    if gradients.shape[:2] != (trees, rows) or channels not in (1, 2):
        raise MalformedMessage("the gradients are of another number of rows or classes")
    if gradients.size and max(int(gradients.max()), -int(gradients.min())) > 2**MAX_BITS:
        raise MalformedMessage("a gradient is out of range")
    if channels == 1 and not 0 <= scale.h_exponent <= MAX_BITS:
        raise MalformedMessage("the grid of the counts is impossible")
    return with_counts(gradients, scale)
