"""The active role of `plain`: sends gradients and receives sums."""

from __future__ import annotations

from veilboost.boost.grower import Level
from veilboost.engine.shards import pieces_of
from veilboost.errors import MalformedMessage
from veilboost.protocols.plain.messages import ROWS_AT_ONCE, MoreGradients, PlainRound, PlainSums
from veilboost.protocols.vertical import roles
from veilboost.wire.message import Done


class PlainCipher(roles.StatisticsCipher):
    """Sends the gradients once per round and reads the returned sums."""

    asks_ahead = True

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        self._pieces = pieces_of(current.start.gradients, ROWS_AT_ONCE)
        first = next(self._pieces)
        return {name: PlainRound(**vars(each), gradients=first) for name, each in openings.items()}

    def opened(self, current: roles.ActiveRound) -> None:
        for piece in self._pieces:
            self.context.peers.flush()
            self.context.peers.hold(dict.fromkeys(self.context.peers.names, MoreGradients(piece)), Done)

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        answers = self.context.peers.collect(waiting, PlainSums)
        for name, answer in answers.items():
            if answer.sums.shape != (len(level.build), current.layouts[name].slots, 2):
                raise MalformedMessage(f"{name} sent sums for other nodes or bins")
        return {name: answer.sums for name, answer in answers.items()}
