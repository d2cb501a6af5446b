"""The active role of `ldp`: sends noisy gradients and receives best candidates."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level, Round
from veilboost.boost.split import Candidates, SplitLimits, leaf_weights
from veilboost.crypto.fingerprint import content_digest
from veilboost.errors import MalformedMessage
from veilboost.fixedpoint import Scale
from veilboost.protocols.ldp.messages import LdpRequest, LdpRound, LdpScores
from veilboost.protocols.ldp.parameters import LdpOptions, gradient_event, ranges_of, score, totals_event
from veilboost.protocols.vertical import roles
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.perturb import Perturbation, released_gradients, with_counts
from veilboost.types import BoolArray, Float64Array, Int64Array, PartyName

_NOTHING = np.empty((0, 0, 0), dtype=np.int32)
_NO_TOTALS = np.empty((0, 0), dtype=np.int64)


class LdpCipher(roles.StatisticsCipher):
    """Adds noise once per tree, or at every level.

    It scores its own columns by the noisy gradients that it sends, so that winning splits reveal nothing more.
    """

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        self.derives_siblings = False  # the passive party scores, so every open node is requested
        self._options = LdpOptions.from_dict(self.config.options)
        self.noisy_gains = self._options.mechanism != "none" or self._options.score == "first"
        self.asks_ahead = not (self._options.per_node or self._options.paper_form)  # these send values of a node's rows
        self._ranges = ranges_of(self.config, self._options, context.trees_per_round)
        self._perturbation = Perturbation(self._options, self._ranges, self.config.gradient_bits)

    def shown(self, start: Round) -> Round:
        if self._options.mechanism == "none":
            channels = 1 if self._options.score == "first" else 2
            self._clean = start.gradients[..., :channels]
            scale = start.scale if channels == 2 else Scale(start.scale.g_exponent, self.config.gradient_bits)
        else:
            self._clean = self._perturbation.clean(start.gradients, start.scale)
            scale = self._perturbation.scale()
        start = replace(start, scale=scale)
        self._sent = _NOTHING
        if not self._options.per_node:
            released = np.zeros(self._clean.shape[:2], dtype=np.bool_)
            released[:, start.fit] = True
            start = self._release(start, f"round {start.number}", released)
        return start

    def _release(self, start: Round, name: str, released: BoolArray) -> Round:
        event = gradient_event(self._options, self._ranges, start.trees, f"{name} gradients")
        perturbation = None if self._options.mechanism == "none" else self._perturbation
        grid = self._ranges, start.scale
        self._sent = released_gradients(self.context, event, perturbation, grid, self._clean, released, "ldp", name)
        return replace(start, gradients=self.context.block.placed(with_counts(self._sent, start.scale)))

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        grid = asdict(current.start.scale)
        return {name: LdpRound(**vars(each), **grid, gradients=self._sent) for name, each in openings.items()}

    def enter(self, current: roles.ActiveRound, level: Level) -> tuple[roles.ActiveRound, Level]:
        start, name = current.start, f"round {current.start.number} level {level.depth}"
        self._sent_totals = _NO_TOTALS
        if self._options.per_node:  # FedXGBoost Alg. 6, line 1: M(g) for the users of this node
            released, own = np.zeros(self._clean.shape[:2], dtype=np.bool_), level.fit.of(level.open)
            for tree, begin, end in zip(own.group.tolist(), own.begin.tolist(), own.end.tolist(), strict=True):
                released[tree, own.rows[begin:end]] = True
            start = self._release(start, name, released)
        totals = level.fit.totals(start.gradients)
        if self._options.paper_form:  # Alg. 6, lines 1 and 2: the exact G is sent
            channels = self._clean.shape[2]
            totals[:, :channels] = level.fit.totals(with_counts(self._clean, start.scale))[:, :channels]
            self._sent_totals = totals[level.build, :channels]
            content = content_digest(self.context.randomness, level.build, self._sent_totals)
            self.context.account.spend(totals_event(f"{name} sums", content.hex()))
        return replace(current, start=start), replace(level, totals=totals)

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests) -> roles.Waiting:
        gradients = self._sent if self._options.per_node else _NOTHING
        return self.context.peers.send(
            {
                name: LdpRequest(**vars(request), gradients=gradients, totals=self._sent_totals)
                for name, request in requests.items()
            }
        )

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        offers: dict[PartyName, Candidates] = {}
        for name, answer in self.context.peers.collect(waiting, LdpScores).items():
            most = max(2 * current.layouts[name].slots, 1)
            nodes = (len(level.open),)
            if answer.handle.shape != nodes or answer.gain.shape != nodes:
                raise MalformedMessage(f"{name} sent scores of other nodes")
            if (answer.handle < 0).any() or (answer.handle >= most).any() or np.isnan(answer.gain).any():
                raise MalformedMessage(f"{name} sent a candidate that does not exist, or a score that is not a number")
            offers[name] = Candidates(answer.handle, answer.gain)
        return offers


class LdpSelector(roles.Selector):
    """Scores its own columns as passive parties score theirs."""

    def score(
        self,
        current: roles.ActiveRound,
        level: Level,
        sums: Int64Array,
        layout: BinLayout,
        shuffled: bool,
        limits: SplitLimits,
    ) -> Candidates:
        sums, totals = sums[level.open], level.totals[level.open]
        return score(sums, layout, totals, current.start.scale, self.config, self.context.threads)


class NoisyLeaves(roles.Leaves):
    """Leaf weights from the noisy gradients."""

    def weights(self, current: roles.ActiveRound, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        totals = level.fit.of(leaves).totals(current.start.gradients)
        np.maximum(totals[:, 1], 0, out=totals[:, 1])  # sums of hessians are not negative
        return leaf_weights(totals, current.start.scale, self.config)


def ldp_active(context: roles.ActiveContext) -> VerticalActive:
    private = LdpOptions.from_dict(context.config.options).private_leaves
    leaves = NoisyLeaves(context) if private else None
    return VerticalActive(context, LdpCipher(context), LdpSelector(context), leaves)
