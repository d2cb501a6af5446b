"""The feature side of `masked`: makes masks, scores what comes back under them, and keeps which split won."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.crypto.fingerprint import content_digest
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.masked.accounting import masks_event
from veilboost.protocols.masked.messages import MaskedLevel, NoisedVectors
from veilboost.protocols.masked.parameters import Noise, layout_bound
from veilboost.protocols.masked.streaming import LevelMasks
from veilboost.protocols.vertical.messages import BeginRound, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveContext, PassiveJob
from veilboost.protocols.vertical.round_state import RoundState, own_best
from veilboost.types import Float64Array, Int32Array
from veilboost.wire.message import Message


class MaskedPassiveCipher(PassiveCipher):
    """MaskedXGBoost at the passive party: Algorithm 1, and its lines of Algorithm 3."""

    def begin_training(self, job: PassiveJob) -> None:
        super().begin_training(job)
        candidates = layout_bound(job.block.layout)
        self._noise = Noise.of(job.config, self.context.rows, candidates, job.trees_per_round)

    def open_round(self, message: BeginRound) -> None:
        self._level: LevelMasks | None = None
        self._best: dict[int, int] = {}  # position in the level -> the handle of its best candidate

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Message:
        if self._level is not None:
            raise UnexpectedMessage("the level before is not scored yet")
        totals = checked_totals(message, build)
        bins, block = state.bins, state.block
        # The same bins of the same rows in the same nodes draw the same masks again; any others draw others.
        own = (bins.of_node(build, node) for node in range(build.nodes))
        columns = b"" if state.columns is None else state.columns
        content = content_digest(
            self.context.randomness, self._noise.law, columns, build.counts, build.group, build.listed(), *own
        )
        drawn = self.context.randomness.for_request("masks", state.number, state.depth, content)
        level = LevelMasks(
            block,
            bins,
            build,
            block.histogram(bins, self._ones, build)[:, :, 0],
            totals,
            self._noise,
            self.job.config,
            drawn.bytes(32),
            self.context.threads,
        )
        self.context.account.spend(
            masks_event(self._noise, state.number, state.depth, level.most_candidates, content.hex())
        )
        self._build = message.build
        return self._next(level)

    def other(self, message: Message, state: RoundState | None) -> Message:
        if state is None or self._level is None or not isinstance(message, NoisedVectors):
            return super().other(message, state)
        self._level.take(message)
        return self._next(self._level)

    @cached_property
    def _ones(self) -> Int32Array:
        """What makes a histogram count rows."""
        return self.job.block.placed(np.ones((self.job.trees_per_round, self.context.rows, 2), dtype=np.int32))

    def _next(self, level: LevelMasks) -> Message:
        answer = level.next()
        self._level = level if level.streaming else None
        if not level.streaming:
            self._best = dict(zip(self._build.tolist(), level.best.tolist(), strict=True))
        return answer

    def chosen(self, message: SplitRequest) -> SplitRequest:
        if self._level is not None:
            raise UnexpectedMessage("the level is not scored yet")
        return own_best(message, self._best)  # Alg. 3, line 15


def checked_totals(message: StatisticsRequest, build: RowGroups) -> Float64Array:
    """The sums (G, H) of the nodes of a level's request."""
    if not isinstance(message, MaskedLevel):
        raise UnexpectedMessage("a level of another protocol")
    if message.totals.shape != (build.nodes, 2) or not np.isfinite(message.totals).all():
        raise MalformedMessage("the sums of the level's nodes do not fit its nodes")
    return message.totals


def masked_passive(context: PassiveContext) -> VerticalPassive:
    return VerticalPassive(context, MaskedPassiveCipher(context))
