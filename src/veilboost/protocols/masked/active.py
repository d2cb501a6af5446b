"""The active role of `masked`: validates the received masks and adds them to the gradients.

The paper claims that a malicious passive party harms only itself (appendix G). This is wrong: under masks of zeros the
gradients would be sent in the clear.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from veilboost import _native
from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level, Round
from veilboost.boost.split import Candidates
from veilboost.crypto.fingerprint import content_digest
from veilboost.errors import GradientRange, MalformedMessage, UnexpectedMessage
from veilboost.protocols.masked.accounting import sums_event, vectors_events
from veilboost.protocols.masked.messages import BestGains, MaskedLevel, Masks, NoisedVectors
from veilboost.protocols.masked.parameters import REFUSED_ONCE_IN, MaskedOptions, Noise, gradient_bound, layout_bound
from veilboost.protocols.masked.theorems import LEAST_ACTIVE
from veilboost.protocols.vertical import roles
from veilboost.types import Float32Array, Float64Array, Int32Array, Int64Array, PartyName
from veilboost.wire.message import Message

_NEARLY_BARE = 0.1  # of the least noise that a row should have
_DEPENDENT = 1e-12  # of the largest eigenvalue; float32 vectors that are multiples of each other are below it


class MaskedCipher(roles.StatisticsCipher):
    """Algorithm 2, and the last line of Algorithm 3. A `length` other than 1, of what C says, is for experiments."""

    asks_ahead = True

    def __init__(self, context: roles.ActiveContext, length: float = 1.0) -> None:
        super().__init__(context)
        self._length = length
        self.derives_siblings = False  # every node has its own masks, and sums are not sent here
        self._options = MaskedOptions.from_dict(self.config.options)
        self.noisy_gains = not self._options.noise_off

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:
        trees = self.context.trees_per_round
        self._noise = {
            name: Noise.of(self.config, self.context.rows, layout_bound(layouts[name]), trees)
            for name in self.context.peers.names
        }

    def shown(self, start: Round) -> Round:
        self._pairs = self._bounded(start)
        self._units = np.array([start.scale.g_unit, start.scale.h_unit])
        h = self._pairs[:, np.asarray(start.fit), 1]
        # Remark 2: hessians that are all 1 need not be sent.
        self._sends_hessians = self.config.order == "second" or bool((h * start.scale.h_unit != 1.0).any())
        return replace(start, gradients=self.context.block.placed(self._pairs))

    def _bounded(self, start: Round) -> Int32Array:
        """Gradients within the range that noise is scaled to (section 5.2): clipped, or refused."""
        gradients = np.asarray(start.gradients)
        if self._options.noise_off and self._options.clip is None:
            return gradients
        most = gradient_bound(self.config, self._options)
        limits = [math.floor(most / unit) for unit in (start.scale.g_unit, start.scale.h_unit)]
        if self._options.clip is not None:
            return np.clip(gradients, -np.array(limits), limits).astype(np.int32)
        if (np.abs(gradients).reshape(-1, 2).max(axis=0, initial=0) > limits).any():
            raise GradientRange(
                f"a gradient is larger than {most:g}, the bound that noise is scaled to",
                "set the option clip of masked; it is required for weights and for unbounded losses",
            )
        return gradients

    def enter(self, current: roles.ActiveRound, level: Level) -> tuple[roles.ActiveRound, Level]:
        # Totals of the gradients used here, which may be clipped.
        return current, replace(level, totals=level.fit.totals(current.start.gradients))

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests) -> roles.Waiting:
        return self.context.peers.send({name: MaskedLevel(**vars(request)) for name, request in requests.items()})

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        """Answer masks with noised vectors until every party has sent its best scores."""
        self._place, self._rows = (current.start.number, level.depth), level.fit.of(level.build)
        own = self._rows  # the rows of each node
        self._totals = level.totals[level.build].astype(np.float64) * self._units
        self._content = content_digest(self.context.randomness, own.begin, own.end, own.group, own.rows, self._pairs)
        offers: dict[PartyName, Candidates] = {}
        numbers = dict.fromkeys(waiting, 0)
        seen = {name: np.zeros(own.nodes, dtype=np.int64) for name in waiting}
        while waiting:
            answers: dict[PartyName, Message] = {}
            for name, answer in self.context.peers.collect(waiting, Message).items():
                if isinstance(answer, Masks):
                    answers[name] = self._noised(name, answer, numbers[name], seen[name])
                    numbers[name] += 1
                elif isinstance(answer, BestGains):
                    offers[name] = _offer(level, name, answer)
                else:
                    raise UnexpectedMessage(f"{name} answered {answer.type_name()} instead of masks or scores")
            waiting = self.context.peers.send(answers)
        return offers

    def _noised(self, name: PartyName, answer: Masks, number: int, seen: Int64Array) -> NoisedVectors:
        """Algorithm 2 for the candidates of one message."""
        noise, rows, nodes = self._noise[name], self._rows, answer.nodes
        if answer.number != number or not len(nodes) or int(nodes.min()) < 0 or int(nodes.max()) >= rows.nodes:
            raise MalformedMessage(f"{name} sent masks out of order, or for nodes that do not exist")
        np.add.at(seen, nodes, 1)
        if (nodes[1:] < nodes[:-1]).any() or int(seen.max()) > noise.candidates:
            raise MalformedMessage(f"{name} sent masks for more candidates than it has")
        counts = rows.counts[nodes]
        if answer.masks.size != noise.vectors * int(counts.sum()):
            raise MalformedMessage(f"{name} sent masks of another shape")
        kinds = 2 if self._sends_hessians else 1
        # Other gradients under the same masks, and other masks for the same gradients, get other coefficients.
        content = content_digest(self.context.randomness, self._content, kinds, number, nodes, answer.masks)
        size = int(rows.counts.max()), int(np.bincount(nodes).max())
        for event in vectors_events(noise, self.config, name, *self._place, *size, content.hex(), first=number == 0):
            self.context.account.spend(event)
        by = self._coefficients(len(nodes), kinds, noise.vectors, (name, *self._place, content))
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
        totals = self._totals
        if number:
            totals = totals[:0]
        else:
            content = content_digest(self.context.randomness, rows.begin, rows.end, rows.rows, totals)
            self.context.account.spend(sums_event(name, *self._place, content.hex()))
        return NoisedVectors(number, self._sends_hessians, vectors, totals)

    def _values(self, node: int, kinds: int) -> Float64Array:
        """Gradients and hessians of a node's rows, shape (kinds, rows)."""
        every = self._rows
        pairs = self._pairs[every.group[node], every.rows[every.begin[node] : every.end[node]]]
        return np.ascontiguousarray((pairs.astype(np.float64) * self._units).T[:kinds])

    def _coefficients(
        self, candidates: int, kinds: int, vectors: int, request: tuple[str | int | bytes, ...]
    ) -> Float64Array:
        """c and d of Alg. 2, line 2: uniform on the sphere of squared radius C, shape (candidates, kinds, W)."""
        key = self.context.randomness.for_request("coefficients", *request).bytes(32)
        drawn = np.empty((1, candidates * kinds * vectors), dtype=np.float32)
        _native.normals(np.frombuffer(key, dtype=np.uint8), drawn)
        direction = drawn.reshape(candidates, kinds, vectors).astype(np.float64)
        length = self._length * math.sqrt(self._options.c)
        return length * direction / np.sqrt((direction**2).sum(axis=2, keepdims=True))


def _offer(level: Level, name: PartyName, answer: BestGains) -> Candidates:
    if len(answer.gains) != len(level.build) or not (answer.gains < np.inf).all():
        raise MalformedMessage(f"{name} sent scores for other nodes, or scores that are not numbers")
    # Only the owner knows its best candidate (Alg. 3, line 15): handle 0 stands for it.
    gains = answer.gains[level.build.searchsorted(level.open)]
    return Candidates(np.zeros(len(gains), dtype=np.int32), gains)


def _runs(nodes: Int32Array) -> list[tuple[int, int, int]]:
    """Runs of equal entries of a sorted array, as (entry, first, last + 1)."""
    edges = [0, *(np.flatnonzero(nodes[1:] != nodes[:-1]) + 1).tolist(), len(nodes)]
    return [(int(nodes[low]), low, high) for low, high in itertools.pairwise(edges)]


def check_masks(name: PartyName, grams: Float64Array, rows: int, noise: Noise) -> None:
    """Refuse masks that are not numbers, too small or dependent; `grams` (candidates, W, W) are their Gram matrices."""
    if not np.isfinite(grams).all():
        raise MalformedMessage(f"{name} sent a mask that is not a finite number")
    if noise.options.noise_off:
        return
    lengths = np.diagonal(grams, axis1=1, axis2=2)
    if float(lengths.min()) < noise.least_norm(rows):
        raise MalformedMessage(
            f"{name} sent masks that are smaller than agreed, which would reveal gradients",
            f"stop the job and contact {name}: its masks do not follow the protocol",
        )
    if noise.vectors > 1:
        spread = np.linalg.eigvalsh(grams)
        if (spread[:, -min(noise.vectors, rows)] <= _DEPENDENT * spread[:, -1]).any():
            raise MalformedMessage(
                f"{name} sent noise vectors that are multiples of each other",
                f"stop the job and contact {name}: its masks do not follow the protocol",
            )


def check_cover(name: PartyName, masks: Float32Array, noise: Noise) -> None:
    """Refuse masks (candidates, W, rows) that leave too many rows nearly unmasked.

    All entries of an honest mask are normal with the same standard deviation, so few are small.
    """
    rows = masks.shape[2]
    most = most_nearly_bare(rows)
    if noise.options.noise_off or most >= rows:
        return
    least = noise.factors(np.array([min(LEAST_ACTIVE, rows), rows]), rows)[:, 2].min()  # eq. (13), of every entry
    bare = np.count_nonzero(np.abs(masks) < _NEARLY_BARE * float(least), axis=2)
    if int(bare.max(initial=0)) > most:
        raise MalformedMessage(
            f"{name} sent masks that leave {int(bare.max())} of {rows} rows nearly unmasked, which would reveal "
            "gradients",
            f"stop the job and contact {name}: its masks do not follow the protocol",
        )


@cache
def most_nearly_bare(rows: int) -> int:
    """The most small entries of an honest mask, except for one mask in 10^15: P <= exp(-n/2 KL(q, p)).

    An entry depends on its two neighbours, so a bound for independent entries holds for half as many (Janson 2004).
    """
    chance = math.erf(_NEARLY_BARE / math.sqrt(2.0))
    needed = -math.log(REFUSED_ONCE_IN) / max((rows - 1) / 2.0, 1.0)
    low, high = chance, 1.0
    for _ in range(40):
        middle = (low + high) / 2.0
        distance = middle * math.log(middle / chance) + (1.0 - middle) * math.log((1.0 - middle) / (1.0 - chance))
        low, high = (middle, high) if distance < needed else (low, middle)
    return math.ceil(rows * high)
