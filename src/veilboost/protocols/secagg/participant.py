"""The participant of `secagg`: holds rows and margins, and answers with masked sums."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np

from veilboost import _native
from veilboost.boost.bins import Sets
from veilboost.boost.booster import sample_columns
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.metrics import check_metric_fits, summed_metric_for
from veilboost.boost.objective import objective_of
from veilboost.boost.rows import RowGroups
from veilboost.crypto.fingerprint import DIGEST_BYTES, content_digest
from veilboost.crypto.pairwise import KEY_BYTES, PairwiseMasks
from veilboost.data.table import PartyTable
from veilboost.errors import (
    EmptyTable,
    MalformedMessage,
    StateDiffers,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.fixedpoint import MAX_BITS, Scale, choose_scale, to_fixed, to_ordered
from veilboost.model.share import ModelShare
from veilboost.privacy.discrete import TABLES
from veilboost.privacy.event import START
from veilboost.privacy.mechanism import Generator
from veilboost.protocols.horizontal.full_model import TrainedModel, block_with_cuts, from_message
from veilboost.protocols.horizontal.roles import ParticipantContext, ParticipantRole, ParticipantState
from veilboost.protocols.horizontal.sampling import RowSampler
from veilboost.protocols.horizontal.schema import Schema, describe, encoded_table
from veilboost.protocols.secagg import messages
from veilboost.protocols.secagg.accounting import releases, repetition
from veilboost.protocols.secagg.noise import SumNoise, least_roster
from veilboost.protocols.secagg.rosters import Rosters, signed, with_dropouts
from veilboost.protocols.secagg.shared import MOST_STEPS, SUM_BYTES, exact_sum, most_values, score_histogram
from veilboost.types import (
    AnyArray,
    Column,
    Float32Array,
    Float64Array,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt32Array,
)
from veilboost.wire.message import Done, Message, encode


class SecaggParticipant(ParticipantRole):
    """Answers each request once: a repeated request gets the stored answer.

    Masks depend on the whole history of requests, so no mask is used for two contents, whatever the server repeats. And
    sums open only if all participants had the same requests, and restored the same trees: otherwise a server could tell
    all but one that their margins are large, so that their hessians are 0, and read those of the one.
    """

    def __init__(self, context: ParticipantContext) -> None:
        self._context, self._config = context, context.config
        rows = context.table.rows
        held_out = np.zeros(rows, dtype=np.bool_) if context.held_out is None else context.held_out
        self._fit, self._held_out = np.flatnonzero(~held_out), np.flatnonzero(held_out)
        if not len(self._fit):
            raise EmptyTable("all rows are held out for validation", "lower the share of validation rows")
        self._sampler = RowSampler(context.table.ids[self._fit], context.config)
        self._weight = np.ones(rows) if context.table.weight is None else context.table.weight
        self._noise = SumNoise.of(self._config, len(context.table.columns))
        if self._noise is not None and (len(self._held_out) or context.table.weight is not None):
            raise UnsupportedCombination(
                "secagg with epsilon supports neither sample weights nor validation rows",
                "remove the sample-weight column and the share of validation rows, or set epsilon to 0",
            )
        # Masks depend on requests, so a job that restarts with other rows, or that resumes, needs another key.
        contents = held_out, self._weight, self._sampler.codes, *_contents(context.table)
        self._content = content_digest(context.randomness, *contents)
        private = context.randomness.for_request("secagg", "private key", self._content, context.attempt)
        self._masks = PairwiseMasks(private.bytes(KEY_BYTES))
        self._rosters = Rosters(context, self._masks) if with_dropouts(self._config) else None  # who takes part
        self._opening = self._trees = b""  # digests of schema and cut points; of these and of all results of levels
        self._margin: Float64Array = np.empty((0, 0))
        self._schema: Schema | None = None
        self._block: ColumnBlock | None = None
        self._last: tuple[bytes, Message] | None = None
        self._history = b""
        self._share: ModelShare | None = None
        self._counted = 0
        self._round, self._depth, self._ended = -1, 0, True

    @property
    def share(self) -> ModelShare | None:
        return self._share

    def introduce(self) -> messages.SecaggColumns:
        schema = describe(self._context.table, self._config.objective)
        if self._noise is not None:  # facts that one record could change
            schema = replace(schema, missing=(True,) * len(schema.columns), kinds=2)
        evidence = self._context.signer.sign(signed(self._masks.public))
        largest = float(self._weight[self._fit].max())
        exponent = max(0, math.ceil(math.log2(largest))) if largest > 0 else 0
        public = np.frombuffer(self._masks.public, np.uint8)
        return messages.SecaggColumns(schema.to_json(), public, evidence, exponent, bool(len(self._held_out)))

    def handle(self, message: Message) -> Message:
        digest = hashlib.sha256(encode(message)).digest()
        if self._last is not None and self._last[0] == digest:
            return self._last[1]
        self._history = hashlib.sha256(self._history + digest).digest()  # a request that is refused counts too
        answer = self._answer(message, self._history)
        self._last = digest, answer
        if self._rosters is not None and isinstance(message, messages.RosterConfirmed):
            self._history = self._rosters.digest  # members that return have not seen the requests before it
        return answer

    def _answer(self, message: Message, digest: bytes) -> Message:
        if isinstance(message, messages.SecaggGroup):
            return self._join(message)
        opening = isinstance(message, messages.TotalsRequest | messages.CountsRequest | messages.CutsFound)
        if self._schema is None or opening != (self._block is None):
            raise UnexpectedMessage(f"{message.type_name()} arrived out of order")
        if isinstance(message, messages.TotalsRequest):
            return self._totals(digest)
        if isinstance(message, messages.CountsRequest):
            return self._counts(message, digest)
        if isinstance(message, messages.CutsFound):
            return self._take_cuts(message)
        if isinstance(message, messages.ScaleRequest):
            return self._scale(message)
        if isinstance(message, messages.SumsRequest):
            return self._sums(message, digest)
        if isinstance(message, messages.MetricRequest):
            return self._metric(message, digest)
        if self._rosters is not None:
            if isinstance(message, messages.RosterRequest):
                self._rosters.check(message)
                self._end_round(message)
                return self._rosters.accept(message, self._trees, len(self._margin))
            if isinstance(message, messages.RosterConfirmed):
                return self._rosters.confirm(message)
            if isinstance(message, messages.MissedLevel):
                return self._catch_up(message, self._rosters)
        if isinstance(message, TrainedModel):
            self._share = from_message(message)
            return Done()
        raise UnexpectedMessage(f"{message.type_name()} is not a request to a participant")

    # --- start of the job -------------------------------------------------------------------------------

    def _join(self, message: messages.SecaggGroup) -> Done:
        if self._schema is not None:
            raise UnexpectedMessage("the group was already formed")
        group, publics = message.participants, [row.tobytes() for row in message.publics]
        if group != self._context.participants or len(group) < 2:  # with fewer, colluding ones could open the others
            raise MalformedMessage(
                "the group must be the participants that the job names, two or more", "name two participants or more"
            )
        if message.publics.shape != (len(group), KEY_BYTES) or len(message.evidence) != len(group):
            raise MalformedMessage("there is not one public key for each participant")
        for party, public, evidence in zip(group, publics, message.evidence, strict=True):
            if party != self._context.party:  # otherwise the server could replace a key by its own
                self._context.signer.check(party, signed(public), evidence)
        if publics[group.index(self._context.party)] != self._masks.public:
            raise MalformedMessage("the public key of this participant was replaced")
        if not 0 <= message.weight_exponent <= MAX_BITS:
            raise MalformedMessage("the bound on the weights is out of range")
        least_roster(self._config, len(group))  # raises if too many may drop out
        part = None if self._noise is None else self._noise.part(self._config, len(group))
        if part is not None and message.weight_exponent != 0:
            raise MalformedMessage("a job with epsilon has no sample weights")
        schema = Schema.from_json(message.schema)
        columns, label = encoded_table(self._context.table, schema)
        if self._config.eval_metric != "auto":
            check_metric_fits(self._config.eval_metric, schema.objective)
        objective = objective_of(schema.objective, self._config, max(2, schema.kinds))
        objective.base_margin(label, None, 0.5)  # raises for labels that the loss does not allow
        rows, validates, account = self._context.table.rows, bool(len(self._held_out)), self._context.account
        planned = releases(self._config, validates, rows, len(columns), self._content.hex())
        if account.begin(START, schema.trees_per_round) and part is not None:
            raise UnsupportedCombination(
                "a job with epsilon cannot be resumed: what is answered again would have other noise than was booked",
                "start a new job, under another name, which books a budget of its own",
            )
        account.spend(*planned)
        # Nothing above changes the state: after a refusal no request is answered, and no noise is divided twice.
        self._masks.agree(publics)
        if self._rosters is not None:
            self._rosters.form(group, publics)
        self._weight_bound, self._part = math.ldexp(1.0, message.weight_exponent), part
        self._schema, self._columns, self._label, self._objective = schema, columns, label, objective
        counted = [column for column in columns if column.categories is None or self._ordinal]
        self._sorted, self._releases = [_sorted(column, self._fit) for column in counted], planned
        return Done()

    @property
    def _ordinal(self) -> bool:
        return self._config.categories == "ordinal"

    def _totals(self, digest: bytes) -> messages.MaskedTotals:
        label, weight = self._label[self._fit], self._weight[self._fit]
        terms = self._objective.label_terms(label)
        if self._noise is not None:
            terms = np.zeros_like(terms)  # the server starts at base_score
        if self._config.scale_pos_weight != 1.0:
            weight = weight * np.where(label == 1.0, self._config.scale_pos_weight, 1.0)
        rows = self._masks.hide(np.array([len(label)], dtype=np.uint64), digest + b"rows")
        sums = [self._hidden(each * weight, digest + b"labels %d" % number) for number, each in enumerate(terms)]
        return messages.MaskedTotals(rows, self._hidden(weight, digest + b"weights"), np.stack(sums))

    def _hidden(self, values: Float64Array, label: bytes) -> UInt8Array:
        """Return the exact sum of the values, under the masks of this label."""
        return np.frombuffer(self._masks.hide_number(exact_sum(values), SUM_BYTES, label), np.uint8)

    def _counts(self, message: messages.CountsRequest, digest: bytes) -> messages.MaskedCounts:
        if len(message.values) != len(self._sorted):
            raise MalformedMessage("counts were requested for another number of columns")
        if message.values.shape[1] > most_values(self._config.max_bin):
            raise MalformedMessage("counts were requested for more values than the search for cut points needs")
        if message.step != self._counted + 1 or message.step > (MOST_STEPS if self._noise is None else TABLES):
            raise UnexpectedMessage(
                "counts were requested out of order, or more often than the search for cut points needs"
            )
        self._counted = message.step
        counts = np.zeros(message.values.shape, dtype=np.uint64)
        for column, (own, values) in enumerate(zip(self._sorted, message.values, strict=True)):
            counts[column] = np.searchsorted(own, values, side="right")
        if self._part is not None:
            if (np.diff(message.values.astype(np.int64), axis=1) < 0).any():
                raise MalformedMessage("the values of a request for counts decrease")
            counts = self._part.add_to_cells(self._generator(digest), counts)
        return messages.MaskedCounts(self._masks.hide(counts, digest))

    def _generator(self, digest: bytes) -> Generator:
        """The noise of a request: other requests and other tables have other noise."""
        return self._context.randomness.for_request("secagg", "noise", self._content, digest)

    def _take_cuts(self, message: messages.CutsFound) -> Done:
        schema, config = cast(Schema, self._schema), self._config
        starts, trees = message.starts, schema.trees_per_round
        fits = len(starts) == len(schema.columns) + 1 and starts[0] == 0 and starts[-1] == len(message.cuts)
        if not fits or (np.diff(starts) < 0).any() or len(message.base_margin) != trees:
            raise MalformedMessage("the cut points are not those of these columns")
        cuts = [message.cuts[begin:end] for begin, end in itertools.pairwise(starts.tolist())]
        if any((np.diff(each) <= 0).any() for each in cuts):
            raise MalformedMessage("the cut points of a column do not increase")
        rows = len(self._label)
        self._block = block_with_cuts(self._columns, rows, cuts, schema.missing, config, self._context.threads)
        self._margin = np.repeat(message.base_margin[:, None], rows, axis=1)
        self._round, self._depth, self._ended = -1, 0, True
        known = repr((schema.to_json(), self._weight_bound)).encode()
        self._opening = self._trees = hashlib.sha256(known + encode(message)).digest()
        return Done()

    # --- checkpoints ------------------------------------------------------------------------------------

    def state(self, trees: int) -> ParticipantState:
        """The state after this number of trees: until the first leaves of the next round are known."""
        begun = self._block is not None and not self._ended and self._depth == 0
        if not begun or not trees or trees != self._round * len(self._margin):
            raise UnexpectedMessage("there is no such checkpoint to store")
        return ParticipantState(self._margin, self._digest(self._margin, self._trees) + self._trees)

    def restore(self, trees: int, state: ParticipantState) -> None:
        if self._block is None or self._round >= 0:
            raise UnexpectedMessage("a checkpoint can be restored only before the first round")
        rounds, rest = divmod(trees, len(self._margin))
        if rest or not 0 < rounds < self._config.n_estimators:
            raise UnexpectedMessage("the checkpoint is not one of this job")
        own, before = state.digest[:DIGEST_BYTES], state.digest[DIGEST_BYTES:]
        if state.margin.shape != self._margin.shape or own != self._digest(state.margin, before):
            raise StateDiffers("the table, the cut points of the job, or the release have changed since the checkpoint")
        self._margin, self._round, self._trees = state.margin.copy(), rounds - 1, before
        self._history = hashlib.sha256(self._history + before).digest()

    def _digest(self, margin: Float64Array, trees: bytes) -> bytes:
        """A digest of the state, with that of the trees that led to it."""
        return content_digest(self._context.randomness, self._opening, self._content, margin, trees)

    def _catch_up(self, message: messages.MissedLevel, rosters: Rosters) -> Done:
        """Apply a level of a round that this participant missed. Its next roster proves that others did the same."""
        if rosters.number >= 0:
            raise UnexpectedMessage("the participant takes part already, and has missed no round")
        if self._ended:
            if not self._round < message.number < self._config.n_estimators:
                raise UnexpectedMessage("a round that was missed arrived out of order")
            self._round = message.number
            self._begin_trees([np.arange(len(self._label))], self._columns_of(message.number))
        elif message.number != self._round:
            raise UnexpectedMessage("a round that was missed arrived out of order")
        if len(message.ends) or not len(message.position):
            self._end_round(message)
        elif self._depth + 1 == self._config.max_depth:
            raise UnexpectedMessage("there are more levels than the job has")
        else:
            self._groups, self._depth = self._apply(message), self._depth + 1
        return Done()

    # --- rounds -----------------------------------------------------------------------------------------

    def _own_scale(self) -> tuple[Scale, Any, Any]:
        g, h = self._objective.gradients(self._margin, self._label, None, self._context.threads)
        bounds = self._objective.bounds(1.0, g[:, self._fit], h[:, self._fit])
        return choose_scale(*bounds, self._weight_bound, self._config.gradient_bits), g, h

    def _scale(self, message: messages.ScaleRequest) -> messages.ScaleAnswer:
        if not self._may_begin(message.number) or self._noise is not None:
            raise UnexpectedMessage("the grid of another round was requested")
        self._end_round(message)
        scale, _, _ = self._own_scale()
        return messages.ScaleAnswer(scale.g_exponent, scale.h_exponent)

    def _sums(self, message: messages.SumsRequest, digest: bytes) -> messages.MaskedSums:
        begins = message.depth == 0 and self._may_begin(message.number)
        continues = not self._ended and (message.number, message.depth) == (self._round, self._depth + 1)
        if not (begins or continues):
            raise UnexpectedMessage("a level arrived out of order")
        if message.number >= self._config.n_estimators or message.depth >= self._config.max_depth:
            raise UnexpectedMessage("there are more rounds or levels than the job has")
        nodes = len(self._margin) if begins else 2 * len(message.position)
        if not _native.increasing_below(message.build, nodes):
            raise MalformedMessage("sums were requested for nodes that do not exist, twice, or out of order")
        if begins:
            self._end_round(message)
            self._open_round(message)
        elif len(message.ends):
            raise MalformedMessage("the last leaves of a round came before its end")
        else:
            self._groups = self._apply(message)
        fit, self._round, self._depth = self._groups[0], message.number, message.depth
        block = self._round_block
        sums = block.histogram(block.shared_bins, self._gradients, fit.of(message.build.astype(np.int64)))
        if self._part is not None:
            sums = self._part.add_to_sums(self._generator(digest), sums, self._grid)
        return messages.MaskedSums(self._masks.hide(sums.view(np.uint64), digest))

    def _open_round(self, message: messages.SumsRequest) -> None:
        own, g, h = self._own_scale()
        scale = Scale(message.g_exponent, message.h_exponent)
        if scale.g_exponent > own.g_exponent or scale.h_exponent > own.h_exponent:
            raise MalformedMessage(f"the grid is too fine for gradients of {MAX_BITS} bits")
        if self._noise is not None and scale != own:  # noise needs a grid that is fine enough
            raise MalformedMessage("a job with epsilon has the grid that follows from the loss")
        self._grid = scale
        columns = self._columns_of(message.number)
        if not np.array_equal(message.columns, () if columns is None else columns):
            raise MalformedMessage("the columns of the round differ from the job's sample")
        again = self._context.account.begin(f"round {message.number}", len(self._margin))
        if again:
            self._context.account.spend(*repetition(self._releases, message.number, again))
        unweighted = self._context.table.weight is None
        g[:, self._held_out] = h[:, self._held_out] = 0.0  # unused, and may exceed the grid
        self._gradients = to_fixed(g, h, scale, None if unweighted else self._weight, self._context.threads)
        drawn = self._sampler.drawn(message.number)
        fit, routed = self._fit, self._held_out
        if drawn is not None:
            fit, routed = self._fit[drawn], np.sort(np.concatenate((self._fit[~drawn], self._held_out)))
        self._begin_trees([fit, routed] if len(routed) else [fit], columns)

    def _columns_of(self, number: int) -> Int32Array | None:
        features = cast(ColumnBlock, self._block).layout.features
        return sample_columns([features], number, self._config)[0]

    def _begin_trees(self, rows: Sequence[Int64Array], columns: Int32Array | None) -> None:
        """All rows are at the roots of the round's trees."""
        block = cast(ColumnBlock, self._block)
        self._round_block = block if columns is None else block.subset(columns)
        self._groups = [RowGroups.root(each.astype(np.int32), len(self._margin)) for each in rows]
        self._depth, self._ended = 0, False

    def _may_begin(self, number: int) -> bool:
        """Whether this is the next round: with dropouts, one whose roster was accepted by everybody."""
        if self._rosters is None:
            return number == self._round + 1
        return number > self._round and self._rosters.allows(number)

    def _end_round(self, message: messages.LevelResult) -> None:
        """Apply the last leaves of the previous round, once."""
        if not self._ended:
            if len(message.ends) != 2 * len(message.position):
                raise MalformedMessage("the last leaves of a round do not match its splits")
            for groups in self._apply(message):
                self._weigh(groups, message.ends)
            self._ended = True

    def _metric(self, message: messages.MetricRequest, digest: bytes) -> messages.MaskedMetric | messages.MaskedScores:
        """End the round and return the metric of the held-out rows."""
        if message.number != self._round or self._ended or self._noise is not None:
            raise UnexpectedMessage("the metric of another round was requested")
        self._end_round(message)
        rows, terms = self._held_out, summed_metric_for(self._objective, self._config).terms
        if terms is None:
            scores = score_histogram(self._margin[0, rows], self._label[rows], self._weight[rows], self._weight_bound)
            return messages.MaskedScores(self._masks.hide(scores, digest))
        values = np.empty(0)
        if len(rows):
            values = terms(self._label[rows], self._objective.predict(self._margin[:, rows])) * self._weight[rows]
        return messages.MaskedMetric(
            self._hidden(self._weight[rows], digest + b"weights"), self._hidden(values, digest)
        )

    def _apply(self, message: messages.LevelResult) -> list[RowGroups]:
        """Apply the result of the last level: leaves get their weights, the other nodes split."""
        nodes, block = self._groups[0].nodes, self._round_block
        parts = message.leaves, message.position
        if not np.array_equal(np.sort(np.concatenate(parts)), np.arange(nodes)) or not all(
            _native.increasing_below(part, nodes) for part in parts
        ):
            raise MalformedMessage("each node of a level must be either a leaf or split, once")
        if len(message.weights) != len(message.leaves) or len(message.handles) != len(message.position):
            raise MalformedMessage("there is not one weight or split for each node")
        if len(message.handles) and not (0 <= message.handles.min() <= message.handles.max() < 2 * block.layout.slots):
            raise MalformedMessage("a split is on a column that does not exist")
        splits = block.splits_of(message.handles, _sets(message, block))
        children: list[RowGroups] = []
        for rows in self._groups:
            at = rows.of(message.position.astype(np.int64))
            children.append(at.split(block.route(block.shared_bins, at, splits)))
            self._weigh(rows.of(message.leaves.astype(np.int64)), message.weights)
        result = messages.LevelResult(*(getattr(message, each.name) for each in fields(messages.LevelResult)))
        self._trees = hashlib.sha256(self._trees + repr(self._round).encode() + encode(result)).digest()
        return children

    def _weigh(self, leaves: RowGroups, weights: Float32Array) -> None:
        leaves.add_to(self._margin, weights)


def _contents(table: PartyTable) -> Iterator[str | AnyArray]:
    for column in table.columns:
        yield repr((column.name, column.categories))
        yield column.values
    if table.label is not None:
        yield table.label


def _sets(message: messages.LevelResult, block: ColumnBlock) -> Sets:
    starts = message.set_starts
    if len(starts) != len(message.handles) + 1 or starts[0] != 0 or starts[-1] != len(message.set_bins):
        raise MalformedMessage("there is not one set of categories for each split")
    layout, sets = block.layout, Sets(starts, message.set_bins)
    if (np.diff(starts) < 0).any() or not _native.sets_fit(
        message.handles, layout.offsets, layout.missing, layout.kind, *sets
    ):
        raise MalformedMessage("a set contains categories that do not exist, or one twice")
    return sets


def _sorted(column: Column, rows: Int64Array) -> UInt32Array:
    values = column.values[rows].astype(np.float32)
    if column.categories is not None:
        values = np.where(column.values[rows] < 0, np.float32(np.nan), values)
    return np.sort(to_ordered(values[~np.isnan(values)]))
