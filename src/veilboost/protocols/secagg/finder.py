"""The split finder of `secagg`: uses sums over all participants; the server has no rows and no gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from veilboost.boost.columns import ColumnBlock, Rule
from veilboost.boost.grower import Choices, Level, LevelSums, Round, SplitFinder, best_choices
from veilboost.boost.limits import ColumnConstraints, round_limits
from veilboost.boost.objective import Objective
from veilboost.boost.rows import Assignments, RowGroups
from veilboost.boost.split import NO_LIMITS, Candidates, candidates_from_sums, leaf_weights, left_sums
from veilboost.config import TrainingConfig
from veilboost.errors import MalformedMessage
from veilboost.fixedpoint import Scale
from veilboost.protocols.secagg.messages import MaskedSums, SumsRequest
from veilboost.types import AnyArray, Float32Array, Float64Array, Int32Array, Int64Array, PartyName, UInt64Array
from veilboost.wire.message import Message

_NO_INTS = np.empty(0, dtype=np.int32)
_NO_WEIGHTS = np.empty(0, dtype=np.float32)
_NO_BITS = np.empty(0, dtype=np.uint8)

Ask: TypeAlias = Callable[[Message, type[Any]], Mapping[PartyName, Any]]


class RoundCut(Exception):
    """A participant was lost, and the job may go on without it: the round ends with what is known."""


@dataclass(eq=False)
class SummedNodes(RowGroups):
    """Nodes without rows. The number of rows is unknown; the sum of hessians, at least two, replaces it."""

    sums: Int64Array

    @staticmethod
    def make(group: Int32Array, sums: Int64Array) -> SummedNodes:
        return SummedNodes(_NO_INTS, np.zeros(len(group), dtype=np.int64), np.maximum(sums[:, 1], 2), group, sums)

    def of(self, nodes: Int64Array) -> SummedNodes:
        return SummedNodes.make(self.group[nodes], self.sums[nodes])

    def split(self, left: Assignments) -> SummedNodes:
        """Return the children; `left` are the sums of the left children, from `SecaggFinder.split`."""
        sums = np.empty((2 * self.nodes, 2), dtype=np.int64)
        sums[0::2], sums[1::2] = left, self.sums - left
        return SummedNodes.make(self.group.repeat(2), sums)

    def totals(self, gradients: Int32Array) -> Int64Array:
        return self.sums

    def smaller_totals(self, gradients: Int32Array) -> Int64Array:
        return self.sums[self.smaller()]

    def add_to(self, margin: Float64Array, weight: Float32Array) -> None:
        """Do nothing: participants hold the rows, and receive the weights by messages."""


class PendingResult(NamedTuple):
    """The result of a level to send to participants, in the order of the fields of `LevelResult`."""

    leaves: Int32Array = _NO_INTS
    weights: Float32Array = _NO_WEIGHTS
    position: Int32Array = _NO_INTS
    handles: Int32Array = _NO_INTS
    set_starts: Int32Array = np.zeros(1, dtype=np.int32)
    set_bins: Int32Array = _NO_INTS
    ends: Float32Array = _NO_WEIGHTS


class SecaggFinder(SplitFinder):
    """Requests the sums of a level, and sends its result with the next request.

    `block` has the cut points of the sampled columns, and no rows.
    """

    def __init__(
        self,
        ask: Ask,
        block: ColumnBlock,
        objective: Objective,
        config: TrainingConfig,
        threads: int,
        constraints: ColumnConstraints,
        logs: bool = False,
    ) -> None:
        """`logs`: keep the results of all levels in `results`."""
        self._ask, self._threads, self._logs = ask, threads, logs
        self._all, self._block, self._trees = block, block, objective.trees_per_round
        # As in `plain`: for Poisson the loss sets max_delta_step.
        self._config = replace(config, max_delta_step=objective.max_delta_step)
        self._constraints = constraints
        self._unsent, self._depth = PendingResult(), 0
        self.rules: dict[tuple[int, int], Rule] = {}
        self.cut = False  # whether the round was cut: no sums of its last level are known
        self.results: list[tuple[int, PendingResult]] = []  # of all levels, with their rounds, for those that return

    @property
    def derives_siblings(self) -> bool:
        return True

    def round(self, number: int, scale: Scale, columns: Int32Array | None) -> Round:
        """Return the start of `grow`: no rows, and roots whose sums `begin_round` requests."""
        nothing = np.empty((self._trees, 0, 2), dtype=np.int32)
        return Round(number, nothing, scale, cast(Int32Array, self), _NO_INTS, [columns])

    def take_unsent(self) -> PendingResult:
        """Return the result that was not sent yet, and mark it as sent."""
        unsent, self._unsent = self._unsent, PendingResult()
        if self._logs and len(unsent.leaves) + len(unsent.position):
            self.results.append((self._start.number, unsent))
        return unsent

    def begin_round(self, start: Round) -> None:
        self._start, (columns,), self.cut = start, start.columns, False
        self._block = self._all if columns is None else self._all.subset(columns)
        own = [self._constraints.subset(columns)]
        self._limits = round_limits(own, start.number, self._trees, start.scale, self._config)
        self._sums = LevelSums()
        self._built = self._ask_sums(0, np.arange(self._trees))

    def at_roots(self, groups: int) -> SummedNodes:
        """Return the roots for `grow`."""
        totals = self._built[:, : self._block.layout.offsets[1]].sum(axis=1)  # every row is in one bin of a column
        totals[:, 1] = np.maximum(totals[:, 1], 0)  # noise may make it negative
        return SummedNodes.make(np.arange(groups, dtype=np.int32), totals)

    def _ask_sums(self, depth: int, build: Int64Array) -> Int64Array:
        (columns,), scale = self._start.columns, self._start.scale
        request = SumsRequest(
            *self.take_unsent(),
            number=self._start.number,
            depth=depth,
            g_exponent=scale.g_exponent,
            h_exponent=scale.h_exponent,
            columns=_NO_INTS if columns is None else columns,
            build=build.astype(np.int32),
        )
        shape, self._depth = (len(build), self._block.layout.slots, 2), depth
        try:
            sums = added([each.sums for each in self._ask(request, MaskedSums).values()])
        except RoundCut:
            self.cut = True
            return np.zeros(shape, dtype=np.int64)
        if sums.shape != shape:
            raise MalformedMessage("the received sums are for other nodes or bins")
        return sums

    def candidates(self, level: Level) -> Sequence[Candidates]:
        if level.depth:
            self._built = self._ask_sums(level.depth, level.build)
        if self.cut:
            return []  # so no node splits
        self._known = self._sums.complete(level, self._built)
        layout, scale = self._block.layout, self._start.scale
        limits = NO_LIMITS if self._limits is None else self._limits.of(0, level)
        known, config, threads = self._known, self._config, self._threads
        return [
            candidates_from_sums(known, layout, level.totals, scale, config, threads, open=level.open, limits=limits)
        ]

    def select(self, level: Level, offers: Sequence[Candidates]) -> Choices:
        return best_choices(level, offers, self._config.gamma)

    def split(self, level: Level, offers: Sequence[Candidates], choices: Choices) -> tuple[RowGroups, RowGroups]:
        position, handles, layout = choices.position, choices.handle, self._block.layout
        if self._limits is not None:
            self._limits.split(choices, layout.locate(handles)[0])
        at = level.open.searchsorted(position)
        sets = offers[0].left_sets(at, handles)
        rules = self._block.rules_of(self._block.splits_of(handles, sets), self._block.shared_bins, position)
        rules = rules.in_all_columns(self._start.columns[0]).listed()
        trees = self._start.number * self._trees + level.fit.group[position]
        keys = zip(trees.tolist(), level.node[position].tolist(), strict=True)
        self.rules.update(zip(keys, rules, strict=True))
        self._unsent = self._unsent._replace(
            position=position.astype(np.int32),
            handles=handles,
            set_starts=sets.starts if len(sets.starts) else np.zeros(len(handles) + 1, dtype=np.int32),
            set_bins=sets.bins,
        )
        left: AnyArray = left_sums(self._known, layout, position, handles, sets)[0]
        return level.fit.of(position).split(left), level.routed

    def leaf_weights(self, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        weights = leaf_weights(level.totals[leaves], scale, self._config)
        if self._limits is not None:
            weights = self._limits.bounded(level, leaves, weights)
        scaled = (self._config.learning_rate * weights).astype(np.float32)
        if level.depth == self._depth:
            self._unsent = self._unsent._replace(leaves=leaves.astype(np.int32), weights=scaled)
        else:  # no sums were requested: all nodes are leaves, and the round ends
            self._unsent = self._unsent._replace(ends=scaled)
        return weights


def added(answers: list[UInt64Array]) -> Int64Array:
    """Return the sum of all answers modulo 2^64: masks cancel, and the true sum is small and may be negative."""
    if any(answer.shape != answers[0].shape for answer in answers):
        raise MalformedMessage("the participants' answers have different sizes")
    total = answers[0].copy()
    for answer in answers[1:]:
        total += answer
    return total.view(np.int64)
