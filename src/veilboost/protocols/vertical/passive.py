"""The passive role of vertical training: bins columns, routes rows through the trees, splits nodes on request."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from veilboost import _native
from veilboost.boost.bins import NO_SETS, BinLayout, Sets
from veilboost.boost.booster import one_side_counts, sample_rows
from veilboost.boost.grower import rows_with_sibling
from veilboost.boost.limits import ColumnConstraints
from veilboost.boost.rows import NO_ROWS, RowGroups
from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, MalformedMessage, UnexpectedMessage, VeilBoostError
from veilboost.fixedpoint import MAX_BITS
from veilboost.model.share import SplitRecords
from veilboost.privacy.event import START
from veilboost.protocols.vertical import messages
from veilboost.protocols.vertical.constraints import offered_constraints
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveContext, PassiveJob, RuleBook, role_of
from veilboost.protocols.vertical.round_state import ColumnShuffle, RoundState, summed_ahead
from veilboost.types import BoolArray, Int32Array, UInt8Array
from veilboost.wire.message import Done, Message

_SEVERAL_TREES = ("auto", "multiclass")
_OF_A_LEVEL = (
    messages.StatisticsRequest,
    messages.SplitRequest,
    messages.MoreAssignments,
    messages.AssignmentsRequest,
)
# Why `_native.refused_splits` refuses a request.
REFUSED = (
    "",
    "a split's arrays are empty or have different lengths",
    "a node to split is not in the level, or is named twice",
    "a node to split, or its sibling, has fewer rows than min_node_rows",
    "a split names a node of another tree, or by another number",
    "a list of lists is inconsistent",
    "a split names a candidate that does not exist",
)
_NO_GRADIENTS = np.empty((0, 0, 2), dtype=np.int32)


class VerticalPassive:
    """The passive role of a vertical protocol. It validates a whole request before it changes any state."""

    def __init__(self, context: PassiveContext, cipher: PassiveCipher) -> None:
        self.context, self.cipher = context, cipher
        self._constraints = context.constraints or ColumnConstraints.none(len(context.columns))
        self._rules = RuleBook()
        self._job: PassiveJob | None = None
        self._round: RoundState | None = None
        self._next_round = 0
        self.finished = False

    def handle(self, message: Message) -> Message:
        """Answer a request, or raise a coded error and keep the state unchanged."""
        if isinstance(message, messages.BeginTraining):
            return self._begin_training(message)
        if self._job is None or self.finished:
            raise UnexpectedMessage(f"{message.type_name()} arrived outside a job")
        if isinstance(message, messages.BeginRound):
            return self._begin_round(message, self._job)
        if isinstance(message, messages.EndTraining):
            return self._end_training(message)
        if isinstance(message, messages.ResumeTraining):
            return self._resume(message, self._job)
        if not isinstance(message, _OF_A_LEVEL):
            return self.cipher.other(message, self._round)
        if self._round is None:
            raise UnexpectedMessage(f"{message.type_name()} arrived before the first round")
        if isinstance(message, messages.StatisticsRequest):
            return self._statistics(message, self._round, self._job)
        if isinstance(message, messages.SplitRequest):
            return self._split(self.cipher.chosen(message), self._round, self._job)
        if isinstance(message, messages.MoreAssignments):
            return self._more_assignments(message, self._round)
        return self._next_assignments(message, self._round)

    @property
    def trees(self) -> int:
        """The number of trees that have been started."""
        return 0 if self._job is None else self._next_round * self._job.trees_per_round

    def records(self) -> SplitRecords:
        """The split records so far; after the job, those of the model."""
        return self._rules.records()

    def restore(self, records: SplitRecords) -> None:
        """Restore the split records of an earlier part of the same job, after a restart."""
        self._rules.restore(records)

    def _begin_training(self, message: messages.BeginTraining) -> messages.ColumnsOffered:
        if self._job is not None:
            raise UnexpectedMessage("the job has already started")
        rows = self.context.rows
        if message.rows != rows or not 1 <= message.trees_per_round <= 10_000:
            raise MalformedMessage("the job has another number of rows, or an impossible number of classes")
        if not 0 <= message.weight_bits <= MAX_BITS:
            raise MalformedMessage("sample weights have an impossible bound")
        if len(message.weights) not in (0, rows):
            raise MalformedMessage("the number of weights differs from the number of rows")
        if not (np.isfinite(message.weights).all() and (message.weights >= 0).all()):
            raise MalformedMessage("a weight is negative or not finite")
        try:
            values: Any = json.loads(message.config)
            config = TrainingConfig.from_dict(values)
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            if isinstance(error, InvalidParameter):
                raise
            raise MalformedMessage("the job's parameters cannot be read") from error
        agreed = self.context.agreed
        # Only max_delta_step may differ: for Poisson it depends on the objective, and it affects only leaves.
        if agreed is not None and replace(config, max_delta_step=agreed.max_delta_step) != agreed:
            raise UnexpectedMessage("the job's parameters differ from those agreed on")
        if config.objective not in _SEVERAL_TREES and message.trees_per_round != 1:
            raise MalformedMessage("the job's loss grows one tree per round")
        if len(message.weights) and not config.weighted_bins:
            raise MalformedMessage("the job sends weights, but weighted_bins is off")
        held_out = _bits(message.held_out, rows).astype(np.bool_) if len(message.held_out) else None
        kept = 0 if held_out is None else int(np.count_nonzero(held_out))
        if self.context.held_out is not None and kept != self.context.held_out:
            raise MalformedMessage("the job holds out another number of rows for validation")
        fit_rows = None if held_out is None else np.flatnonzero(~held_out).astype(np.int32)
        self.context.account.begin(START, message.trees_per_round)
        block = self.context.engine.columns(
            self.context.columns,
            rows,
            config,
            message.weights if len(message.weights) else None,
            held_out,
            self.context.threads,
            self.cipher.cut_proposal(config, fit_rows),
        )
        self._job = PassiveJob(config, message.trees_per_round, message.weight_bits, block, self._rules)
        self._may_fit = None if held_out is None else np.packbits(~held_out)
        self.cipher.begin_training(self._job)
        return messages.ColumnsOffered(
            block.layout.offsets, block.layout.missing, block.layout.kind, **offered_constraints(self._constraints)
        )

    def _begin_round(self, message: messages.BeginRound, job: PassiveJob) -> Done:
        config, block = job.config, job.block
        if message.number != self._next_round or message.number >= config.n_estimators:
            raise UnexpectedMessage("the round is not the next one")
        rows = block.all_rows()
        if message.all_columns != (config.colsample_bytree >= 1.0):
            raise MalformedMessage("the round and the job disagree on whether columns are sampled")
        columns = None
        if not message.all_columns:
            columns = message.columns
            if not _native.increasing_below(columns, block.layout.features):
                raise MalformedMessage("the round names columns that do not exist, twice, or out of order")
            block = block.subset(columns)
        elif len(message.columns):
            raise MalformedMessage("the round lists columns although it uses all")
        sampled_levels = self.cipher.shuffles and config.colsample_bylevel < 1.0
        shape = (config.max_depth, block.layout.features) if sampled_levels else messages.NO_LEVELS.shape
        if message.levels.shape != shape or (message.levels > 1).any():
            raise MalformedMessage("the round samples columns for other levels than the job")
        fit, routed = rows, rows[:0]
        mask = _bits(message.fit, len(rows)).astype(np.bool_) if len(message.fit) else None
        if self.cipher.receives_samples:
            self._check_sample(message.number, mask, config)
        if mask is not None:
            fit, routed = rows[mask], rows[~mask]
        self.cipher.open_round(message)
        shuffle = ColumnShuffle.none(block.layout)
        if self.cipher.shuffles:
            # A resumed job uses the same order, so that two orders of one round cannot be compared.
            sampled = (b"" if columns is None else columns.tobytes()) + message.levels.tobytes()
            drawn = self.context.randomness.for_request("order of columns", message.number, sampled)
            own = self._constraints.subset(columns)
            # The active party must know the limits of the columns that it sees: only columns of the same change places.
            limits = [message.levels.T] if message.levels.size else []
            if not own.is_free:
                member = own.membership(list(own.sets or ()))
                limits += [own.direction[:, None].view(np.uint8), member.T.astype(np.uint8)]
            alike = np.concatenate(limits, axis=1) if limits else messages.NO_LEVELS
            shuffle = ColumnShuffle.draw(block.layout, drawn, alike)
        trees = job.trees_per_round
        again = self.context.account.begin(f"round {message.number}", trees)
        if self.context.exact is not None:
            slots = job.block.layout.slots
            self.context.exact.before_round(config, message.number, self.context.rows, slots, trees, again)
        roots = (RowGroups.root(each, trees, self.context.threads) if len(each) else NO_ROWS for each in (fit, routed))
        fit_roots, routed_roots = roots
        self._next_round = message.number + 1
        self._round = RoundState(message.number, block, columns, shuffle, fit_roots, routed_roots)
        return Done()

    def _check_sample(self, number: int, sent: BoolArray | None, config: TrainingConfig) -> None:
        """Refuse rows to sum that differ from the job's sample: free choice would allow requests about one record."""
        rows, may_fit = self.context.rows, self._may_fit
        if sent is None and may_fit is None and config.subsample >= 1.0 and config.sampling == "uniform":
            return  # all rows: no need to allocate a mask
        expected = np.ones(rows, dtype=np.bool_) if may_fit is None else _bits(may_fit, rows).astype(np.bool_)
        sent = np.ones_like(expected) if sent is None else sent
        if config.sampling == "goss":  # the rows depend on gradients, their number does not
            right = not (sent & ~expected).any() and int(sent.sum()) == sum(
                one_side_counts(int(expected.sum()), config)
            )
        else:
            if config.subsample < 1.0:
                pool = np.arange(np.count_nonzero(expected), dtype=np.int32)
                expected[expected] = sample_rows(pool, _NO_GRADIENTS, number, config).drawn
            right = np.array_equal(sent, expected)
        if not right:
            raise MalformedMessage("the rows to fit on differ from the job's sample")

    def _resume(self, message: messages.ResumeTraining, job: PassiveJob) -> Done:
        rounds, rest = divmod(message.trees, job.trees_per_round)
        if rest or rounds < 0:
            raise UnexpectedMessage("the job cannot resume after a tree that was not finished here")
        self._rules.keep(message.trees)
        self._round, self._next_round = None, rounds
        return Done()

    def _end_training(self, message: messages.EndTraining) -> Done:
        self._rules.keep(message.trees)
        self._round = None
        self.finished = True
        return Done()

    def _statistics(self, message: messages.StatisticsRequest, state: RoundState, job: PassiveJob) -> Message:
        if message.depth != state.depth + (1 if state.summed else 0) or message.depth >= job.config.max_depth:
            raise UnexpectedMessage("the request is for another level")
        fit, routed = state.fit, state.routed
        if state.summed:
            fit, routed = state.children(message)
        elif len(message.split):
            raise UnexpectedMessage("no level was split yet")
        if not len(message.build):  # min_node_rows is checked on the nodes to sum
            raise MalformedMessage("there is no node to sum")
        if not _native.increasing_below(message.build, fit.nodes):
            raise MalformedMessage("a node to sum is not in the level, is named twice, or is out of order")
        if message.ahead:
            if not state.split_here:
                raise UnexpectedMessage("a request ahead needs a split in the same level")
            build, _ = summed_ahead(fit, message, job.config)
            if not len(build):
                return Done()
        else:
            build = message.build.astype(np.int64)
            if (rows_with_sibling(fit, message.depth)[build] < job.config.min_node_rows).any():
                raise MalformedMessage("a node to sum, or its sibling, has fewer rows than min_node_rows")
        entered = self._round = state.at_level(message, fit, routed, build)
        try:
            return self.cipher.answer(message, entered, fit.of(build))
        except VeilBoostError:  # a request that the cipher refuses changes no state
            self._round = state
            raise

    def _split(self, message: messages.SplitRequest, state: RoundState, job: PassiveJob) -> messages.SplitAnswer:
        if not state.summed or message.depth != state.depth or state.split_here:
            raise UnexpectedMessage("the split is for another level, or for one that was already split here")
        layout = state.block.layout
        refused = _native.refused_splits(
            message.position,
            message.tree,
            message.node,
            message.starts,
            message.handles,
            message.set_starts,
            len(message.set_bins),
            state.fit.counts,
            state.node,
            state.fit.group,
            state.number * job.trees_per_round,
            message.depth > 0,
            job.config.min_node_rows,
            2 * layout.slots,
        )
        if refused:
            raise MalformedMessage(REFUSED[refused])
        handles = message.handles if state.shuffle.identity else state.shuffle.own_handles(message.handles)
        if len(handles) > len(message.position):
            # Among tied handles the owner takes its lowest column, then the lowest threshold.
            message = replace(message, handles=handles)
            handles = np.minimum.reduceat(handles, message.starts[:-1])
        splits = state.block.splits_of(handles, _sets_of(message, handles, layout) if layout.has_sets else NO_SETS)
        position = message.position.astype(np.int64)
        rules = state.block.rules_of(splits, state.bins, position)
        self._rules.note(message.tree, message.node, rules, state.columns)
        taken = messages.NO_INTS
        if message.ask_taken:
            ties = itertools.pairwise(message.starts.tolist())
            first = [low + int(message.handles[low:high].argmin()) for low, high in ties]
            taken = np.array(first, dtype=np.int32)
        return messages.SplitAnswer(*state.split(position, splits), taken=taken)

    def _next_assignments(self, message: messages.AssignmentsRequest, state: RoundState) -> messages.SplitAnswer:
        piece = None if message.depth != state.depth else next(state.unsent, None)
        if piece is None:
            raise UnexpectedMessage("there are no more left/right assignments to send")
        return messages.SplitAnswer(*piece)

    def _more_assignments(self, message: messages.MoreAssignments, state: RoundState) -> Done:
        if not state.summed or message.depth != state.depth + 1:
            raise UnexpectedMessage("the left/right assignments are of another level")
        state.receive(message)
        return Done()


def _bits(packed: UInt8Array, count: int) -> UInt8Array:
    if len(packed) != (count + 7) // 8:
        raise MalformedMessage("the packed bits are for another number of rows")
    return np.unpackbits(packed, count=count)


def _sets_of(message: messages.SplitRequest, handles: Int32Array, layout: BinLayout) -> Sets:
    """The bins that go left by the chosen handle of each node."""
    sets = Sets(message.set_starts, message.set_bins)
    if len(message.handles) > len(handles):  # handles tie
        chosen: list[Int32Array] = []
        for low, high in itertools.pairwise(message.starts.tolist()):
            at = low + int(message.handles[low:high].argmin())
            chosen.append(sets.bins[sets.starts[at] : sets.starts[at + 1]])
        starts = np.cumsum([0, *(len(members) for members in chosen)], dtype=np.int32)
        sets = Sets(starts, np.concatenate(chosen))
    if not _native.sets_fit(handles, layout.offsets, layout.missing, layout.kind, *sets):
        raise MalformedMessage("a split names categories that do not exist, or one twice")
    return sets


passive_by = partial(role_of, VerticalPassive)
