"""The active role of `smm2`: answers kernel vectors with masked gradients, and receives each party's best gain."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from veilboost.boost.grower import Level, Round
from veilboost.boost.rows import RowGroups
from veilboost.boost.split import Candidates
from veilboost.crypto.fingerprint import content_digest
from veilboost.engine.api import blas_threads
from veilboost.errors import MalformedMessage
from veilboost.protocols.smm2.messages import Smm2Gains, Smm2Kernels, Smm2Masked, Smm2Options, Smm2Round, scored_nodes
from veilboost.protocols.vertical import roles, smm
from veilboost.types import Float64Array, Int32Array, PartyName


class Smm2Cipher(roles.StatisticsCipher):
    """FedXGBoost Alg. 3 and the active party's lines of Alg. 4."""

    asks_ahead = True
    least_summed = 2  # see `smm.without_single_rows`

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        self._options = Smm2Options.from_dict(context.config.options)
        smm.refuse_rows(context.rows, self.config, self._options)

    def shown(self, start: Round) -> Round:
        smm.refuse_inexact(start.gradients, start.fit, self._options)
        self._revealed = {
            name: smm.RevealedRank(self.context.rows, start.trees, self._options) for name in self.context.peers.names
        }
        return start

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        return {name: Smm2Round(**vars(each), **asdict(current.start.scale)) for name, each in openings.items()}

    def enter(self, current: roles.ActiveRound, level: Level) -> tuple[roles.ActiveRound, Level]:
        return current, smm.without_single_rows(level)

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        kernels = self.context.peers.collect(waiting, Smm2Kernels)
        with blas_threads(self.context.threads):
            masked = {name: self._secure_response(current, level, name, each) for name, each in kernels.items()}
        answers = self.context.peers.ask(masked, Smm2Gains)
        nodes = scored_nodes(level.build, level.depth, self.config)
        at = nodes.searchsorted(level.open)
        offers: dict[PartyName, Candidates] = {}
        for name, answer in answers.items():
            if len(answer.gain) != len(nodes) or np.isnan(answer.gain).any():
                raise MalformedMessage(f"{name} sent gains of other nodes, or gains that are not numbers")
            # Only the owner knows its best split: handle 0 stands for it.
            offers[name] = Candidates(np.zeros(len(at), dtype=np.int32), answer.gain[at])
        return offers

    def _secure_response(
        self, current: roles.ActiveRound, level: Level, name: PartyName, kernels: Smm2Kernels
    ) -> Smm2Masked:
        """FedXGBoost Alg. 3 for every block."""
        nodes = level.fit.of(level.build)
        of_block: list[int] = kernels.node.tolist()
        if sorted(of_block) != of_block or not set(of_block) <= set(range(nodes.nodes)):
            raise MalformedMessage(f"{name} sent kernel vectors for other nodes")
        if int(np.bincount(kernels.node, minlength=1).max()) > max(current.layouts[name].slots, 1):
            raise MalformedMessage(f"{name} sent kernel vectors for more split columns than it has")
        counts = nodes.counts.tolist()
        shapes = [(counts[node], self._options.count(counts[node], 2)) for node in of_block]
        if len(kernels.kernel) != sum(rows * vectors for rows, vectors in shapes):
            raise MalformedMessage(f"{name} sent kernel vectors of another shape")
        pairs = [_pairs(current.start, nodes, node) for node in range(nodes.nodes)]
        masks: list[Float64Array] = []
        for node, kernel in zip(of_block, smm.blocks_of(kernels.kernel, shapes), strict=True):
            if kernel.shape[1]:  # two rows have no kernel vectors, and any exact answer about them reveals both
                smm.check_kernel(kernel)
            # The same vectors always get the same mask; other gradients get another one.
            content = content_digest(self.context.randomness, kernel, pairs[node])
            source = self.context.randomness.for_request("mask", name, current.start.number, level.depth, node, content)
            masks.append(smm.draw_mask(kernel, self._options, self.config.max_depth, source))
        self._revealed[name].after(nodes, [(node, mask.shape[1]) for node, mask in zip(of_block, masks, strict=True)])
        answer = np.empty(2 * sum(rows for rows, _ in shapes))
        parts = smm.blocks_of(answer, [(rows, 2) for rows, _ in shapes])
        for node, mask, part in zip(of_block, masks, parts, strict=True):
            part[:] = smm.masked(mask, pairs[node].astype(np.float64))
        return Smm2Masked(level.depth, level.totals[level.build], answer)


def _pairs(start: Round, nodes: RowGroups, node: int) -> Int32Array:
    """Gradients and hessians of a node's rows."""
    rows = nodes.rows[nodes.begin[node] : nodes.end[node]]
    return start.gradients[nodes.group[node], rows]
