"""The passive role of `plain`: sums gradients per node and bin."""

from __future__ import annotations

from veilboost.boost.rows import RowFiller, RowGroups
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.fixedpoint import MAX_BITS
from veilboost.protocols.plain.messages import ROWS_AT_ONCE, MoreGradients, PlainRound, PlainSums
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveCipher
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import Int32Array
from veilboost.wire.message import Done, Message


class PlainPassiveCipher(PassiveCipher):
    """Stores the round's gradients and answers with exact sums."""

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, PlainRound):
            raise UnexpectedMessage("a round of another protocol")
        filler = self.job.block.filler()
        self._take(filler, message.gradients)
        self._filler = filler

    def other(self, message: Message, state: RoundState | None) -> Message:
        if not isinstance(message, MoreGradients):
            return super().other(message, state)
        if state is None or state.summed or self._filler.complete:
            raise UnexpectedMessage("gradients arrived although none were missing")
        self._take(self._filler, message.gradients)
        return Done()

    def _take(self, filler: RowFiller, gradients: Int32Array) -> None:
        if gradients.shape != (self.job.trees_per_round, min(ROWS_AT_ONCE, filler.rows - filler.filled), 2):
            raise MalformedMessage("the gradients are of another number of rows or classes")
        if gradients.size and max(int(gradients.max()), -int(gradients.min())) > 2**MAX_BITS:
            raise MalformedMessage("a gradient is out of range")
        filler.add(gradients)
        if filler.complete:
            self._gradients = filler.whole()

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> PlainSums:
        if not self._filler.complete:
            raise UnexpectedMessage("a level arrived before all gradients")
        return PlainSums(state.block.histogram(state.bins, self._gradients, build))
