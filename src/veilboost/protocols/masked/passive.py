"""The feature side of `masked`: makes masks, scores what comes back under them, and keeps which split won."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from veilboost.boost.columns import ColumnBlock, LevelBins
from veilboost.boost.layout import BinLayout
from veilboost.boost.rows import RowGroups
from veilboost.crypto.content import content_digest
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.masked.accounting import masks_event
from veilboost.protocols.masked.messages import MaskedLevel, NoisedVectors
from veilboost.protocols.masked.parameters import Noise, layout_bound
from veilboost.protocols.masked.streaming import LevelMasks
from veilboost.protocols.vertical.messages import BeginRound, ColumnsOffered, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.types import Int32Array
from veilboost.wire.message import Message


class MaskedPassive(VerticalPassive):
    """MaskedXGBoost at the passive party: Algorithm 1, and its lines of Algorithm 3."""

    def open_round(self, message: BeginRound) -> None:
        self._number = message.number
        self._level: LevelMasks | None = None
        self._best: Int32Array | None = None

    def handle(self, message: Message) -> Message:
        if self._round is not None:
            if self._level is not None:
                if isinstance(message, NoisedVectors):
                    self._level.take(message)
                    return self._next(self._level)
                if isinstance(message, SplitRequest):
                    raise UnexpectedMessage("the level is not scored yet")
            if isinstance(message, SplitRequest):
                message = self._with_saved(message)
        answer = super().handle(message)
        if isinstance(answer, ColumnsOffered):  # the job has begun: what it needs follows from its parameters
            candidates = layout_bound(BinLayout(answer.offsets, answer.missing, answer.kind))
            self._noise = Noise.of(self.config, self.context.rows, candidates, self.trees_per_round)
        return answer

    def check_request(self, message: StatisticsRequest, block: ColumnBlock, build: RowGroups) -> None:
        if self._level is not None:
            raise UnexpectedMessage("the level before is not scored yet")
        if not isinstance(message, MaskedLevel):
            raise UnexpectedMessage("a level of another protocol")
        if message.totals.shape != (build.nodes, 2) or not np.isfinite(message.totals).all():
            raise MalformedMessage("the sums of the level's nodes do not fit its nodes")
        self._totals, self._depth, self._build = message.totals, message.depth, message.build

    def statistics(self, block: ColumnBlock, bins: LevelBins, build: RowGroups) -> Message:
        # The same bins of the same rows in the same nodes draw the same masks again; any others draw others.
        own = (bins.of_node(build, node) for node in range(build.nodes))
        columns = b"" if self.state.columns is None else self.state.columns
        content = content_digest(
            self.context.randomness, self._noise.law, columns, build.counts, build.group, build.listed(), *own
        )
        drawn = self.context.randomness.for_request("masks", self._number, self._depth, content)
        self._level = LevelMasks(
            block,
            bins,
            build,
            block.histogram(bins, self._ones, build)[:, :, 0],
            self._totals,
            self._noise,
            self.config,
            drawn.bytes(32),
            self.context.threads,
        )
        self.context.account.spend(
            masks_event(self._noise, self._number, self._depth, self._level.most_candidates, content.hex())
        )
        return self._next(self._level)

    @cached_property
    def _ones(self) -> Int32Array:
        """What makes a histogram count rows."""
        return self.block.placed(np.ones((self.trees_per_round, self.context.rows, 2), dtype=np.int32))

    def _next(self, level: LevelMasks) -> Message:
        answer = level.next()
        if not level.streaming:
            self._best, self._level = level.best, None
        return answer

    def _with_saved(self, message: SplitRequest) -> SplitRequest:
        """The active party knows only that our best candidate won; which that is was kept here (Alg. 3, line 15)."""
        if self._best is None or message.handles.any():
            raise MalformedMessage("a split names a candidate that was not told")
        if len(message.handles) != len(message.position):
            raise MalformedMessage("a split's arrays have different lengths")
        at = np.searchsorted(self._build, message.position)
        if len(at) and (int(at.max()) >= len(self._build) or (self._build[at] != message.position).any()):
            raise MalformedMessage("a split names a node that was not scored")
        return replace(message, handles=self._best[at])
