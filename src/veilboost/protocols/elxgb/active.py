"""The label side of `elxgb`: HENS grows the first tree, DPNS the others (ELXGB section 6.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from veilboost.boost.grower import Level, Round
from veilboost.boost.split import Candidates, leaf_weights
from veilboost.crypto.fingerprint import content_digest
from veilboost.errors import MalformedMessage
from veilboost.fixedpoint import Scale
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.protocols.elxgb.accounting import gradient_event, leaf_event
from veilboost.protocols.elxgb.clock import ClockedPeers
from veilboost.protocols.elxgb.messages import LocalGains, NoisyRound
from veilboost.protocols.elxgb.options import ElxgbOptions, leaf_ranges, ranges_of
from veilboost.protocols.lattice.active import LatticeCipher
from veilboost.protocols.paillier.active import PaillierCipher
from veilboost.protocols.vertical import roles
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.perturb import Perturbation, multiplier, released_gradients, with_counts
from veilboost.types import Float64Array, Int64Array

_HENS: dict[str, Callable[[roles.ActiveContext], roles.StatisticsCipher]] = {
    "paillier": PaillierCipher,
    "lattice": LatticeCipher,
}


def elxgb_active(context: roles.ActiveContext) -> VerticalActive:
    options = ElxgbOptions.from_dict(context.config.options)
    if options.clock:
        context = replace(context, peers=ClockedPeers(context.peers, options.clock))
    private = options.private_leaves and options.mechanism != "none"
    return VerticalActive(context, ElxgbCipher(context), leaves=NoisyLeaves(context) if private else None)


class ElxgbCipher(roles.StatisticsCipher):
    """Encryption for the first round, noise for the others."""

    shuffled = checks_totals = True

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        options = ElxgbOptions.from_dict(context.config.options)
        self._hens, self._dpns = _HENS[options.backend](context), DpnsCipher(context)
        self._growing, self._clocked = self._hens, options.clock > 0

    def shown(self, start: Round) -> Round:
        self._growing = self._hens if start.number == 0 else self._dpns
        # A party that missed the level above has no sums to derive siblings from.
        self.derives_siblings = self._growing.derives_siblings and not self._clocked
        return self._growing.shown(start)

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        return self._growing.openings(current, openings)

    def enter(self, current: roles.ActiveRound, level: Level) -> tuple[roles.ActiveRound, Level]:
        return self._growing.enter(current, level)

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests) -> roles.Waiting:
        return self._growing.ask(current, level, requests)

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        return self._growing.read(current, level, waiting)


class DpnsCipher(roles.StatisticsCipher):
    """DPNS (ELXGB Algorithm 2): noisy gradients go out, best gains come back.

    Perturbs once per tree, for all passive parties alike, and scores its own columns by the same noisy gradients. So
    which split wins, which the passive parties see, follows from what they were given. The grower keeps the true
    gradients: they are the paper's gradient cache, of which leaf weights are made.
    """

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        self.derives_siblings = False  # the passive side scores, so it must be asked for every open node
        self._options = ElxgbOptions.from_dict(self.config.options)
        self._ranges = ranges_of(self.config, self._options, context.trees_per_round)

    def shown(self, start: Round) -> Round:
        clean, scale = start.gradients, start.scale
        perturbation = None
        if self._options.mechanism != "none":
            # Algorithm 3 gives each number noise for (epsilon, delta) of its own, not a share of a joint budget.
            each = multiplier(self._options) / math.sqrt(self._ranges.channels)
            options = replace(self._options, noise_multiplier=each)
            perturbation = Perturbation(options, self._ranges, self.config.gradient_bits)
            clean, scale = perturbation.clean(clean, scale), perturbation.scale()  # Alg. 3, line 2: clipped to C
        released = np.zeros(clean.shape[:2], dtype=np.bool_)
        released[:, start.fit] = True
        event = gradient_event(self._options, self._ranges, start.trees, f"round {start.number} gradients")
        grid = self._ranges, scale  # Alg. 3, line 3
        self._sent = released_gradients(self.context, event, perturbation, grid, clean, released, "elxgb", start.number)
        return replace(start, gradients=with_counts(self._sent, scale), scale=scale)

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        grid = vars(current.start.scale)
        return {name: NoisyRound(**vars(each), **grid, gradients=self._sent) for name, each in openings.items()}

    def enter(self, current: roles.ActiveRound, level: Level) -> tuple[roles.ActiveRound, Level]:
        return current, replace(level, totals=level.fit.totals(current.start.gradients))

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        """Alg. 2, lines 8 to 10. The owner knows which candidate it meant: a handle of 0 asks for its best."""
        answers = self.context.peers.collect(waiting, LocalGains)
        for name, answer in answers.items():
            if answer.gain.shape != (len(level.open),) or np.isnan(answer.gain).any():
                raise MalformedMessage(f"{name} scored other nodes, or with something that is no number")
        best = np.zeros(len(level.open), dtype=np.int32)
        return {name: Candidates(best, answer.gain) for name, answer in answers.items()}


class NoisyLeaves(roles.Leaves):
    """Leaf sums with noise for the whole range of one person's gradient and hessian."""

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        self._options = ElxgbOptions.from_dict(self.config.options)
        self._ranges = leaf_ranges(self.config, context.trees_per_round)

    def begin_round(self, start: Round) -> None:
        self._start, self._closed = start, b""
        self._event = leaf_event(self._options, self._ranges, start.trees, f"round {start.number} leaves")

    def weights(self, current: roles.ActiveRound, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        noisy, randomness, ranges = level.totals[leaves], self.context.randomness, self._ranges
        # Of these leaves and of all that were closed before them.
        law = repr((self._event, ranges, scale))
        self._closed = content_digest(randomness, law, self._closed, self._start.gradients, noisy)
        generator = randomness.for_request("elxgb leaves", self._start.number, self._closed)
        for at, (width, unit) in enumerate(((2.0 * ranges.g, scale.g_unit), (ranges.h or 0.0, scale.h_unit))):
            if width:
                noisy[:, at] += discrete_gaussian(generator, multiplier(self._options) * width / unit, len(noisy))
        np.maximum(noisy[:, 1], 0, out=noisy[:, 1])  # hessians sum to no less, whatever the noise says
        return leaf_weights(noisy, scale, self.config)

    def end_round(self) -> None:
        """The leaves of a round are disjoint: one release, whichever levels close them."""
        self.context.account.spend(replace(self._event, content=self._closed.hex()))
