"""The label side of DPNS (ELXGB Algorithm 2): noisy gradients go out, best gains come back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from veilboost.boost.grower import Level, Round
from veilboost.boost.split import Candidates
from veilboost.crypto.content import content_digest
from veilboost.errors import MalformedMessage
from veilboost.protocols.elxgb.accounting import gradient_event
from veilboost.protocols.elxgb.messages import LocalGains, NoisyRound
from veilboost.protocols.elxgb.options import ElxgbOptions, ranges_of
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.leaves import node_totals
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.perturb import Perturbation, multiplier, with_counts
from veilboost.protocols.vertical.roles import ActiveContext
from veilboost.types import PartyName
from veilboost.wire.channel import Pending


class DpnsActive(VerticalActive):
    """Perturbs once per tree, for all passive parties alike, and scores its own columns by the same noisy gradients.

    So which split wins, which the passive parties see, follows from what they were given. The grower keeps the true
    gradients: they are the paper's gradient cache, of which leaf weights are made.
    """

    def __init__(self, context: ActiveContext) -> None:
        super().__init__(context)
        self.derives_siblings = False  # the passive side scores, so it must be asked for every open node
        self._options = ElxgbOptions.from_dict(self.config.options)
        self._ranges = ranges_of(self.config, self._options, context.trees_per_round)

    def begin_round(self, start: Round) -> None:
        clean, scale = start.gradients, start.scale
        perturbation = None
        if self._options.mechanism != "none":
            # Algorithm 3 gives each number noise for (epsilon, delta) of its own, not a share of a joint budget.
            each = multiplier(self._options) / math.sqrt(self._ranges.channels)
            options = dataclasses.replace(self._options, noise_multiplier=each)
            perturbation = Perturbation(options, self._ranges, self.config.gradient_bits)
            clean, scale = perturbation.clean(clean, scale), perturbation.scale()  # Alg. 3, line 2: clipped to C
        released = np.zeros(clean.shape[:2], dtype=np.bool_)
        released[:, start.fit] = True
        # A retry or a resumed job has the same gradients and draws the same noise; other gradients, or noise of another
        # law, draw another.
        event = gradient_event(self._options, self._ranges, start.trees, f"round {start.number} gradients")
        law = repr((event, self._ranges, scale))
        digest = content_digest(self.context.randomness, law, clean, released)
        randomness = self.context.randomness.for_request("elxgb", start.number, digest)
        self.context.account.spend(dataclasses.replace(event, content=digest.hex()))
        if perturbation is None:
            self._sent = np.where(released[..., None], clean, np.int32(0))
        else:
            self._sent = perturbation.noisy(clean, released, randomness)  # Alg. 3, line 3
        super().begin_round(dataclasses.replace(start, gradients=with_counts(self._sent, scale), scale=scale))

    def round_message(self, start: Round, party: PartyName, opening: BeginRound) -> NoisyRound:
        return NoisyRound(
            opening.number,
            opening.fit,
            opening.all_columns,
            opening.columns,
            start.scale.g_exponent,
            start.scale.h_exponent,
            self._sent,
        )

    def candidates(self, level: Level) -> Sequence[Candidates]:
        return super().candidates(dataclasses.replace(level, totals=node_totals(self.start.gradients, level.fit)))

    def ask_statistics(self, requests: Mapping[PartyName, StatisticsRequest]) -> Mapping[PartyName, Pending]:
        return self.context.peers.send(requests)

    def read_statistics(self, level: Level, pending: Mapping[PartyName, Pending]) -> Mapping[PartyName, Candidates]:
        """Alg. 2, lines 8 to 10. The owner knows which candidate it meant: a handle of 0 asks for its best."""
        offers: dict[PartyName, Candidates] = {}
        for name, answer in self.context.peers.collect(pending, LocalGains).items():
            if answer.gain.shape != (len(level.open),) or np.isnan(answer.gain).any():
                raise MalformedMessage(f"{name} scored other nodes, or with something that is no number")
            offers[name] = Candidates(np.zeros(len(level.open), dtype=np.int32), answer.gain)
        return offers
