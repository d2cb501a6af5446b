"""The passive role of `masked`: makes masks, scores the answers under them, and keeps its best splits.

The masks of a level are sent chunk by chunk. Only one chunk exists at a time; of the others only the best score is
kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from veilboost import _native
from veilboost.boost.columns import Splits
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.crypto.fingerprint import content_digest
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.masked.accounting import masks_event
from veilboost.protocols.masked.messages import BestGains, MaskedLevel, Masks, NoisedVectors
from veilboost.protocols.masked.parameters import Noise, layout_bound, rows_left
from veilboost.protocols.vertical.messages import BeginRound, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveJob
from veilboost.protocols.vertical.round_state import RoundState, own_best
from veilboost.types import AnyArray, Float32Array, Float64Array, Int32Array, Int64Array
from veilboost.wire.message import Message


@dataclass(frozen=True)
class Run:
    """Consecutive candidates of one node; the first has number `first` in the level."""

    node: int
    rows: Int32Array
    bins: AnyArray
    splits: Splits
    handles: Int32Array
    active: Int64Array
    first: int


_NOTHING: Sequence[Run] = ()


class LevelMasks:
    """The candidates of a level's nodes, and the progress of their scoring."""

    def __init__(self, cipher: MaskedPassiveCipher, state: RoundState, build: RowGroups, key: bytes) -> None:
        self._block, self._bins, self._build = state.block, state.bins, build
        self._totals: Float64Array = np.empty((0, 2))  # they come with the first noised vectors
        self._noise, self._config, self._threads = cipher.noise, cipher.job.config, cipher.context.threads
        self._key = np.frombuffer(key, dtype=np.uint8)
        counts = state.block.histogram(state.bins, cipher.ones, build)[:, :, 0]
        left = rows_left(counts, state.block.layout).reshape(build.nodes, 2 * state.block.layout.slots)
        self._left = np.where((left >= cipher.noise.least_active) & (left < build.counts[:, None]), left, 0)
        self.most_candidates = int((self._left > 0).sum(axis=1).max(initial=0))
        self._gains = np.full(build.nodes, -np.inf)
        self.best = np.zeros(build.nodes, dtype=np.int32)
        self._chunks = self._runs()
        self._sent = _NOTHING
        self._number = -1

    def next(self) -> Masks | BestGains:
        """Return the masks of the next chunk, or the best scores if there is none."""
        self._sent = next(self._chunks, _NOTHING)
        self._number += 1
        if not self._sent:
            return BestGains(self._gains)
        vectors = self._noise.vectors
        masks = np.empty(sum(len(run.handles) * vectors * len(run.rows) for run in self._sent), dtype=np.float32)
        at = 0
        for run in self._sent:
            shape = (len(run.handles), vectors, len(run.rows))
            part = masks[at : at + int(np.prod(shape))].reshape(shape)
            at += part.size
            kernel: Any = _native.make_masks_u8 if run.bins.dtype == np.uint8 else _native.make_masks_u16
            factors, splits = self._noise.factors(run.active, len(run.rows)), (run.splits.feature, run.splits.left)
            kernel(run.bins, run.rows, *splits, factors, self._key, run.first, part, self._threads)
        nodes = np.concatenate([np.full(len(run.handles), run.node, dtype=np.int32) for run in self._sent])
        return Masks(self._number, nodes, masks)

    def take(self, message: NoisedVectors) -> None:
        """Score the last chunk sent; an invalid message is refused before any state changes."""
        if message.number != self._number:
            raise MalformedMessage("the noised vectors are not for the last masks")
        if not message.hessians and self._config.order != "first":
            raise MalformedMessage("noised hessians are missing")
        kinds = 2 if message.hessians else 1
        if message.vectors.size != sum(kinds * len(run.handles) * len(run.rows) for run in self._sent):
            raise MalformedMessage("the noised vectors are for another number of candidates or rows")
        nodes = 0 if message.number else self._build.nodes
        if message.totals.shape != (nodes, 2) or not np.isfinite(message.totals).all():
            raise MalformedMessage("the sums of the level's nodes have the wrong shape, or are not finite")
        totals = self._totals if message.number else message.totals
        scored = list(self._scored(message.vectors, kinds, totals))
        self._totals = totals
        for run, gains in scored:
            top = int(gains.argmax())  # the first of equal gains: the lowest column, then the lowest threshold
            if gains[top] > self._gains[run.node]:
                self._gains[run.node] = gains[top]
                self.best[run.node] = run.handles[top]

    def _scored(self, vectors: Float32Array, kinds: int, totals: Float64Array) -> Iterator[tuple[Run, Float64Array]]:
        at = 0
        for run in self._sent:
            shape = (len(run.handles), kinds, len(run.rows))
            part = vectors[at : at + int(np.prod(shape))].reshape(shape)
            at += part.size
            sums = np.empty((len(run.handles), kinds))
            kernel: Any = _native.left_sums_u8 if run.bins.dtype == np.uint8 else _native.left_sums_u16
            kernel(run.bins, run.rows, run.splits.feature, run.splits.left, part, sums, self._threads)
            if not np.isfinite(sums).all():
                raise MalformedMessage("a noised gradient is not a finite number")
            if kinds == 1:  # Remark 2: in first-order boosting every row's hessian is 1
                sums = np.stack((sums[:, 0], run.active.astype(np.float64)), axis=1)
            yield run, noisy_gains(sums, totals[run.node], self._config, self._noise.options.noisy_h)

    def _runs(self) -> Iterator[Sequence[Run]]:
        """Yield the level's candidates in chunks of limited size in either direction, at least one per chunk."""
        room = int(self._noise.options.chunk_megabytes * 2**20) // 4
        chunk: list[Run] = []
        free, first = room, 0
        bins = [np.asarray(matrix) for matrix in self._bins.bins]
        for node in range(self._build.nodes):
            rows = self._build.rows[self._build.begin[node] : self._build.end[node]]
            handles = self._left[node].nonzero()[0].astype(np.int32)
            matrix = bins[int(self._build.group[node]) if len(bins) > 1 else 0]
            each = max(self._noise.vectors, 2) * len(rows)
            done = 0
            while done < len(handles):
                if free < each and chunk:
                    yield chunk
                    chunk, free = [], room
                take = min(max(free // each, 1), len(handles) - done)
                some = handles[done : done + take]
                splits = self._block.splits_of(some)
                chunk.append(Run(node, rows, matrix, splits, some, self._left[node, some], first))
                done, first, free = done + take, first + take, free - take * each
        if chunk:
            yield chunk


class MaskedPassiveCipher(PassiveCipher):
    """MaskedXGBoost at the passive party: Algorithm 1, and the passive party's lines of Algorithm 3."""

    def begin_training(self, job: PassiveJob) -> None:
        super().begin_training(job)
        candidates = layout_bound(job.block.layout)
        self.noise = Noise.of(job.config, self.context.rows, candidates, job.trees_per_round)

    def open_round(self, message: BeginRound) -> None:
        self._level: LevelMasks | None = None
        self._best: dict[int, int] = {}  # position in the level -> the handle of its best candidate

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Message:
        if self._level is not None:
            raise UnexpectedMessage("the previous level is not scored yet")
        if not isinstance(message, MaskedLevel):
            raise UnexpectedMessage("a level of another protocol")
        # The same bins of the same rows in the same nodes get the same masks; anything else gets others.
        own = (state.bins.of_node(build, node) for node in range(build.nodes))
        columns = b"" if state.columns is None else state.columns
        content = content_digest(
            self.context.randomness, self.noise.law, columns, build.counts, build.group, build.listed(), *own
        )
        drawn = self.context.randomness.for_request("masks", state.number, state.depth, content)
        level = LevelMasks(self, state, build, drawn.bytes(32))
        event = masks_event(self.noise, state.number, state.depth, level.most_candidates, content.hex())
        self.context.account.spend(event)
        self._build = state.build
        return self._next(level)

    def other(self, message: Message, state: RoundState | None) -> Message:
        if state is None or self._level is None or not isinstance(message, NoisedVectors):
            return super().other(message, state)
        self._level.take(message)
        return self._next(self._level)

    @cached_property
    def ones(self) -> Int32Array:
        """Values with which a histogram counts rows."""
        return self.job.block.placed(np.ones((self.job.trees_per_round, self.context.rows, 2), dtype=np.int32))

    def _next(self, level: LevelMasks) -> Message:
        answer = level.next()
        self._level = level if isinstance(answer, Masks) else None  # its noised vectors have not arrived yet
        if self._level is None:
            self._best = dict(zip(self._build.tolist(), level.best.tolist(), strict=True))
        return answer

    def chosen(self, message: SplitRequest) -> SplitRequest:
        if self._level is not None:
            raise UnexpectedMessage("the level is not scored yet")
        return own_best(message, self._best)  # Alg. 3, line 15


def noisy_gains(
    left: Float64Array, total: Float64Array, config: TrainingConfig, noisy_h: str = "reject"
) -> Float64Array:
    """Scores of candidates from their left sums (candidates, 2) and the node's (G, H): Alg. 3, lines 9 and 10.

    As elsewhere the score has no factor 1/2. By default it is minus infinity if a child has too little hessian. This
    excludes noisy hessians below 0 or above H: dividing by a value near 0 would give a score that beats all others.
    The algorithm as printed has no such test (`literal`); `clamp` moves the hessian to the nearest one that passes it.
    """
    g, h = left[:, 0], left[:, 1]
    least = config.min_child_weight
    if noisy_h == "clamp" and total[1] > 2.0 * least:
        h = np.clip(h, least, total[1] - least)
    other_g, other_h = total[0] - g, total[1] - h
    parent = _score(total[:1], total[1:], config)[0]
    if noisy_h == "literal":
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = g * g / (h + config.reg_lambda) + other_g * other_g / (other_h + config.reg_lambda) - parent
        return np.where(np.isfinite(gains), gains, -np.inf)
    gains = _score(g, h, config) + _score(other_g, other_h, config) - parent
    enough = (h > 0) & (h >= least) & (other_h > 0) & (other_h >= least)
    return np.where(enough, gains, -np.inf)


def _score(g: Float64Array, h: Float64Array, config: TrainingConfig) -> Float64Array:
    """The formula of the native kernel, with the same operations, so that equal sums have equal scores."""
    denominator = h + config.reg_lambda
    shrunk = np.sign(g) * np.maximum(np.abs(g) - config.reg_alpha, 0.0) if config.reg_alpha else g
    usable = denominator > 0
    safe = np.where(usable, denominator, 1.0)
    if config.max_delta_step == 0:
        return np.where(usable, shrunk * shrunk / safe, 0.0)
    weight = np.clip(-shrunk / safe, -config.max_delta_step, config.max_delta_step)
    value = -(2.0 * g * weight + denominator * weight * weight + 2.0 * config.reg_alpha * np.abs(weight))
    return np.where(usable, value, 0.0)
