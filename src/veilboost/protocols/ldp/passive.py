"""The passive role of `ldp`: sums noisy gradients, scores its candidates, and sends the best of each node."""

from __future__ import annotations

from veilboost.boost.rows import RowGroups
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.fixedpoint import Scale
from veilboost.protocols.ldp.messages import LdpRequest, LdpRound, LdpScores
from veilboost.protocols.ldp.parameters import LdpOptions, score
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.perturb import checked_pairs, checked_scale
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveJob
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import Int32Array


class LdpPassiveCipher(PassiveCipher):
    """FedXGBoost Alg. 6, lines 4 to 15."""

    def begin_training(self, job: PassiveJob) -> None:
        super().begin_training(job)
        self._options = LdpOptions.from_dict(job.config.options)

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, LdpRound):
            raise UnexpectedMessage("a round of another protocol")
        scale = checked_scale(message.g_exponent, message.h_exponent)
        if not self._options.per_node:
            self._gradients = self._pairs(message.gradients, scale)
        elif message.gradients.size:
            raise MalformedMessage("gradients arrived with the round, but every level has its own")
        self._channels, self._scale = message.gradients.shape[2], scale

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> LdpScores:
        if not isinstance(message, LdpRequest):
            raise UnexpectedMessage("a request of another protocol")
        if self._options.per_node:
            gradients, channels = self._pairs(message.gradients, self._scale), message.gradients.shape[2]
        elif message.gradients.size:
            raise MalformedMessage("gradients arrived with a level, but the round has them already")
        else:
            gradients, channels = self._gradients, self._channels
        if message.totals.shape != ((build.nodes, channels) if self._options.paper_form else (0, 0)):
            raise MalformedMessage("the sums are of other nodes, or were not expected")
        block = state.block
        sums = block.histogram(state.bins, gradients, build)  # Alg. 6, line 5: noisy left-hand sums
        totals = build.totals(gradients)
        if self._options.paper_form:  # line 8: the exact sum minus the left sum
            totals[:, :channels] = message.totals
        best = score(sums, block.layout, totals, self._scale, self.job.config, self.context.threads)
        return LdpScores(best.best_handle, best.best_gain)

    def _pairs(self, gradients: Int32Array, scale: Scale) -> Int32Array:
        pairs = checked_pairs(gradients, scale, self.job.trees_per_round, self.context.rows)
        return self.job.block.placed(pairs)
