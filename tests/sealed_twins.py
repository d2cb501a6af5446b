"""Deliberately broken twins of `sealed`: each puts back a flaw that lower bounds of epsilon must find.

A twin is a function of a `pytest.MonkeyPatch`. `bench/lower_bound.py` measures the same ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from veilboost.boost.objective import SquaredError
from veilboost.crypto.csprng import JobRandomness, unsafe_key
from veilboost.party import simulation
from veilboost.protocols import validation
from veilboost.protocols.sealed import active, parameters, passive

Twin = Callable[[pytest.MonkeyPatch], None]


def little_noise(divisor: float) -> Twin:
    """Noise of everything is smaller by this factor."""

    def twin(patch: pytest.MonkeyPatch) -> None:
        of_labels, of_cells = parameters.label_noise, parameters.cell_sigmas

        def label_noise(*args: Any) -> parameters.LabelNoise:
            noise = of_labels(*args)
            return parameters.LabelNoise(noise.selection * divisor, noise.leaf_sigma / divisor)

        patch.setattr(parameters, "label_noise", label_noise)
        patch.setattr(parameters, "cell_sigmas", lambda *args: tuple(sigma / divisor for sigma in of_cells(*args)))

    return twin


def best_wins(patch: pytest.MonkeyPatch) -> None:
    """Selection without noise."""
    patch.setattr(active, "exponential", lambda generator, utilities, *args, **kwargs: utilities.argmax(axis=-1))


def best_wins_below(patch: pytest.MonkeyPatch) -> None:
    """Selection without noise below the root."""
    drawn, select = active.exponential, active.PrivateSelector.select

    def at_depth(self: Any, current: Any, level: Any, offers: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            (best_wins if level.depth else lambda each: each.setattr(active, "exponential", drawn))(inner)
            return select(self, current, level, offers)

    patch.setattr(active.PrivateSelector, "select", at_depth)


def spent_twice(patch: pytest.MonkeyPatch) -> None:
    """Selections get the whole budget, and leaves get it again."""
    calibrated = parameters.label_noise

    def label_noise(options: parameters.SealedOptions, *args: Any) -> parameters.LabelNoise:
        noise, share = calibrated(options, *args), options.selection_share
        return parameters.LabelNoise(noise.selection / math.sqrt(share), noise.leaf_sigma * math.sqrt(1 - share))

    patch.setattr(parameters, "label_noise", label_noise)


def unbooked(patch: pytest.MonkeyPatch) -> None:
    """Selections are not in the budget: each is made with epsilon 30."""
    calibrated = parameters.label_noise
    patch.setattr(parameters, "label_noise", lambda *args: dataclasses.replace(calibrated(*args), selection=30.0))


def reused(patch: pytest.MonkeyPatch) -> None:
    """What a run draws for its first tree is the noise of all its trees."""
    drawn: dict[tuple[float, int], Any] = {}
    begin_round, begin_training = active.PrivateLeaves.begin_round, passive.SealedPassiveCipher.begin_training
    draw = active.discrete_gaussian

    def anew(begin: Any) -> Any:
        def begun(self: Any, start: Any) -> None:
            if getattr(start, "number", 0) == 0:
                drawn.clear()
            begin(self, start)

        return begun

    def once(generator: Any, sigma: float, count: int) -> Any:
        # Long enough for the leaves of any level; cells are drawn in tables of one shape.
        if (sigma, count) not in drawn:
            drawn[sigma, count] = draw(generator, sigma, count)
        return drawn[sigma, count].copy()

    def of_leaves(generator: Any, sigma: float, count: int) -> Any:
        return once(generator, sigma, 64)[:count]

    patch.setattr(active.PrivateLeaves, "begin_round", anew(begin_round))
    patch.setattr(passive.SealedPassiveCipher, "begin_training", anew(begin_training))
    patch.setattr(active, "discrete_gaussian", of_leaves)
    patch.setattr(passive, "discrete_gaussian", once)


def bare_below(patch: pytest.MonkeyPatch) -> None:
    """Cells below the root get no noise."""
    noise = passive.SealedPassiveCipher.noise

    def at_root(self: Any, incoming: Any, state: Any) -> Any:
        drawn = noise(self, incoming, state)
        return drawn if drawn is None or state.depth == 0 else np.zeros_like(drawn)

    patch.setattr(passive.SealedPassiveCipher, "noise", at_root)


def seeded(patch: pytest.MonkeyPatch) -> None:
    """Every run draws from the same seed, so that runs share their noise."""
    patch.setattr(simulation, "_randomness", lambda name, seed: JobRandomness(unsafe_key(0, name)))


def any_loss(patch: pytest.MonkeyPatch) -> None:
    """Every loss is accepted, also one whose gradients have no bound."""
    patch.setattr(validation, "_check_claims", lambda job: None)
    patch.setattr(SquaredError, "bounded", True)
