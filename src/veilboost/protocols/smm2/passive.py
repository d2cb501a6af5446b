"""The passive role of `smm2`: sends kernel vectors of its split columns, scores the answer, keeps its best splits.

Split columns are divided into blocks that share kernel vectors. If two consecutive cuts differ by a single row, the
unit vector of that row is in the span of the two columns. Then every kernel vector is 0 there and the active party
refuses it, because it would send that row's gradient unmasked. So cuts in one block are at least two rows apart, and
cuts of small nodes are spread over several blocks. The rows between neighbouring cuts of a block form a *group*. A
feature with m cuts has m + 1 groups, and the indicators of all groups except one have the same span as its m columns.
The omitted group is the last, or the first if that has one row: then the columns are the complements, whose sums follow
from the node's total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.rows import RowGroups
from veilboost.boost.split import Candidates, candidates_from_sums
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.fingerprint import content_digest
from veilboost.engine.api import blas_threads
from veilboost.errors import MalformedMessage, UnexpectedMessage, UnsupportedCombination
from veilboost.protocols.smm2.messages import Smm2Gains, Smm2Kernels, Smm2Masked, Smm2Options, Smm2Round, scored_nodes
from veilboost.protocols.vertical import smm
from veilboost.protocols.vertical.messages import BeginRound, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.perturb import checked_scale
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveContext
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import AnyArray, BoolArray, Float64Array, Int64Array
from veilboost.wire.message import Message


class Smm2PassiveCipher(PassiveCipher):
    """FedXGBoost Alg. 5 and the passive party's lines of Alg. 4."""

    _waiting: WaitingLevel | None = None
    _scored: ScoredLevel | None = None

    def __init__(self, context: PassiveContext) -> None:
        super().__init__(context)
        self._buffer = Buffer()

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, Smm2Round):
            raise UnexpectedMessage("a round of another protocol")
        scale = checked_scale(message.g_exponent, message.h_exponent)
        self._options = Smm2Options.from_dict(self.job.config.options)
        smm.refuse_rows(self.context.rows, self.job.config, self._options)
        self._scale = scale
        self._waiting = self._scored = None

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Smm2Kernels:
        if message.depth and (self._scored is None or not np.isin(message.split, self._scored.nodes).all()):
            raise UnexpectedMessage("a node was split that was not scored")
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
                    found += secure_kernel(each, self._options, source, self._buffer)
        self._waiting = WaitingLevel(
            message, state.build, state.block.layout, [each for each, _ in found], counts, self._scored
        )
        self._scored = None
        kernels = [kernel.ravel() for _, kernel in found]
        return Smm2Kernels(
            np.array([each.node for each, _ in found], dtype=np.int32),
            np.concatenate(kernels) if kernels else np.empty(0),
        )

    def other(self, message: Message, state: RoundState | None) -> Message:
        """Alg. 4, lines 6 to 19: the sums of the true columns, their gains, and the best gain."""
        if not isinstance(message, Smm2Masked):
            return super().other(message, state)
        waiting, config = self._waiting, self.job.config
        if waiting is None or state is None or message.depth != waiting.request.depth:
            raise UnexpectedMessage("masked gradients arrived for another level")
        if message.totals.shape != (len(waiting.build), 2):
            raise MalformedMessage("the totals are of other nodes")
        nodes = scored_nodes(waiting.build, message.depth, config)
        known = waiting.known(message, nodes)
        sums, totals = np.ascontiguousarray(known[:, :-1]), np.ascontiguousarray(known[:, -1])
        offer = candidates_from_sums(sums, waiting.layout, totals, self._scale, config, self.context.threads)
        self._waiting, self._scored = None, ScoredLevel(nodes, known, offer)
        return Smm2Gains(offer.best_gain)

    def chosen(self, message: SplitRequest) -> SplitRequest:
        """Replace handle 0, which stands for "your best", by the best candidate."""
        if self._scored is None:
            raise UnexpectedMessage("a split arrived before the level was scored")
        count = len(message.position)
        none = np.zeros(count + 1, dtype=np.int32)
        if (
            not np.array_equal(message.starts, np.arange(count + 1))
            or not np.array_equal(message.handles, none[:-1])
            or not np.array_equal(message.set_starts, none)
            or len(message.set_bins)
        ):
            raise MalformedMessage("a split request may only name the best candidate")
        return self._scored.chosen(message)


@dataclass(frozen=True)
class WaitingLevel:
    """A level whose kernel vectors were sent: everything needed to compute sums from the answer."""

    request: StatisticsRequest
    build: Int64Array
    layout: BinLayout
    blocks: list[Block]
    counts: list[list[Int64Array]]
    above: ScoredLevel | None

    def known(self, message: Smm2Masked, nodes: Int64Array) -> Int64Array:
        """Sums of (g, h) per bin and, in the last entry, of the whole node, for all nodes to score."""
        built = np.concatenate((self._built(message), message.totals[:, None]), axis=1)
        every = np.empty((len(nodes), *built.shape[1:]), dtype=np.int64)
        every[nodes.searchsorted(self.build)] = built
        derived = np.setdiff1d(nodes, self.build)
        if self.above is not None and len(derived):
            parents = self.above.nodes.searchsorted(self.request.split[derived // 2])
            every[nodes.searchsorted(derived)] = self.above.known[parents] - every[nodes.searchsorted(derived ^ 1)]
        return every

    def _built(self, message: Smm2Masked) -> Int64Array:
        shapes = [(len(block.groups), 2) for block in self.blocks]
        if len(message.masked) != sum(2 * rows for rows, _ in shapes):
            raise MalformedMessage("the masked gradients are of other nodes")
        left: list[list[tuple[CutColumns, Int64Array]]] = [[] for _ in self.build]
        for block, masked in zip(self.blocks, smm.blocks_of(message.masked, shapes), strict=True):
            left[block.node] += block.left_sums(masked, message.totals[block.node])
        offsets = self.layout.offsets.tolist()
        sums = [
            bin_sums(counts, offsets, found, total)
            for counts, found, total in zip(self.counts, left, message.totals, strict=True)
        ]
        return np.stack(sums) if sums else np.empty((0, self.layout.slots, 2), dtype=np.int64)


@dataclass(frozen=True)
class ScoredLevel:
    """The scored nodes, their sums, and their best candidates."""

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
        set_starts = sets.starts if len(sets.starts) else np.zeros(len(handles) + 1, dtype=np.int32)
        return replace(message, handles=handles, set_starts=set_starts, set_bins=sets.bins)


_TRIES = 20


@dataclass(frozen=True)
class CutColumns:
    """Some cuts of one feature: bins up to and including each of `bins` go left. `first_omitted`: see above."""

    feature: int
    bins: Int64Array
    first_omitted: bool


class Buffer:
    """Memory that is reused for the columns of each block: new pages for each would cost as much as the arithmetic."""

    def __init__(self) -> None:
        self._numbers = np.empty(0)

    def zeros(self, rows: int, columns: int) -> Float64Array:
        """Return zeros that are valid until the next call."""
        if len(self._numbers) < rows * columns:
            self._numbers = np.empty(rows * columns)
        found = self._numbers[: rows * columns].reshape(rows, columns)
        found[:] = 0.0
        return found


@dataclass(frozen=True)
class Block:
    """Columns of one node that share kernel vectors. `groups[i, k]` is the group of row i by the cuts of feature k."""

    node: int
    cuts: tuple[CutColumns, ...]
    groups: Int64Array

    @property
    def width(self) -> int:
        return sum(len(cut.bins) for cut in self.cuts)

    def matrix(self, extra: int, buffer: Buffer) -> Float64Array:
        """The block's part of M, followed by `extra` empty columns."""
        rows = len(self.groups)
        columns = buffer.zeros(rows, self.width + extra)
        at = 0
        every = np.arange(rows)
        for k, cut in enumerate(self.cuts):
            place = self.groups[:, k] - int(cut.first_omitted)
            inside = every[(place >= 0) & (place < len(cut.bins))]
            columns[inside, at + place[inside]] = 1.0
            at += len(cut.bins)
        return columns

    def left_sums(self, masked: Float64Array, totals: Int64Array) -> list[tuple[CutColumns, Int64Array]]:
        """Sums of (g, h) left of every cut, (M*)'W of the true columns (Alg. 4, line 8), on the grid."""
        widths = np.array([len(cut.bins) + 1 for cut in self.cuts])
        starts = np.cumsum(widths) - widths
        last = starts + np.array([0 if cut.first_omitted else len(cut.bins) for cut in self.cuts])
        sums = smm.chunked_bin_sums(self.groups + starts, int(widths.sum()), masked)
        sums[last] = 0.0  # the omitted group is no column of M*, so its masked sum is meaningless; it is derived below
        whole = smm.rounded(sums)
        whole[last] = totals - np.add.reduceat(whole, starts, axis=0)
        return [
            (cut, np.cumsum(whole[start : start + len(cut.bins)], axis=0))
            for cut, start in zip(self.cuts, starts.tolist(), strict=True)
        ]


def blocks_of_node(node: int, bins: AnyArray, most: int) -> list[Block]:
    """All cuts of all features of a node with `bins` (rows, features), in blocks of at most `most` columns."""
    counts = [np.bincount(bins[:, feature]) for feature in range(bins.shape[1])]
    waiting = [_rounds_of_cuts(feature, count, len(bins), most) for feature, count in enumerate(counts)]
    blocks: list[Block] = []
    for number in range(max((len(rounds) for rounds in waiting), default=0)):
        block: list[CutColumns] = []
        width = 0
        for rounds in waiting:
            if number >= len(rounds):
                continue
            cut = rounds[number]
            if block and width + len(cut.bins) > most:
                blocks.append(_block(node, block, bins))
                block, width = [], 0
            block.append(cut)
            width += len(cut.bins)
        if block:
            blocks.append(_block(node, block, bins))
    return blocks


def _block(node: int, cuts: Sequence[CutColumns], bins: AnyArray) -> Block:
    groups = np.stack([cut.bins.searchsorted(bins[:, cut.feature]) for cut in cuts], axis=1)
    return Block(node, tuple(cuts), groups)


def _rounds_of_cuts(feature: int, counts: Int64Array, rows: int, most: int) -> list[CutColumns]:
    """The cuts of a feature between non-empty bins, in as many rounds as needed to keep close cuts separate."""
    present = np.flatnonzero(counts)
    if len(present) < 2:
        return []
    left = counts.cumsum()[present[:-1]].tolist()
    if int(counts[present].min()) >= 2 and len(left) <= most:
        return [CutColumns(feature, present[:-1], False)]
    waiting = list(range(len(left)))
    rounds: list[CutColumns] = []
    while waiting:
        taken: list[int] = []
        before = 0
        for cut in waiting:
            if len(taken) < most and (left[cut] - before >= 2 or not taken):
                taken.append(cut)
                before = left[cut]
        first_alone = left[taken[0]] == 1
        while first_alone and rows - left[taken[-1]] == 1 and len(taken) > 1:
            taken.pop()
        rounds.append(CutColumns(feature, present[taken], first_alone))
        waiting = sorted(set(waiting) - set(taken))
    return rounds


def bin_sums(
    counts_of: Sequence[Int64Array], offsets: list[int], left: list[tuple[CutColumns, Int64Array]], totals: Int64Array
) -> Int64Array:
    """Sums per bin (slots, 2) of a node from its sums left of all cuts; `counts_of` are its rows per bin by feature."""
    sums = np.zeros((offsets[-1], 2), dtype=np.int64)
    for cut, values in left:
        sums[offsets[cut.feature] + cut.bins] = values
    for counts, start in zip(counts_of, offsets[:-1], strict=True):
        at = start + np.flatnonzero(counts)
        sums[at[-1]] = totals
        sums[at[1:]] -= sums[at[:-1]].copy()
    return sums


def secure_kernel(
    block: Block, options: Smm2Options, source: Csprng, buffer: Buffer
) -> list[tuple[Block, Float64Array]]:
    """A block with its kernel vectors (Alg. 5, line 10); two smaller blocks if they leave a row unmasked."""
    rows = len(block.groups)
    count = options.count(rows, 2)
    if not count:
        return [(block, np.empty((rows, 0)))]
    # Cuts of dependent features can differ by one row; then the features are put into different blocks. Cuts of one
    # feature cannot, so there only an unlucky decoy can be the reason.
    for _ in range(_TRIES if len(block.cuts) == 1 else 1):
        kernel = smm.null_vectors(_quasi_secure(block, options, source, buffer), count, source)
        if smm.hidden_rows(kernel).all():
            return [(block, kernel)]
    if len(block.cuts) == 1:
        raise UnsupportedCombination(
            f"no kernel vectors mask every row of a node of {rows} rows", "lower l1 and l2, or raise min_child_weight"
        )
    half = len(block.cuts) // 2
    parts = (Block(block.node, block.cuts[at], block.groups[:, at]) for at in (slice(half), slice(half, None)))
    return [found for part in parts for found in secure_kernel(part, options, source, buffer)]


def _quasi_secure(block: Block, options: Smm2Options, source: Csprng, buffer: Buffer) -> Float64Array:
    """M* = [M M' Y]: true splits, decoy splits, random real columns (Alg. 5, lines 6 to 8), scaled to length 1."""
    l1, l2 = options.added(len(block.groups))
    columns = block.matrix(l1 + l2, buffer)
    width = block.width
    decoys = _decoys(block, l1, options.decoys, source)
    # A decoy of one row would leave that row unmasked, as a true column would, so it is replaced by its complement.
    columns[:, width : width + l1] = decoys ^ (decoys.sum(axis=0) == 1)
    columns[:, width + l1 :] = smm.gaussian(source, len(columns), l2)
    norm = smm.lengths(columns)
    columns /= np.where(norm > 0, norm, 1.0)  # in place: they take most of the party's memory
    return columns


def _decoys(block: Block, count: int, kind: str, source: Csprng) -> BoolArray:
    """M' (rows, count): random bits as published, or nested steps of true features with shuffled rows."""
    rows, features = len(block.groups), len(block.cuts)
    if kind == "random":
        return (np.frombuffer(source.bytes(rows * count), dtype=np.uint8).reshape(rows, count) & 1) == 1
    columns = np.empty((rows, count), dtype=np.bool_)
    per_feature = -(-count // features)
    done = turn = 0
    while done < count:
        cuts = len(block.cuts[turn % features].bins)
        steps = np.linspace(0, cuts - 1, min(per_feature, cuts, count - done)).round().astype(np.int64)
        shuffled = np.argsort(np.frombuffer(source.bytes(8 * rows), dtype="<u8"), kind="stable")
        columns[:, done : done + len(steps)] = block.groups[shuffled, turn % features, None] <= steps
        done += len(steps)
        turn += 1
    return columns
