"""The label side of `plain`: gradients go out, sums come back."""

from __future__ import annotations

from collections.abc import Mapping

from veilboost.boost.grower import Level, Round
from veilboost.boost.split import Candidates, candidates_from_sums
from veilboost.engine.shards import pieces_of
from veilboost.errors import MalformedMessage
from veilboost.protocols.plain.messages import ROWS_AT_ONCE, MoreGradients, PlainRound, PlainSums
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.sums import LevelSums
from veilboost.types import PartyName
from veilboost.wire.channel import Pending
from veilboost.wire.message import Done


class PlainActive(VerticalActive):
    """Sends the gradients once a round and scores the sums it gets."""

    def begin_round(self, start: Round) -> None:
        self._sums = {name: LevelSums() for name in self.context.peers.names}
        pieces = pieces_of(start.gradients, ROWS_AT_ONCE)
        self._first = next(pieces)
        super().begin_round(start)
        for piece in pieces:
            self.context.peers.ask(dict.fromkeys(self.context.peers.names, MoreGradients(piece)), Done)

    def round_message(self, start: Round, party: PartyName, opening: BeginRound) -> PlainRound:
        return PlainRound(opening.number, opening.fit, opening.all_columns, opening.columns, self._first)

    def ask_statistics(self, requests: Mapping[PartyName, StatisticsRequest]) -> Mapping[PartyName, Pending]:
        return self.context.peers.send(requests)

    def read_statistics(self, level: Level, pending: Mapping[PartyName, Pending]) -> Mapping[PartyName, Candidates]:
        offers: dict[PartyName, Candidates] = {}
        for name, answer in self.context.peers.collect(pending, PlainSums).items():
            layout = self.round_layouts[name]
            if answer.sums.shape != (len(level.build), layout.slots, 2):
                raise MalformedMessage(f"{name} sent sums for other nodes or bins")
            self.known_sums[name] = self._sums[name].complete(level, answer.sums)
            offers[name] = candidates_from_sums(
                self.known_sums[name],
                layout,
                level.totals[level.open],
                self.start.scale,
                self.config,
                self.context.threads,
            )
        return offers
