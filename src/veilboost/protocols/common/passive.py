"""The passive side of the vertical level loop: everything but how statistics are answered."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any

import numpy as np

from veilboost.boost.columns import ColumnBlock, LevelBins, Rule, Split
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleParameter, MalformedMessage, UnexpectedMessage
from veilboost.model.part import SplitRecords
from veilboost.protocols.api import PassiveContext, PassiveSide
from veilboost.protocols.common.messages import (
    BeginRound,
    BeginTraining,
    ColumnsOffered,
    EndTraining,
    SplitAnswer,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.types import BoolArray, Int32Array, UInt8Array
from veilboost.wire.message import Done, Message

_NO_BITS = np.empty(0, dtype=np.uint8)


class VerticalPassive(PassiveSide):
    """Bins its columns, follows the rows through the tree, and splits nodes when told to.

    A request is checked whole before anything changes, so a refused one leaves no trace.
    """

    def __init__(self, context: PassiveContext) -> None:
        self.context = context
        self._rules: dict[tuple[int, int], Rule] = {}
        self._block: ColumnBlock | None = None
        self._round: RoundState | None = None
        self.trees_per_round = 0
        self._finished = False

    # --- what a protocol supplies ------------------------------------------------------------------------

    @abstractmethod
    def open_round(self, message: BeginRound) -> None:
        """Take in what a round brings beside sampling."""

    @abstractmethod
    def statistics(self, block: ColumnBlock, bins: LevelBins, build: RowGroups) -> Message:
        """Answer a level's request for these nodes."""

    # --- requests ---------------------------------------------------------------------------------------

    def handle(self, message: Message) -> Message:
        if isinstance(message, BeginTraining):
            return self._begin_training(message)
        if self._block is None or self._finished:
            raise UnexpectedMessage(f"{message.type_name()} came outside a job")
        if isinstance(message, BeginRound):
            return self._begin_round(message, self._block)
        if isinstance(message, EndTraining):
            return self._end_training(message)
        if self._round is None:
            raise UnexpectedMessage(f"{message.type_name()} came before the first round")
        if isinstance(message, StatisticsRequest):
            return self._statistics(message, self._round)
        if isinstance(message, SplitRequest):
            return self._split(message, self._round)
        raise UnexpectedMessage(f"{message.type_name()} is not a request to a passive party")

    def records(self) -> SplitRecords:
        if not self._finished:
            raise UnexpectedMessage("the job has not ended")
        return SplitRecords.of(self._rules)

    def _begin_training(self, message: BeginTraining) -> ColumnsOffered:
        if self._block is not None:
            raise UnexpectedMessage("the job has already begun")
        rows = self.context.rows
        if message.rows != rows or not 1 <= message.trees_per_round <= 10_000:
            raise MalformedMessage("the job has another number of rows, or an impossible number of classes")
        if len(message.weights) not in (0, rows):
            raise MalformedMessage("there are not as many weights as rows")
        if not (np.isfinite(message.weights).all() and (message.weights >= 0).all()):
            raise MalformedMessage("a weight is negative or not finite")
        try:
            values: Any = json.loads(message.config)
            config = TrainingConfig.from_dict(values)
        except (ValueError, TypeError, AttributeError) as error:
            if isinstance(error, ImpossibleParameter):
                raise
            raise MalformedMessage("the job's parameters cannot be read") from error
        held_out = _bits(message.held_out, rows) if len(message.held_out) else None
        self._block = ColumnBlock.build(
            self.context.columns,
            rows,
            config,
            message.weights if len(message.weights) else None,
            None if held_out is None else np.flatnonzero(held_out == 0).astype(np.int32),
            self.context.threads,
        )
        self.trees_per_round = message.trees_per_round
        layout = self._block.layout
        return ColumnsOffered(layout.offsets, layout.missing, layout.kind)

    def _begin_round(self, message: BeginRound, block: ColumnBlock) -> Done:
        rows = np.arange(self.context.rows, dtype=np.int32)
        columns = None
        if not message.all_columns:
            columns = message.columns
            inside = len(columns) == 0 or (columns.min() >= 0 and columns.max() < block.layout.features)
            if not inside or len(np.unique(columns)) != len(columns):
                raise MalformedMessage("the round asks for columns that are not there")
            block = block.subset(columns)
        fit, follow = rows, rows[:0]
        if len(message.fit):
            mask = _bits(message.fit, len(rows)).astype(np.bool_)
            fit, follow = rows[mask], rows[~mask]
        self.open_round(message)
        groups = self.trees_per_round
        self._round = RoundState(
            message.number,
            block,
            columns,
            RowGroups.root(fit, groups),
            RowGroups.root(follow, groups),
        )
        return Done()

    def _end_training(self, message: EndTraining) -> Done:
        self._rules = {key: rule for key, rule in self._rules.items() if key[0] < message.trees}
        self._round = None
        self._finished = True
        return Done()

    def _statistics(self, message: StatisticsRequest, state: RoundState) -> Message:
        if message.depth != state.depth + (1 if state.summed else 0):
            raise UnexpectedMessage("the request is for another level")
        fit, follow = state.fit, state.follow
        if state.summed:
            fit, follow = state.children(message)
        elif len(message.split):
            raise UnexpectedMessage("no level was split yet")
        build = message.build.astype(np.int64)
        if len(build) and (build.min() < 0 or build.max() >= fit.nodes):
            raise MalformedMessage("a node to sum is not in the level")
        state.enter(message.depth, fit, follow)
        return self.statistics(state.block, state.bins, fit.of(build))

    def _split(self, message: SplitRequest, state: RoundState) -> SplitAnswer:
        if not state.summed or message.depth != state.depth:
            raise UnexpectedMessage("the split is for another level")
        position = message.position.astype(np.int64)
        count = len(position)
        if len(message.tree) != count or len(message.node) != count:
            raise MalformedMessage("a split's arrays have different lengths")
        if count and (position.min() < 0 or position.max() >= state.fit.nodes or (np.diff(position) <= 0).any()):
            raise MalformedMessage("a node to split is not in the level, or named twice")
        handles = _ragged(message.starts, message.handles, count)
        sets = _ragged(message.set_starts, message.set_bins, len(message.handles))
        splits: list[Split] = []
        for k, tied in enumerate(handles):
            if not len(tied) or tied.min() < 0 or tied.max() >= 2 * state.block.layout.slots:
                raise MalformedMessage("a split names a candidate that is not there")
            first = int(tied.argmin())  # the lowest column, then the lowest cut
            splits.append(state.split_of(int(tied[first]), sets[int(message.starts[k]) + first]))
        for k, split in enumerate(splits):
            rule = state.block.rule_of(split, state.bins.cuts_at(int(position[k])))
            self._rules[int(message.tree[k]), int(message.node[k])] = rule.for_column(state.columns)
        fit_left = state.block.route(state.bins, state.fit.of(position), splits)
        follow_left = state.block.route(state.bins, state.follow.of(position), splits)
        state.remember(position, fit_left, follow_left)
        return SplitAnswer(np.packbits(fit_left), np.packbits(follow_left))


class RoundState:
    """Where the rows are in the trees of the current round."""

    def __init__(
        self, number: int, block: ColumnBlock, columns: Int32Array | None, fit: RowGroups, follow: RowGroups
    ) -> None:
        self.number = number
        self.block = block
        self.columns = columns
        self.fit = fit
        self.follow = follow
        self.depth = 0
        self.summed = False
        self._own = np.zeros(0, dtype=np.bool_)
        self._own_fit_left = self._own_follow_left = _NO_BITS

    def enter(self, depth: int, fit: RowGroups, follow: RowGroups) -> None:
        """A level begins: these are its rows, and no node of it is split yet."""
        self.depth, self.fit, self.follow, self.summed = depth, fit, follow, True
        self.bins = self.block.level_bins(fit, follow)
        self._own = np.zeros(fit.nodes, dtype=np.bool_)
        self._own_fit_left = self._own_follow_left = _NO_BITS

    def remember(self, position: np.ndarray[Any, Any], fit_left: UInt8Array, follow_left: UInt8Array) -> None:
        """These nodes were split here; where their rows went need not be told."""
        self._own[position] = True
        self._own_fit_left, self._own_follow_left = fit_left, follow_left

    def split_of(self, handle: int, left_set: Int32Array) -> Split:
        feature, _, _ = self.block.layout.locate(handle)
        values = int(self.block.layout.offsets[feature + 1] - self.block.layout.offsets[feature])
        values -= int(self.block.layout.missing[feature])
        if len(left_set) and (left_set.min() < 0 or left_set.max() >= values):
            raise MalformedMessage("a split names categories that are not there")
        return self.block.split_of(handle, left_set)

    def children(self, message: StatisticsRequest) -> tuple[RowGroups, RowGroups]:
        """The rows of the next level, from the bits split here and those told."""
        split = message.split.astype(np.int64)
        inside = len(split) == 0 or (split.min() >= 0 and split.max() < self.fit.nodes)
        if not inside or (np.diff(split) <= 0).any():
            raise MalformedMessage("a node that was split is not in the level, or named twice")
        own = self._own[split]
        if int(own.sum()) != int(self._own.sum()):
            raise MalformedMessage("a node that was split here is missing")
        return (
            _merge(self.fit.of(split), own, self._own_fit_left, message.fit_left),
            _merge(self.follow.of(split), own, self._own_follow_left, message.follow_left),
        )


def _merge(groups: RowGroups, own: BoolArray, own_left: UInt8Array, told: UInt8Array) -> RowGroups:
    mask = groups.mask_of(own)
    left = np.empty(len(mask), dtype=np.uint8)
    left[mask] = own_left
    left[~mask] = _bits(told, int((~mask).sum()))
    return groups.split(left)


def _bits(packed: UInt8Array, count: int) -> UInt8Array:
    if len(packed) != (count + 7) // 8:
        raise MalformedMessage("there are bits for another number of rows")
    return np.unpackbits(packed, count=count)


def _ragged(starts: Int32Array, values: Int32Array, count: int) -> list[Int32Array]:
    fits = len(starts) == count + 1 and starts[0] == 0 and starts[-1] == len(values)
    if not fits or (np.diff(starts) < 0).any():
        raise MalformedMessage("a list of lists does not fit together")
    return [values[a:b] for a, b in zip(starts[:-1], starts[1:], strict=True)]
