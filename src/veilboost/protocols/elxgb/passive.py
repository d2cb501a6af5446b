"""The passive role of `elxgb`: encrypted sums for the first tree, best gains from noisy gradients for the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.boost.split import candidates_from_sums
from veilboost.errors import UnexpectedMessage
from veilboost.protocols.elxgb.messages import LocalGains, NoisyRound
from veilboost.protocols.elxgb.parameters import ElxgbOptions
from veilboost.protocols.lattice.passive import LatticePassiveCipher
from veilboost.protocols.paillier.passive import PaillierPassiveCipher
from veilboost.protocols.vertical.messages import BeginRound, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.perturb import checked_pairs, checked_scale
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveContext, PassiveJob
from veilboost.protocols.vertical.round_state import RoundState, own_best
from veilboost.types import Int32Array
from veilboost.wire.message import Message

_HENS: dict[str, Callable[[PassiveContext], PassiveCipher]] = {
    "paillier": PaillierPassiveCipher,
    "lattice": LatticePassiveCipher,
}


class ElxgbPassiveCipher(PassiveCipher):
    """The first tree uses the encryption that the job names; for later trees the party scores noisy gradients."""

    shuffles = True

    def __init__(self, context: PassiveContext) -> None:
        super().__init__(context)
        self._noisy: Int32Array | None = None
        self._best: dict[int, int] = {}  # position in the level -> the handle of its best candidate, in the order sent

    def begin_training(self, job: PassiveJob) -> None:
        super().begin_training(job)
        self._hens = _HENS[ElxgbOptions.from_dict(job.config.options).backend](self.context)
        self._hens.begin_training(job)

    def open_round(self, message: BeginRound) -> None:
        if (message.number == 0) == isinstance(message, NoisyRound):
            raise UnexpectedMessage("the gradients of the first tree must be encrypted, those of later trees noisy")
        if isinstance(message, NoisyRound):
            scale, rows = checked_scale(message.g_exponent, message.h_exponent), self.context.rows
            self._noisy = checked_pairs(message.gradients, scale, self.job.trees_per_round, rows)
            self._scale = scale
        else:
            self._hens.open_round(message)
            self._noisy = None

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Message:
        if self._noisy is None:
            return self._hens.answer(message, state, build)
        if type(message) is not StatisticsRequest:
            raise UnexpectedMessage("encrypted sums were requested for a tree with noisy gradients")
        # Alg. 2, line 7: the local maximum by eq. (3), from sums of noisy gradients.
        sums, totals = state.block.histogram(state.bins, self._noisy, build), build.totals(self._noisy)
        layout, config = state.block.layout, self.job.config
        best = candidates_from_sums(sums, layout, totals, self._scale, config, self.context.threads)
        place = np.argsort(state.shuffle.slots)  # position of each own slot in this round's order
        handles: list[int] = best.best_handle.tolist() if len(place) else []
        sent = (2 * int(place[handle >> 1]) + (handle & 1) for handle in handles)
        self._best = dict(zip(state.build.tolist(), sent, strict=bool(handles)))
        return LocalGains(best.best_gain)

    def chosen(self, message: SplitRequest) -> SplitRequest:
        """Alg. 2, line 14: the active party requests the split that it was offered."""
        return message if self._noisy is None else own_best(message, self._best)
