"""The passive role of `smm1`: answers with its split columns, masked by some of the received kernel vectors."""

from __future__ import annotations

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.crypto.fingerprint import content_digest
from veilboost.engine.api import blas_threads
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.smm1.messages import Smm1Request, Smm1Response
from veilboost.protocols.vertical import smm
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveCipher
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import AnyArray, Float64Array, Int32Array, Int64Array


class Smm1PassiveCipher(PassiveCipher):
    """FedXGBoost Alg. 2."""

    shuffles = True

    def open_round(self, message: BeginRound) -> None:
        if type(message) is not BeginRound:
            raise UnexpectedMessage("a round of another protocol")
        self._options = smm.KernelOptions.from_dict(self.job.config.options)
        smm.refuse_rows(self.context.rows, self.job.config, self._options)
        self._revealed = smm.RevealedRank(self.context.rows, self.job.trees_per_round, self._options)

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Smm1Response:
        if not isinstance(message, Smm1Request):
            raise UnexpectedMessage("a request of another protocol")
        with blas_threads(self.context.threads):
            kernels = self._checked(message, build)
            own = [state.bins.of_node(build, node) for node in range(build.nodes)]
            masks = self._draw_masks(state, build, kernels, own)
            nodes = [SplitColumns(each, state.shuffle.starts) for each in own]
            shapes = [(nodes[node].width, len(mask)) for node, mask in masks]
            # All nodes write into one array, which needs by far the most memory.
            masked = np.empty(sum(width * rows for width, rows in shapes))
            for (node, mask), out in zip(masks, smm.blocks_of(masked, shapes), strict=True):
                nodes[node].mask_into(mask, out)
        starts = np.zeros(build.nodes + 1, dtype=np.int32)
        np.cumsum([len(node.slots) for node in nodes], out=starts[1:])
        return Smm1Response(starts, np.concatenate([node.slots for node in nodes]), masked)

    def _checked(self, message: Smm1Request, build: RowGroups) -> list[tuple[int, Float64Array]]:
        """The received kernel vectors, each with its node."""
        if len(message.halves) != build.nodes or (message.halves > 1).any():
            raise MalformedMessage("the kernel vectors are for other nodes")
        node_of: list[int] = np.arange(build.nodes).repeat(1 + message.halves.astype(np.int64)).tolist()
        shapes: list[tuple[int, int]] = []
        for count, two in zip(build.counts.tolist(), message.halves.tolist(), strict=True):
            shapes += [(count, self._options.count(count, 1))] * 2 if two else [(count, self._options.count(count, 2))]
        if len(message.kernel) != sum(count * vectors for count, vectors in shapes):
            raise MalformedMessage("the kernel vectors are of another shape")
        kernels = list(zip(node_of, smm.blocks_of(message.kernel, shapes), strict=True))
        for _, kernel in kernels:
            smm.check_kernel(kernel)
        return kernels

    def _draw_masks(
        self, state: RoundState, build: RowGroups, kernels: list[tuple[int, Float64Array]], own: list[AnyArray]
    ) -> list[tuple[int, Float64Array]]:
        masks: list[tuple[int, Float64Array]] = []
        randomness = self.context.randomness
        for node, kernel in kernels:
            # The same vectors get the same mask; other rows, or other bins of them, get another one.
            rows = build.rows[build.begin[node] : build.end[node]]
            content = content_digest(randomness, kernel, rows, own[node])
            source = randomness.for_request("mask", state.number, state.depth, node, content)
            masks.append((node, smm.draw_mask(kernel, self._options, self.job.config.max_depth, source)))
        self._revealed.after(build, [(node, mask.shape[1]) for node, mask in masks])
        return masks


class SplitColumns:
    """The indicator columns of a node's bins: every non-empty bin except the last of each feature.

    The paper's columns (FedXGBoost Def. 4) are sums of these; with bins the active party can also order categories.
    """

    def __init__(self, bins: AnyArray, starts: Int32Array) -> None:
        self._rows = len(bins)
        self._features: list[tuple[AnyArray, Int64Array]] = []
        slots = [np.empty(0, dtype=np.int32)]
        for feature in np.argsort(starts).tolist():  # in the order sent
            own = bins[:, feature]
            present = np.flatnonzero(np.bincount(own))
            slots.append((starts[feature] + present).astype(np.int32))
            self._features.append((own, present))
        self.slots = np.concatenate(slots)
        self.width = len(self.slots) - len(self._features)

    def mask_into(self, mask: Float64Array, out: Float64Array) -> None:
        """W = M'(I - ZZ') (Alg. 2, line 4) as M' - (M'Z)Z'."""
        products = np.empty((self.width, mask.shape[1]))
        at = 0
        for own, present in self._features:
            order = np.argsort(own, kind="stable")
            first = own[order].searchsorted(present)
            count = len(present) - 1
            products[at : at + count] = np.add.reduceat(mask[order], first, axis=0)[:count]
            at += count
        np.matmul(products, -mask.T, out=out)
        at = 0
        every = np.arange(self._rows)
        for own, present in self._features:
            place = present.searchsorted(own)
            count = len(present) - 1
            inside = every[place < count]
            out[at + place[inside], inside] += 1.0
            at += count
