"""The feature side of `elxgb`: encrypted sums for the first tree, best gains from noisy gradients for the others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from veilboost.boost.columns import ColumnBlock, LevelBins
from veilboost.boost.rows import RowGroups
from veilboost.boost.split import candidates_from_sums
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.fixedpoint import MAX_BITS, Scale
from veilboost.model.part import SplitRecords
from veilboost.protocols.elxgb.messages import LocalGains, NoisyRound
from veilboost.protocols.elxgb.options import ElxgbOptions
from veilboost.protocols.lattice.passive import LatticePassive
from veilboost.protocols.paillier.passive import PaillierPassive
from veilboost.protocols.vertical.leaves import node_totals
from veilboost.protocols.vertical.messages import BeginRound, BeginTraining, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.protocols.vertical.perturb import with_counts
from veilboost.protocols.vertical.roles import PassiveContext, PassiveSide
from veilboost.types import Int32Array
from veilboost.wire.message import Message


class DpnsPassive(VerticalPassive):
    """What later trees add to a side that sums under encryption; mixed in before it."""

    def __init__(self, context: PassiveContext) -> None:
        super().__init__(context)
        self._noisy: Int32Array | None = None
        self._best: dict[int, int] = {}  # position in the level -> the handle of its best candidate, as shown

    def open_round(self, message: BeginRound) -> None:
        if (message.number == 0) == isinstance(message, NoisyRound):
            raise UnexpectedMessage("the first tree comes encrypted, the others with noise")
        if isinstance(message, NoisyRound):
            self._open_noisy(message)
        else:
            super().open_round(message)  # pyright: ignore[reportAbstractUsage]
            self._noisy = None

    def _open_noisy(self, message: NoisyRound) -> None:
        trees, rows, channels = message.gradients.shape
        if (trees, rows) != (self.trees_per_round, self.context.rows) or channels not in (1, 2):
            raise MalformedMessage("the gradients are of another number of rows or classes")
        if max(abs(message.g_exponent), abs(message.h_exponent)) > 1000:
            raise MalformedMessage("the grid of the gradients is impossible")
        if message.gradients.size and max(int(message.gradients.max()), -int(message.gradients.min())) > 2**MAX_BITS:
            raise MalformedMessage("a gradient is out of range")
        if channels == 1 and not 0 <= message.h_exponent <= MAX_BITS:
            raise MalformedMessage("the grid of the counts is impossible")
        self._scale = Scale(message.g_exponent, message.h_exponent)
        self._noisy = with_counts(message.gradients, self._scale)

    def check_request(self, message: StatisticsRequest, block: ColumnBlock, build: RowGroups) -> None:
        if self._noisy is None:
            super().check_request(message, block, build)
        elif type(message) is not StatisticsRequest:
            raise UnexpectedMessage("a request for encrypted sums of a tree that has noise")
        self._asked = message.build

    def statistics(self, block: ColumnBlock, bins: LevelBins, build: RowGroups) -> Message:
        if self._noisy is None or self.shuffle is None:
            return super().statistics(block, bins, build)  # pyright: ignore[reportAbstractUsage]
        # Alg. 2, line 7: the local maximum by eq. (3), from sums of noisy gradients.
        sums = block.histogram(bins, self._noisy, build)
        totals = node_totals(self._noisy, build)
        best = candidates_from_sums(sums, block.layout, totals, self._scale, self.config, self.context.threads)
        place = np.argsort(self.shuffle.slots)  # where each slot of ours stands in this round's order
        handles: list[int] = best.best_handle.tolist() if len(place) else []
        shown = (2 * int(place[handle >> 1]) + (handle & 1) for handle in handles)
        self._best = dict(zip(self._asked.tolist(), shown, strict=bool(handles)))
        return LocalGains(best.best_gain)

    def handle(self, message: Message) -> Message:
        if isinstance(message, SplitRequest) and self._noisy is not None:
            message = self._by_own_best(message)
        return super().handle(message)

    def _by_own_best(self, message: SplitRequest) -> SplitRequest:
        """Alg. 2, line 14: the active party asks for the split it was offered and does not know which that is."""
        if message.handles.any() or not set(message.position.tolist()) <= set(self._best):
            raise MalformedMessage(
                "a split names a candidate, where only the best of a node that was scored can be had"
            )
        if len(message.handles) != len(message.position):
            raise MalformedMessage("a list of lists does not fit together")
        own = [self._best[position] for position in message.position.tolist()]
        return replace(message, handles=np.array(own, dtype=np.int32))


# Later trees answer with other messages than the first, so `statistics` gives more than the encrypting side's own.
class PaillierElxgbPassive(DpnsPassive, PaillierPassive):  # pyright: ignore[reportIncompatibleMethodOverride]
    """The first tree by Paillier encryption, as published."""


class LatticeElxgbPassive(DpnsPassive, LatticePassive):  # pyright: ignore[reportIncompatibleMethodOverride]
    """The first tree by packed ring-LWE encryption."""


_SIDES: dict[str, type[DpnsPassive]] = {"paillier": PaillierElxgbPassive, "lattice": LatticeElxgbPassive}


class ElxgbPassive(PassiveSide):
    """One of the two, as soon as the job says by which encryption."""

    def __init__(self, context: PassiveContext) -> None:
        self._context = context
        self._side: DpnsPassive | None = None
        self._restored: SplitRecords | None = None

    def handle(self, message: Message) -> Message:
        if self._side is not None:
            return self._side.handle(message)
        if not isinstance(message, BeginTraining):
            raise UnexpectedMessage(f"{message.type_name()} came outside a job")
        side = _SIDES[_backend(message)](self._context)
        answer = side.handle(message)
        if self._restored is not None:
            side.restore(self._restored)
        self._side = side
        return answer

    def records(self) -> SplitRecords:
        return SplitRecords.of({}) if self._side is None else self._side.records()

    def restore(self, records: SplitRecords) -> None:
        self._restored = records
        if self._side is not None:
            self._side.restore(records)

    @property
    def finished(self) -> bool:
        return self._side is not None and self._side.finished


def _backend(message: BeginTraining) -> str:
    """The encryption that a job asks for; what else is wrong with its parameters, the side itself refuses."""
    try:
        options: Any = json.loads(message.config)["options"]
        return ElxgbOptions.from_dict(options).backend
    except (ValueError, TypeError, KeyError, AttributeError):
        return ElxgbOptions.backend
