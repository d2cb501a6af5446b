"""The active role of `smm1`: sends kernel vectors of its gradients and receives masked split columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level, Round
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.fingerprint import content_digest
from veilboost.engine.api import blas_threads
from veilboost.errors import GradientRange, MalformedMessage
from veilboost.protocols.smm1.messages import Smm1Request, Smm1Response
from veilboost.protocols.vertical import roles, smm
from veilboost.types import Float64Array, Int32Array, Int64Array, PartyName


class Smm1Cipher(roles.StatisticsCipher):
    """FedXGBoost Alg. 1, the active party's lines."""

    shuffled = checks_totals = True

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        self._options = smm.KernelOptions.from_dict(context.config.options)
        smm.refuse_rows(context.rows, self.config, self._options)

    def shown(self, start: Round) -> Round:
        smm.refuse_inexact(start.gradients, start.fit, self._options)
        return start

    def enter(self, current: roles.ActiveRound, level: Level) -> tuple[roles.ActiveRound, Level]:
        return current, smm.without_single_rows(level)

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests) -> roles.Waiting:
        with blas_threads(self.context.threads):
            self._nodes = [self._node(current.start, level, at) for at in level.build.tolist()]
        halves = np.array([len(node.kernels) > 1 for node in self._nodes], dtype=np.uint8)
        kernel = np.concatenate([kernel.ravel() for node in self._nodes for kernel in node.kernels])
        return self.context.peers.send(
            {name: Smm1Request(**vars(each), halves=halves, kernel=kernel) for name, each in requests.items()}
        )

    def _node(self, start: Round, level: Level, position: int) -> MaskedNode:
        rows = level.fit.rows[level.fit.begin[position] : level.fit.end[position]]
        pairs = start.gradients[level.fit.group[position], rows]
        # All passive parties get the same vectors (Alg. 1, line 2), also if the level is requested again.
        content = content_digest(self.context.randomness, rows, pairs)
        source = self.context.randomness.for_request("kernel", start.number, level.depth, position, content)
        return MaskedNode.make(pairs, self._options, source)

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        totals = level.totals[level.build]
        answers = self.context.peers.collect(waiting, Smm1Response)
        with blas_threads(self.context.threads):
            return {name: self._sums(name, each, current.layouts[name], totals) for name, each in answers.items()}

    def _sums(self, name: PartyName, answer: Smm1Response, layout: BinLayout, totals: Int64Array) -> Int64Array:
        listed = _bins_listed(name, answer, layout, len(self._nodes))
        last = [np.diff(_column_of(layout, slots), append=layout.features + 1) > 0 for slots in listed]
        shapes = [
            (int(np.count_nonzero(~ends)), node.rows)
            for node, ends in zip(self._nodes, last, strict=True)
            for _ in node.kernels
        ]
        if len(answer.masked) != sum(bins * rows for bins, rows in shapes):
            raise MalformedMessage(f"{name} sent masked columns for other nodes or bins")
        matrices = smm.blocks_of(answer.masked, shapes)
        sums = np.zeros((len(self._nodes), layout.slots, 2), dtype=np.int64)
        for at, (node, slots, ends) in enumerate(zip(self._nodes, listed, last, strict=True)):
            sums[at, slots[~ends]] = node.sums([next(matrices) for _ in node.kernels])
            if layout.features:
                sums[at, slots[ends]] = totals[at] - np.add.reduceat(sums[at], layout.offsets[:-1], axis=0)
        return sums


class MaskedNode:
    """The gradients of a node and the kernel vectors sent for them."""

    def __init__(self, data: Sequence[Float64Array], kernels: Sequence[Float64Array], times: int) -> None:
        self._data = data
        self.kernels = kernels
        self._times = times
        self.rows = len(data[0])

    @staticmethod
    def make(pairs: Int32Array, options: smm.KernelOptions, source: Csprng) -> MaskedNode:
        """Make vectors orthogonal to g and h at once or, if these would leave a row unmasked, to each separately.

        If all rows except one have proportional (g, h), every vector orthogonal to both is 0 at that row. Then h, and g
        or (if all g except one are 0) g + h, are masked separately. Two rows have no vector orthogonal to both.
        """
        data = pairs.astype(np.float64)
        count = options.count(len(data), 2)
        if count:
            kernel = smm.null_vectors(data, count, source)
            if smm.hidden_rows(kernel).all():
                return MaskedNode([data], [kernel], 0)
        g, h = data[:, :1], data[:, 1:]
        times = 0 if np.count_nonzero(g) != 1 else 1
        parts = [h, g + times * h]
        kernels = [smm.null_vectors(part, options.count(len(data), 1), source) for part in parts]
        if not all(smm.hidden_rows(kernel).all() for kernel in kernels):
            raise GradientRange(
                "in a node only one row has a weight above 0, and no kernel vectors can hide it",
                "remove rows of weight 0, or raise min_child_weight",
            )
        return MaskedNode(parts, kernels, times)

    def sums(self, masked: Sequence[Float64Array]) -> Int64Array:
        """The sums of (g, h) over the bins of masked columns, W g and W h (Alg. 1, line 9)."""
        found = [
            smm.rounded(smm.chunked_product(columns, data)) for columns, data in zip(masked, self._data, strict=True)
        ]
        if len(found) == 1:
            return found[0]
        h = found[0]
        return np.concatenate((found[1] - self._times * h, h), axis=1)


def _column_of(layout: BinLayout, slots: Int32Array) -> Int32Array:
    return layout.offsets.searchsorted(slots, side="right").astype(np.int32)


def _bins_listed(name: PartyName, answer: Smm1Response, layout: BinLayout, nodes: int) -> list[Int32Array]:
    """The non-empty bins of each node: in order, and at least one of every column."""
    starts, slots = answer.starts, answer.slots
    fits = len(starts) == nodes + 1 and starts[0] == 0 and starts[-1] == len(slots) and (np.diff(starts) >= 0).all()
    if fits:
        listed = [slots[a:b] for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
        fits = all(
            bool((bins >= 0).all() and (bins < layout.slots).all() and (bins[1:] > bins[:-1]).all())
            and len(np.unique(_column_of(layout, bins))) == layout.features
            for bins in listed
        )
        if fits:
            return listed
    raise MalformedMessage(f"{name} listed bins that do not exist")
