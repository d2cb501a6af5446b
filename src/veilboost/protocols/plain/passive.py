"""The feature side of `plain`: sums gradients per node and bin."""

from __future__ import annotations

from veilboost.boost.columns import ColumnBlock, LevelBins
from veilboost.boost.rows import RowGroups
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.fixedpoint import MAX_BITS
from veilboost.protocols.common.messages import BeginRound
from veilboost.protocols.common.passive import VerticalPassive
from veilboost.protocols.plain.messages import PlainRound, PlainSums


class PlainPassive(VerticalPassive):
    """Keeps the round's gradients and answers with exact sums."""

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, PlainRound):
            raise UnexpectedMessage("a round of another protocol")
        if message.gradients.shape != (self.trees_per_round, self.context.rows, 2):
            raise MalformedMessage("the gradients are of another number of rows or classes")
        if message.gradients.size and max(int(message.gradients.max()), -int(message.gradients.min())) > 2**MAX_BITS:
            raise MalformedMessage("a gradient is out of range")
        self._gradients = self.block.placed(message.gradients)

    def statistics(self, block: ColumnBlock, bins: LevelBins, build: RowGroups) -> PlainSums:
        return PlainSums(block.histogram(bins, self._gradients, build))
