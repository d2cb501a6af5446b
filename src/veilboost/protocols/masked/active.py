"""The label side of `masked`: puts gradients under the masks it is sent, after a look at the masks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from veilboost import _native
from veilboost.boost.grower import Level, Round
from veilboost.boost.split import Candidates
from veilboost.crypto.content import content_digest
from veilboost.errors import GradientRange, MalformedMessage, UnexpectedMessage
from veilboost.protocols.masked.accounting import sums_event, vectors_events
from veilboost.protocols.masked.checking import check_cover, check_masks
from veilboost.protocols.masked.messages import BestGains, MaskedLevel, Masks, NoisedVectors
from veilboost.protocols.masked.options import MaskedOptions
from veilboost.protocols.masked.parameters import Noise, gradient_bound, layout_bound
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import ActiveContext
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array, PartyName
from veilboost.wire.channel import Pending
from veilboost.wire.message import Message


class MaskedActive(VerticalActive):
    """MaskedXGBoost at the active party: Algorithm 2, and the last line of Algorithm 3."""

    def __init__(self, context: ActiveContext) -> None:
        super().__init__(context)
        self.derives_siblings = False  # every node has masks of its own; sums never come here
        self.options = MaskedOptions.from_dict(self.config.options)

    def begin_training(self, held_out: BoolArray | None, bin_weights: Float64Array | None) -> Sequence[int]:
        features = super().begin_training(held_out, bin_weights)
        self._noise = {
            name: Noise.of(
                self.config, self.context.rows, layout_bound(self.layouts[name]), self.context.trees_per_round
            )
            for name in self.context.peers.names
        }
        return features

    # --- the round --------------------------------------------------------------------------------------

    def begin_round(self, start: Round) -> None:
        self._pairs = self._bounded(start)
        super().begin_round(replace(start, gradients=self.context.block.placed(self._pairs)))
        self._units = np.array([start.scale.g_unit, start.scale.h_unit])
        h = self._pairs[:, np.asarray(start.fit), 1]
        # Remark 2: hessians that are all 1 need not travel.
        self._sends_hessians = self.config.order == "second" or bool((h * self.start.scale.h_unit != 1.0).any())

    def round_message(self, start: Round, party: PartyName, opening: BeginRound) -> BeginRound:
        return opening

    def _bounded(self, start: Round) -> Int32Array:
        """Gradients within the range that noise is measured by (section 5.2): clipped, or refused."""
        gradients = np.asarray(start.gradients)
        if self.options.noise_off and self.options.clip is None:
            return gradients
        most = gradient_bound(self.config, self.options)
        limits = [math.floor(most / unit) for unit in (start.scale.g_unit, start.scale.h_unit)]
        if self.options.clip is not None:
            return np.clip(gradients, -np.array(limits), limits).astype(np.int32)
        if (np.abs(gradients).reshape(-1, 2).max(axis=0, initial=0) > limits).any():
            raise GradientRange(
                f"a gradient is larger than {most:g}, which noise is measured by",
                "set the option clip of masked; weights and losses without a range need it",
            )
        return gradients

    # --- the level --------------------------------------------------------------------------------------

    def candidates(self, level: Level) -> Sequence[Candidates]:
        self._rows = level.fit.of(level.build)
        # Of gradients as they are used here, which may be clipped.
        self._level = replace(level, totals=level.fit.totals(self.start.gradients))
        return super().candidates(self._level)

    def ask_statistics(self, requests: Mapping[PartyName, StatisticsRequest]) -> Mapping[PartyName, Pending]:
        level, randomness = self._level, self.context.randomness
        totals = level.totals[level.build].astype(np.float64) * self._units
        rows = self._rows
        # Of all that noise will protect in this level: which gradients stand in which node.
        self._content = content_digest(randomness, rows.begin, rows.end, rows.group, rows.rows, self._pairs)
        told = content_digest(randomness, level.build, totals).hex()
        messages: dict[PartyName, Message] = {}
        for name, request in requests.items():
            self.context.account.spend(sums_event(name, self.start.number, level.depth, told))
            messages[name] = MaskedLevel(
                request.depth, request.split, request.fit_left, request.follow_left, request.build, totals
            )
        return self.context.peers.send(messages)

    def read_statistics(self, level: Level, pending: Mapping[PartyName, Pending]) -> Mapping[PartyName, Candidates]:
        """Answer masks by noised vectors until every party has told its best scores."""
        offers: dict[PartyName, Candidates] = {}
        asked = dict.fromkeys(pending, 0)
        seen = {name: np.zeros(self._rows.nodes, dtype=np.int64) for name in pending}
        while pending:
            answers: dict[PartyName, Message] = {}
            for name, answer in self.context.peers.collect(pending, Message).items():
                if isinstance(answer, Masks):
                    answers[name] = self._noised(name, answer, asked[name], seen[name])
                    asked[name] += 1
                elif isinstance(answer, BestGains):
                    offers[name] = self._offer(name, answer)
                else:
                    raise UnexpectedMessage(f"{name} answered {answer.type_name()} where masks or scores were expected")
            pending = self.context.peers.send(answers)
        return offers

    def _offer(self, name: PartyName, answer: BestGains) -> Candidates:
        if len(answer.gains) != self._rows.nodes or not (answer.gains < np.inf).all():
            raise MalformedMessage(f"{name} sent scores for other nodes, or scores that are not numbers")
        # The party keeps which of its candidates is best (Alg. 3, line 15): here it is always number 0.
        gains = answer.gains[self._level.build.searchsorted(self._level.open)]
        return Candidates(np.zeros(len(gains), dtype=np.int32), gains)

    def _noised(self, name: PartyName, answer: Masks, number: int, seen: Int64Array) -> NoisedVectors:
        """Algorithm 2 for the candidates of one message."""
        noise, rows, nodes = self._noise[name], self._rows, answer.nodes
        if answer.number != number or not len(nodes) or int(nodes.min()) < 0 or int(nodes.max()) >= rows.nodes:
            raise MalformedMessage(f"{name} sent masks out of order, or for nodes that are not there")
        np.add.at(seen, nodes, 1)
        if (nodes[1:] < nodes[:-1]).any() or int(seen.max()) > noise.candidates:
            raise MalformedMessage(f"{name} sent masks for more candidates than it has")
        counts = rows.counts[nodes]
        if answer.masks.size != noise.vectors * int(counts.sum()):
            raise MalformedMessage(f"{name} sent masks of another shape")
        kinds, depth = 2 if self._sends_hessians else 1, self._level.depth
        # The same masks for other gradients meet other coefficients, and other masks for the same gradients too.
        content = content_digest(self.context.randomness, self._content, kinds, number, nodes, answer.masks)
        size = int(rows.counts.max()), int(np.bincount(nodes).max())
        for event in vectors_events(
            noise, self.config, name, self.start.number, depth, *size, content.hex(), first=number == 0
        ):
            self.context.account.spend(event)
        by = self._coefficients(len(nodes), kinds, noise.vectors, (name, self.start.number, depth, content))
        vectors = np.empty(kinds * int(counts.sum()), dtype=np.float32)
        taken = given = 0
        for node, first, last in _runs(nodes):
            count, each = last - first, int(counts[first])
            masks = answer.masks[taken : taken + count * noise.vectors * each].reshape(count, noise.vectors, each)
            noised = vectors[given : given + count * kinds * each].reshape(count, kinds, each)
            grams = np.empty((count, noise.vectors, noise.vectors))
            _native.add_masks(masks, self._values(node, kinds), by[first:last], noised, grams, self.context.threads)
            check_masks(name, grams, each, noise)
            check_cover(name, masks, noise)
            taken, given = taken + masks.size, given + noised.size
        return NoisedVectors(number, self._sends_hessians, vectors)

    def _values(self, node: int, kinds: int) -> Float64Array:
        """Gradients and hessians of a node's rows, shape (kinds, rows)."""
        rows = self._rows.rows[self._rows.begin[node] : self._rows.end[node]]
        pairs = self._pairs[self._rows.group[node], rows]
        return np.ascontiguousarray((pairs.astype(np.float64) * self._units).T[:kinds])

    def _coefficients(
        self, candidates: int, kinds: int, vectors: int, request: tuple[str | int | bytes, ...]
    ) -> Float64Array:
        """c and d of Alg. 2, line 2: uniform on the sphere of squared radius C = 1, shape (candidates, kinds, W)."""
        key = self.context.randomness.for_request("coefficients", *request).bytes(32)
        drawn = np.empty((1, candidates * kinds * vectors), dtype=np.float32)
        _native.normals(np.frombuffer(key, dtype=np.uint8), drawn)
        direction = drawn.reshape(candidates, kinds, vectors).astype(np.float64)
        return direction / np.sqrt((direction**2).sum(axis=2, keepdims=True))


def _runs(nodes: Int32Array) -> list[tuple[int, int, int]]:
    """Runs of equal entries of a sorted array, as (entry, first, last + 1)."""
    edges = [0, *(np.flatnonzero(nodes[1:] != nodes[:-1]) + 1).tolist(), len(nodes)]
    return [(int(nodes[low]), low, high) for low, high in itertools.pairwise(edges)]
