"""The feature side of `ldp`: sums noisy gradients, scores its candidates, and offers the best of each node."""

from __future__ import annotations

from veilboost.boost.columns import ColumnBlock, LevelBins
from veilboost.boost.rows import RowGroups
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.fixedpoint import MAX_BITS, Scale
from veilboost.protocols.ldp.messages import LdpRequest, LdpRound, LdpScores
from veilboost.protocols.ldp.options import LdpOptions
from veilboost.protocols.ldp.scores import score
from veilboost.protocols.vertical.leaves import node_totals
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.protocols.vertical.perturb import with_counts
from veilboost.types import Int32Array


class LdpPassive(VerticalPassive):
    """FedXGBoost Alg. 6, lines 4 to 15."""

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, LdpRound):
            raise UnexpectedMessage("a round of another protocol")
        if max(abs(message.g_exponent), abs(message.h_exponent)) > 1000:
            raise MalformedMessage("the grid of the gradients is impossible")
        options = LdpOptions.from_dict(self.config.options)
        if options.per_node and message.gradients.size:
            raise MalformedMessage("gradients came with the round where every level brings its own")
        scale = Scale(message.g_exponent, message.h_exponent)
        if not options.per_node:
            self._gradients = self._checked(message.gradients, scale)
        self._channels = message.gradients.shape[2]
        self._options, self._scale = options, scale

    def check_request(self, message: StatisticsRequest, block: ColumnBlock, build: RowGroups) -> None:
        if not isinstance(message, LdpRequest):
            raise UnexpectedMessage("a request of another protocol")
        gradients, channels = None, self._channels
        if self._options.per_node:
            gradients, channels = self._checked(message.gradients, self._scale), message.gradients.shape[2]
        elif message.gradients.size:
            raise MalformedMessage("gradients came with a level where the round has brought them")
        if message.totals.shape != ((build.nodes, channels) if self._options.paper_form else (0, 0)):
            raise MalformedMessage("the sums are of other nodes, or were not to be sent")
        if gradients is not None:
            self._gradients, self._channels = gradients, channels
        self._told = message.totals

    def statistics(self, block: ColumnBlock, bins: LevelBins, build: RowGroups) -> LdpScores:
        sums = block.histogram(bins, self._gradients, build)  # Alg. 6, line 5: noisy left-hand sums
        totals = node_totals(self._gradients, build)
        if self._options.paper_form:  # line 8: what is left of the exact sum
            totals[:, : self._channels] = self._told
        best = score(sums, block.layout, totals, self._scale, self.config, self.context.threads)
        return LdpScores(best.best_handle, best.best_gain)

    def _checked(self, gradients: Int32Array, scale: Scale) -> Int32Array:
        """The pairs to sum."""
        trees, rows, channels = gradients.shape
        if (trees, rows) != (self.trees_per_round, self.context.rows) or channels not in (1, 2):
            raise MalformedMessage("the gradients are of another number of rows or classes")
        if gradients.size and max(int(gradients.max()), -int(gradients.min())) > 2**MAX_BITS:
            raise MalformedMessage("a gradient is out of range")
        if channels == 1 and not 0 <= scale.h_exponent <= MAX_BITS:
            raise MalformedMessage("the grid of the counts is impossible")
        return self.block.placed(with_counts(gradients, scale))
