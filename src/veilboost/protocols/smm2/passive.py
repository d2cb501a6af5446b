"""The feature side of `smm2`: sends kernel vectors of its split columns, scores what comes back, keeps which won."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.rows import RowGroups
from veilboost.boost.split import Candidates, candidates_from_sums
from veilboost.crypto.fingerprint import content_digest
from veilboost.engine.api import blas_threads
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.fixedpoint import Scale
from veilboost.protocols.smm2.blocks import Block, CutColumns, Room, bin_sums, blocks_of_node, secure_kernel
from veilboost.protocols.smm2.messages import Smm2Gains, Smm2Kernels, Smm2Masked, Smm2Round
from veilboost.protocols.smm2.options import Smm2Options, scored_nodes
from veilboost.protocols.vertical.kernels import blocks_of, refuse_rows
from veilboost.protocols.vertical.messages import BeginRound, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveContext
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import AnyArray, Int64Array
from veilboost.wire.message import Message

_MOST_EXPONENT = 1000  # a scale beyond what float64 can hold


class Smm2PassiveCipher(PassiveCipher):
    """FedXGBoost Alg. 5 and the passive party's lines of Alg. 4."""

    _waiting: WaitingLevel | None = None
    _scored: ScoredLevel | None = None

    def __init__(self, context: PassiveContext) -> None:
        super().__init__(context)
        self._room = Room()

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, Smm2Round):
            raise UnexpectedMessage("a round of another protocol")
        if max(abs(message.g_exponent), abs(message.h_exponent)) > _MOST_EXPONENT:
            raise MalformedMessage("the round has an impossible scale")
        self._options = Smm2Options.from_dict(self.job.config.options)
        refuse_rows(self.context.rows, self.job.config, self._options)
        self._scale = Scale(message.g_exponent, message.h_exponent)
        self._waiting = self._scored = None

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Smm2Kernels:
        if message.depth and (self._scored is None or not np.isin(message.split, self._scored.nodes).all()):
            raise UnexpectedMessage("a node was split that was never scored")
        found: list[tuple[Block, AnyArray]] = []
        counts: list[list[Int64Array]] = []
        with blas_threads(self.context.threads):
            for node in range(build.nodes):
                rows = build.rows[build.begin[node] : build.end[node]]
                own = state.bins.of_node(build, node)
                counts.append([np.bincount(own[:, feature]) for feature in range(own.shape[1])])
                content = content_digest(self.context.randomness, rows, own)
                source = self.context.randomness.for_request("kernel", state.number, message.depth, node, content)
                for each in blocks_of_node(node, own, self._options.columns(len(rows))):
                    found += secure_kernel(each, self._options, source, self._room)
        self._waiting = WaitingLevel(message, state.block.layout, [each for each, _ in found], counts, self._scored)
        self._scored = None
        kernels = [kernel.ravel() for _, kernel in found]
        return Smm2Kernels(
            np.array([each.node for each, _ in found], dtype=np.int32),
            np.concatenate(kernels) if kernels else np.empty(0),
        )

    def other(self, message: Message, state: RoundState | None) -> Message:
        """Alg. 4, lines 6 to 19: the sums of the true columns, their gains, the best of them."""
        if not isinstance(message, Smm2Masked):
            return super().other(message, state)
        waiting, config = self._waiting, self.job.config
        if waiting is None or state is None or message.depth != waiting.asked.depth:
            raise UnexpectedMessage("masked gradients came for another level")
        if message.totals.shape != (len(waiting.asked.build), 2):
            raise MalformedMessage("there are totals of other nodes")
        nodes = scored_nodes(waiting.build, message.depth, config)
        known = waiting.known(message, nodes)
        sums, totals = np.ascontiguousarray(known[:, :-1]), np.ascontiguousarray(known[:, -1])
        offer = candidates_from_sums(sums, waiting.layout, totals, self._scale, config, self.context.threads)
        self._waiting, self._scored = None, ScoredLevel(nodes, known, offer)
        return Smm2Gains(offer.best_gain)

    def chosen(self, message: SplitRequest) -> SplitRequest:
        """The request names no candidate but "your best", handle 0; here it becomes the one that was kept."""
        if self._scored is None:
            raise UnexpectedMessage("a split came before the level was scored")
        count = len(message.position)
        none = np.zeros(count + 1, dtype=np.int32)
        if (
            not np.array_equal(message.starts, np.arange(count + 1))
            or not np.array_equal(message.handles, none[:-1])
            or not np.array_equal(message.set_starts, none)
            or len(message.set_bins)
        ):
            raise MalformedMessage("a split names a candidate where only the best can be asked for")
        return self._scored.chosen(message)


@dataclass(frozen=True)
class WaitingLevel:
    """A level whose kernel vectors were sent: what is needed to make sums of the answer."""

    asked: StatisticsRequest
    layout: BinLayout
    blocks: list[Block]
    counts: list[list[Int64Array]]
    above: ScoredLevel | None

    @property
    def build(self) -> Int64Array:
        return self.asked.build.astype(np.int64)

    def known(self, message: Smm2Masked, nodes: Int64Array) -> Int64Array:
        """Sums of (g, h) per bin and, last, of the whole node, for all nodes that are to be scored."""
        built = np.concatenate((self._built(message), message.totals[:, None]), axis=1)
        every = np.empty((len(nodes), *built.shape[1:]), dtype=np.int64)
        every[nodes.searchsorted(self.build)] = built
        derived = np.setdiff1d(nodes, self.build)
        if self.above is not None and len(derived):
            parents = self.above.nodes.searchsorted(self.asked.split[derived // 2])
            every[nodes.searchsorted(derived)] = self.above.known[parents] - every[nodes.searchsorted(derived ^ 1)]
        return every

    def _built(self, message: Smm2Masked) -> Int64Array:
        shapes = [(len(block.groups), 2) for block in self.blocks]
        if len(message.masked) != sum(2 * rows for rows, _ in shapes):
            raise MalformedMessage("there are masked gradients of other nodes")
        left: list[list[tuple[CutColumns, Int64Array]]] = [[] for _ in self.asked.build]
        for block, masked in zip(self.blocks, blocks_of(message.masked, shapes), strict=True):
            left[block.node] += block.left_sums(masked, message.totals[block.node])
        starts = self.layout.offsets[:-1].tolist()
        sums = [
            bin_sums(counts, starts, self.layout.slots, found, total)
            for counts, found, total in zip(self.counts, left, message.totals, strict=True)
        ]
        return np.stack(sums) if sums else np.empty((0, self.layout.slots, 2), dtype=np.int64)


@dataclass(frozen=True)
class ScoredLevel:
    """The nodes that were scored, what is known of them, and their best candidates."""

    nodes: Int64Array
    known: Int64Array
    offer: Candidates

    def chosen(self, message: SplitRequest) -> SplitRequest:
        """The request with the best candidate of each node, and its set of categories."""
        at = np.minimum(self.nodes.searchsorted(message.position), len(self.nodes) - 1)
        if (self.nodes[at] != message.position).any() or not np.isfinite(self.offer.best_gain[at]).all():
            raise MalformedMessage("a node to split has no candidate here")
        handles = self.offer.best_handle[at]
        sets = self.offer.left_sets(at, handles)
        set_starts = np.zeros(len(sets) + 1, dtype=np.int32)
        np.cumsum([len(each) for each in sets], out=set_starts[1:])
        set_bins = np.concatenate(sets) if sets else np.empty(0, dtype=np.int32)
        return replace(message, handles=handles, set_starts=set_starts, set_bins=set_bins)
