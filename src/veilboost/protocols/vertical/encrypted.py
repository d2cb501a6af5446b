"""The active side of protocols that get exact sums back under encryption."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from veilboost.boost.grower import Level, Round
from veilboost.boost.layout import BinLayout
from veilboost.boost.split import Candidates, candidates_from_sums
from veilboost.errors import MalformedMessage
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.sums import LevelSums
from veilboost.types import Int64Array, PartyName
from veilboost.wire.channel import Pending
from veilboost.wire.message import Message


class EncryptedActive(VerticalActive):
    """Decrypts a level's sums, checks them against what it knows, derives siblings and scores.

    The passive side shows its columns in another order each round, so all handles that tie are named.
    """

    answer: ClassVar[type[Message]]

    @abstractmethod
    def decrypt(self, level: Level, name: PartyName, answer: Any) -> Int64Array:
        """The sums in a party's answer: (nodes of `level.build`, slots, 2)."""

    def begin_round(self, start: Round) -> None:
        self._sums = {name: LevelSums() for name in self.context.peers.names}
        super().begin_round(start)

    def read_statistics(self, level: Level, pending: Mapping[PartyName, Pending]) -> Mapping[PartyName, Candidates]:
        offers: dict[PartyName, Candidates] = {}
        for name, sums in self.decrypted(level, pending).items():
            layout = self.round_layouts[name]
            known = self.known_totals(level)
            if known is not None:
                _check_totals(name, sums, layout, known)
            self.known_sums[name] = self._sums[name].complete(level, sums)
            offers[name] = self.offer(self.known_sums[name], layout, level.totals[level.open])
        return offers

    def decrypted(self, level: Level, pending: Mapping[PartyName, Pending]) -> Mapping[PartyName, Int64Array]:
        """Every party's sums of the nodes to sum."""
        answers = self.context.peers.collect(pending, self.answer)
        return {name: self.decrypt(level, name, answer) for name, answer in answers.items()}

    def known_totals(self, level: Level) -> Int64Array | None:
        """What the bins of every column of the nodes to sum must add up to; None where noise forbids to check."""
        return level.totals[level.build]

    def offer(self, sums: Int64Array, layout: BinLayout, totals: Int64Array) -> Candidates:
        """A passive party's candidates from its sums."""
        gains = candidates_from_sums(
            sums, layout, totals, self.start.scale, self.config, self.context.threads, keep_gains=True
        )
        return replace(gains, shuffled=True)


def _check_totals(name: PartyName, sums: Int64Array, layout: BinLayout, totals: Int64Array) -> None:
    """Ciphertexts can be altered by anyone who holds them: the bins of every column must add up to the node."""
    if not sums.size:
        return
    by_column = np.add.reduceat(sums, layout.offsets[:-1], axis=1)
    if not np.array_equal(by_column, np.broadcast_to(totals[:, None, :], by_column.shape)):
        raise MalformedMessage(f"the sums of {name} do not add up to the node's own", "start the job again")
