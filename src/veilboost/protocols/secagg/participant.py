"""A participant of `secagg`: keeps rows and margins, and answers with sums that add up only with the others'."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, cast

import numpy as np

from veilboost import _native
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.objective import Objective, make_objective
from veilboost.boost.rows import RowGroups
from veilboost.boost.stumps import bins_of
from veilboost.config import TrainingConfig
from veilboost.crypto.pairwise import KEY_BYTES, PairwiseMasks
from veilboost.errors import MalformedMessage, UnexpectedMessage, UnsupportedCombination
from veilboost.fixedpoint import MAX_BITS, Scale, choose_scale, to_fixed
from veilboost.model.part import Part
from veilboost.privacy.event import Adjacency, ExactRelease
from veilboost.protocols.common.schema import Schema, describe, table_in_terms_of
from veilboost.protocols.common.whole import TrainedModel, block_with_cuts, from_message
from veilboost.protocols.horizontal import ParticipantContext, ParticipantSide
from veilboost.protocols.secagg.exact import SUM_BYTES, exact_sum
from veilboost.protocols.secagg.messages import (
    CountsRequest,
    CutsFound,
    LevelTold,
    MaskedCounts,
    MaskedSums,
    MaskedTotals,
    ScaleAnswer,
    ScaleRequest,
    SecaggColumns,
    SecaggGroup,
    SumsRequest,
    TotalsRequest,
)
from veilboost.protocols.secagg.search import to_ordered
from veilboost.types import Column, Float32Array, Int32Array, UInt32Array
from veilboost.wire.codec import encode
from veilboost.wire.message import Done, Message


class SecaggParticipant(ParticipantSide):
    """Answers each request once: a repeated one gets the stored answer, so that no mask serves two contents."""

    def __init__(self, context: ParticipantContext) -> None:
        if context.table.weight is not None:
            raise UnsupportedCombination("secagg takes every row alike", "leave sample weights out")
        self._context, self._config = context, context.config
        self._masks = PairwiseMasks(context.randomness.for_request("secagg", "private key").bytes(KEY_BYTES))
        self._schema: Schema | None = None
        self._block: ColumnBlock | None = None
        self._last: tuple[bytes, Message] | None = None
        self._part: Part | None = None
        self._round, self._depth, self._ended = -1, 0, True

    @property
    def part(self) -> Part | None:
        return self._part

    def introduce(self) -> SecaggColumns:
        schema = describe(self._context.table, self._config.objective)
        evidence = self._context.voucher.vouch(_signed(self._masks.public))
        return SecaggColumns(schema.to_json(), np.frombuffer(self._masks.public, np.uint8), evidence)

    def handle(self, message: Message) -> Message:
        digest = hashlib.sha256(encode(message)).digest()
        if self._last is not None and self._last[0] == digest:
            return self._last[1]
        answer = self._answer(message, digest)
        self._last = digest, answer
        return answer

    def _answer(self, message: Message, digest: bytes) -> Message:
        if isinstance(message, SecaggGroup):
            return self._join(message)
        if self._schema is None:
            raise UnexpectedMessage(f"{message.type_name()} came before its turn")
        if isinstance(message, TotalsRequest):
            return self._totals(digest)
        if isinstance(message, CountsRequest):
            return self._counts(message, digest)
        if isinstance(message, CutsFound):
            return self._take_cuts(message)
        if self._block is None:
            raise UnexpectedMessage(f"{message.type_name()} came before its turn")
        if isinstance(message, ScaleRequest):
            return self._scale(message)
        if isinstance(message, SumsRequest):
            return self._sums(message, digest)
        if isinstance(message, TrainedModel):
            self._part = from_message(message)
            return Done()
        raise UnexpectedMessage(f"{message.type_name()} is not a request to a participant")

    # --- the job opens ----------------------------------------------------------------------------------

    def _join(self, message: SecaggGroup) -> Done:
        if self._schema is not None:
            raise UnexpectedMessage("a group is formed once")
        group, publics = message.participants, [row.tobytes() for row in message.publics]
        if len(set(group)) < 2 or self._context.party not in group:
            raise MalformedMessage("sums of one participant alone hide nothing", "take part with others")
        if message.publics.shape != (len(group), KEY_BYTES) or not len(set(group)) == len(group) == len(
            message.evidence
        ):
            raise MalformedMessage("the public keys are not one for each participant")
        for party, public, evidence in zip(group, publics, message.evidence, strict=True):
            if party != self._context.party:  # or the server could put a key of its own in another's place
                self._context.voucher.check(party, _signed(public), evidence)
        if publics[group.index(self._context.party)] != self._masks.public:
            raise MalformedMessage("the list of public keys is not that of this group")
        self._masks.agree(publics)
        schema = Schema.from_json(message.schema)
        columns, label = table_in_terms_of(self._context.table, schema)
        self._objective = _objective(schema, self._config)
        self._objective.base_margin(label, None, 0.5)  # refuses labels that the loss is not defined for
        self._schema, self._columns, self._label = schema, columns, label
        self._sorted = [_sorted(column) for column in columns if column.categories is None or self._ordinal]
        for what in ("sums of gradients per node and bin", "counts of values", "the sum of labels"):
            self._context.account.spend(
                ExactRelease(
                    what=f"{what}, added up over all participants",
                    adjacency=Adjacency.RECORD,
                    adversary="the server",
                    protocol="secagg",
                    release=what,
                )
            )
        return Done()

    @property
    def _ordinal(self) -> bool:
        return self._config.categories == "ordinal"

    def _totals(self, digest: bytes) -> MaskedTotals:
        rows = np.array([len(self._label)], dtype=np.uint64)
        labels = self._masks.hide_number(exact_sum(self._label), SUM_BYTES, digest + b"labels")
        return MaskedTotals(self._masks.hide(rows, digest + b"rows"), np.frombuffer(labels, np.uint8))

    def _counts(self, message: CountsRequest, digest: bytes) -> MaskedCounts:
        if len(message.values) != len(self._sorted):
            raise MalformedMessage("counts are asked for another number of columns")
        counts = np.zeros(message.values.shape, dtype=np.uint64)
        for column, (own, values) in enumerate(zip(self._sorted, message.values, strict=True)):
            counts[column] = np.searchsorted(own, values, side="right")
        return MaskedCounts(self._masks.hide(counts, digest))

    def _take_cuts(self, message: CutsFound) -> Done:
        schema, config = cast(Schema, self._schema), self._config
        starts, trees = message.starts, schema.trees_per_round
        fits = len(starts) == len(schema.columns) + 1 and starts[0] == 0 and starts[-1] == len(message.cuts)
        if not fits or (np.diff(starts) < 0).any() or len(message.base_margin) != trees:
            raise MalformedMessage("the cuts are not those of these columns")
        cuts = [message.cuts[begin:end] for begin, end in itertools.pairwise(starts.tolist())]
        if any((np.diff(each) <= 0).any() for each in cuts):
            raise MalformedMessage("the cuts of a column do not increase")
        rows = len(self._label)
        self._block = block_with_cuts(self._columns, rows, cuts, schema.missing, config, self._context.threads)
        self._margin = np.repeat(message.base_margin[:, None], rows, axis=1)
        self._round, self._depth, self._ended = -1, 0, True
        return Done()

    # --- rounds -----------------------------------------------------------------------------------------

    def _own_scale(self) -> tuple[Scale, Any, Any]:
        g, h = self._objective.gradients(self._margin, self._label, None)
        bits = self._config.gradient_bits
        return choose_scale(*self._objective.bounds(1.0, g, h), 1.0, bits), g, h

    def _scale(self, message: ScaleRequest) -> ScaleAnswer:
        if message.number != self._round + 1:
            raise UnexpectedMessage("the grid of another round is asked for")
        self._end_round(message)
        scale, _, _ = self._own_scale()
        return ScaleAnswer(scale.g_exponent, scale.h_exponent)

    def _sums(self, message: SumsRequest, digest: bytes) -> MaskedSums:
        if (message.number, message.depth) not in {(self._round, self._depth + 1), (self._round + 1, 0)}:
            raise UnexpectedMessage("a level came before its turn")
        if message.number >= self._config.n_estimators:
            raise UnexpectedMessage("there are more rounds than the job has")
        if message.depth == 0:
            self._end_round(message)
            self._open_round(message)
        else:
            self._groups = self._follow(message)
        if len(message.build) and not (0 <= message.build.min() <= message.build.max() < self._groups.nodes):
            raise MalformedMessage("sums are asked for nodes that are not there")
        self._round, self._depth = message.number, message.depth
        block = self._round_block
        sums = block.histogram(bins_of(block), self._gradients, self._groups.of(message.build.astype(np.int64)))
        return MaskedSums(self._masks.hide(sums.view(np.uint64), digest))

    def _open_round(self, message: SumsRequest) -> None:
        own, g, h = self._own_scale()
        scale = Scale(message.g_exponent, message.h_exponent)
        if scale.g_exponent > own.g_exponent or scale.h_exponent > own.h_exponent:
            raise MalformedMessage(f"the grid is too fine for gradients of {MAX_BITS} bits")
        block = cast(ColumnBlock, self._block)
        if len(message.columns):
            if not (0 <= message.columns.min() <= message.columns.max() < block.layout.features):
                raise MalformedMessage("the round is about columns that are not there")
            block = block.subset(message.columns)
        self._round_block = block
        self._gradients = to_fixed(g, h, scale)
        self._groups = RowGroups.root(np.arange(block.rows, dtype=np.int32), len(self._margin))
        self._ended = False

    def _end_round(self, message: LevelTold) -> None:
        """Take in the last leaves of the round before, once."""
        if not self._ended:
            if len(message.ends) != 2 * len(message.position):
                raise MalformedMessage("a round ends with other leaves than it has")
            self._weigh(self._follow(message), message.ends)
            self._ended = True

    def _follow(self, message: LevelTold) -> RowGroups:
        """What the server decided of the last level: leaves get their weights, the other nodes split."""
        groups, block = self._groups, self._round_block
        every = np.sort(np.concatenate((message.leaves, message.position)))
        if not np.array_equal(every, np.arange(groups.nodes)):
            raise MalformedMessage("the nodes of a level are not all leaves or split, once each")
        if len(message.weights) != len(message.leaves) or len(message.handles) != len(message.position):
            raise MalformedMessage("weights or splits are not one for each node")
        if len(message.handles) and not (0 <= message.handles.min() <= message.handles.max() < 2 * block.layout.slots):
            raise MalformedMessage("a split is none of these columns")
        splits = block.splits_of(message.handles, _sets(message, block))
        at = groups.of(message.position.astype(np.int64))
        children = at.split(block.route(bins_of(block), at, splits))
        self._weigh(groups.of(message.leaves.astype(np.int64)), message.weights)
        return children

    def _weigh(self, leaves: RowGroups, weights: Float32Array) -> None:
        _native.add_to_rows(leaves.rows, leaves.begin, leaves.end, leaves.group, weights, self._margin)


def _signed(public: bytes) -> bytes:
    """What a participant signs of its public key: the same bytes mean nothing else."""
    return b"veilboost secagg key " + public


def _sets(message: LevelTold, block: ColumnBlock) -> list[Int32Array]:
    starts = message.set_starts
    if len(starts) != len(message.handles) + 1 or starts[0] != 0 or starts[-1] != len(message.set_bins):
        raise MalformedMessage("the sets of categories are not one for each split")
    if (np.diff(starts) < 0).any() or (message.set_bins < 0).any() or (message.set_bins >= block.layout.widest).any():
        raise MalformedMessage("a set holds categories that are not there")
    return [message.set_bins[begin:end] for begin, end in itertools.pairwise(starts.tolist())]


def _sorted(column: Column) -> UInt32Array:
    values = column.values.astype(np.float32)
    if column.categories is not None:
        values = np.where(column.values < 0, np.float32(np.nan), values)
    return np.sort(to_ordered(values[~np.isnan(values)]))


def _objective(schema: Schema, config: TrainingConfig) -> Objective:
    return make_objective(
        schema.objective, classes=max(2, schema.kinds), max_delta_step=config.max_delta_step, order=config.order
    )
