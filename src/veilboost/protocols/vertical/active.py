"""The active side of the vertical level loop: everything but how foreign statistics are obtained."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, zip_longest

import numpy as np

from veilboost.boost.columns import Rule, in_all_columns
from veilboost.boost.grower import Choices, Level, Round, best_choices
from veilboost.boost.layout import BinLayout
from veilboost.boost.rows import RowGroups
from veilboost.boost.sides import Sides
from veilboost.boost.split import Candidates, candidates_from_sums, leaf_weights, left_sums
from veilboost.errors import InconsistentSplit, MalformedMessage
from veilboost.fixedpoint import MAX_BITS, Scale, weight_bits
from veilboost.model.part import SplitRecords
from veilboost.protocols.vertical.messages import (
    BeginRound,
    BeginTraining,
    ColumnsOffered,
    EndTraining,
    MoreSides,
    ResumeTraining,
    SidesRequest,
    SplitAnswer,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.protocols.vertical.roles import ActiveContext, ActiveSide
from veilboost.protocols.vertical.sums import LevelSums
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Pending
from veilboost.wire.message import Done

_NO_BITS = np.empty(0, dtype=np.uint8)
_NO_INTS = np.empty(0, dtype=np.int32)


class VerticalActive(ActiveSide):
    """Asks every passive party for candidates, selects the best, has its owner split, and tells the others."""

    def __init__(self, context: ActiveContext) -> None:
        self.context = context
        self.config = context.config
        self.derives_siblings = context.config.proposal == "global"
        self.owner = context.order.index(context.party)
        self.layouts: dict[PartyName, BinLayout] = {}
        self.known_sums: dict[PartyName, Int64Array] = {}  # of the level's open nodes, where a protocol has them
        self._asked: dict[PartyName, SplitRequest] = {}
        self._rules: dict[tuple[int, int], Rule] = {}

    # --- what a protocol supplies ------------------------------------------------------------------------

    @abstractmethod
    def round_message(self, start: Round, party: PartyName, opening: BeginRound) -> BeginRound:
        """What opens a round at a passive party; a protocol adds its own content to `opening`."""

    @abstractmethod
    def ask_statistics(self, requests: Mapping[PartyName, StatisticsRequest]) -> Mapping[PartyName, Pending]:
        """Send the level's requests."""

    @abstractmethod
    def read_statistics(self, level: Level, pending: Mapping[PartyName, Pending]) -> Mapping[PartyName, Candidates]:
        """Turn the answers into candidates, a row per open node."""

    # --- the job ----------------------------------------------------------------------------------------

    def begin_training(self, held_out: BoolArray | None, bin_weights: Float64Array | None) -> Sequence[int]:
        opening = BeginTraining(
            config=json.dumps(self.config.to_dict()),
            rows=self.context.rows,
            trees_per_round=self.context.trees_per_round,
            weight_bits=min(weight_bits(self.context.largest_weight), MAX_BITS),
            held_out=_NO_BITS if held_out is None else np.packbits(held_out),
            weights=np.empty(0) if bin_weights is None else bin_weights,
        )
        answers = self.context.peers.ask(dict.fromkeys(self.context.peers.names, opening), ColumnsOffered)
        for name, answer in answers.items():
            self.layouts[name] = _checked_layout(name, answer)
        self.layouts[self.context.party] = self.context.block.layout
        return [self.layouts[name].features for name in self.context.order]

    def resume(self, records: SplitRecords, trees: int) -> None:
        self._rules = {key: rule for key, rule in records.rules().items() if key[0] < trees}
        self.context.peers.ask({name: ResumeTraining(trees) for name in self.context.peers.names}, Done)

    def records(self) -> SplitRecords:
        return SplitRecords.of(self._rules)

    def end_training(self, trees: int) -> SplitRecords:
        self.context.peers.ask({name: EndTraining(trees) for name in self.context.peers.names}, Done)
        return SplitRecords.of({key: rule for key, rule in self._rules.items() if key[0] < trees})

    # --- the round --------------------------------------------------------------------------------------

    def begin_round(self, start: Round) -> None:
        self.start = start
        columns = dict(zip(self.context.order, start.columns, strict=True))
        own = columns[self.context.party]
        self.block = self.context.block if own is None else self.context.block.subset(own)
        self.columns_of_round = own
        self.round_layouts = {
            name: layout if (chosen := columns[name]) is None else layout.subset(chosen)
            for name, layout in self.layouts.items()
        }
        self._own_sums = LevelSums()
        fit = _NO_BITS
        if len(start.follow):
            mask = np.zeros(start.gradients.shape[1], dtype=np.bool_)
            mask[start.fit] = True
            fit = np.packbits(mask)
        messages: dict[PartyName, BeginRound] = {}
        for name in self.context.peers.names:
            chosen = columns[name]
            opening = BeginRound(start.number, fit, chosen is None, _NO_INTS if chosen is None else chosen)
            messages[name] = self.round_message(start, name, opening)
        if self.context.exact is not None:
            self.context.exact.before_round(self.config, start.number, self.context.rows, self.block.layout.slots)
        self.context.peers.ask(messages, Done)
        self._last_split: LastSplit | None = None

    # --- the level --------------------------------------------------------------------------------------

    def candidates(self, level: Level) -> Sequence[Candidates]:
        build = level.build.astype(np.int32)
        split, told = self._tell_sides(level.depth)
        requests = {
            name: StatisticsRequest(level.depth, split, *told[name], build)
            for name in self.context.order
            if name != self.context.party
        }
        pending = self.ask_statistics(requests)
        self.bins = self.block.level_bins(level.fit, level.follow)
        built = self.block.histogram(self.bins, self.start.gradients, level.fit.of(level.build))
        own = self.score(self._own_sums.complete(level, built), self.block.layout, level.totals[level.open])
        foreign = self.read_statistics(level, pending)
        # A party that is not waited for, where a protocol has a clock, offers nothing.
        foreign = {name: Candidates.none(len(level.open)) for name in requests} | dict(foreign)
        return [own if name == self.context.party else foreign[name] for name in self.context.order]

    def score(self, sums: Int64Array, layout: BinLayout, totals: Int64Array) -> Candidates:
        """Candidates from sums of the open nodes that are known here."""
        return candidates_from_sums(sums, layout, totals, self.start.scale, self.config, self.context.threads)

    def select(self, level: Level, offers: Sequence[Candidates]) -> Choices:
        return best_choices(level, offers, self.config.gamma)

    def split(self, level: Level, offers: Sequence[Candidates], choices: Choices) -> tuple[Sides, Sides]:
        names = self.context.order
        winners = set(choices.owner.tolist())
        self._asked = {
            name: self._split_request(level, offers[owner], choices, owner)
            for owner, name in enumerate(names)
            if owner != self.owner and owner in winners
        }
        pending = self.context.peers.send(self._asked)
        last = LastSplit(choices, level.fit.of(choices.position), level.follow.of(choices.position))
        mine = np.flatnonzero(choices.owner == self.owner)
        if len(mine):
            last.take(self.owner, *self._split_own(level, offers[self.owner], choices, mine))
        for name, answer in self.context.peers.collect(pending, SplitAnswer).items():
            last.take(names.index(name), *self._hear(level.depth, last, name, answer))
        self._last_split = last
        return last.left

    def check_split(self, level: Level, choices: Choices, children: Level) -> None:
        """The rows that a party sends left must add up to the sums by which its candidate won.

        A party that answers with other sums, to learn from whether it wins, is found out when it does.
        """
        left = self.left_totals(children)
        for name, request in self._asked.items():
            if name not in self.known_sums:  # of this protocol, or this tree, only gains are known
                continue
            found, layout = left[choices.owner == self.context.order.index(name)], self.round_layouts[name]
            nodes, starts = level.open.searchsorted(request.position), request.starts
            if len(request.handles) > len(nodes):  # ties: one of them was taken
                times = starts[1:] - starts[:-1]
                nodes, found = nodes.repeat(times), found.repeat(times, axis=0)
            sets: list[Int32Array] = []
            if layout.has_sets:
                sets = [request.set_bins[low:high] for low, high in pairwise(request.set_starts.tolist())]
            told, bins = left_sums(self.known_sums[name], layout, nodes, request.handles, sets)
            fits = (np.abs(told - found) <= self.tolerance(name, bins)).all(axis=1)
            if not np.logical_or.reduceat(fits, starts[:-1]).all():
                raise InconsistentSplit(
                    f"{name} sent rows left that do not add up to the sums by which its split was chosen"
                )

    def left_totals(self, children: Level) -> Int64Array:
        """The sums over the rows that went left, of each node that was split, as `known_sums` has them."""
        return children.totals[0::2]

    def tolerance(self, name: PartyName, bins: Int64Array) -> Int64Array | int:
        """How far sums over so many bins may be off, (candidates, 2): not at all where they are exact."""
        return 0

    def leaf_weights(self, totals: Int64Array, scale: Scale) -> Float64Array:
        return leaf_weights(totals, scale, self.config)

    # --- parts of a split -------------------------------------------------------------------------------

    def _tell_sides(self, depth: int) -> tuple[Int32Array, Mapping[PartyName, tuple[UInt8Array, UInt8Array]]]:
        """Tell every party where the rows of the level above went; the last piece goes with the level's request."""
        if self._last_split is None:
            return _NO_INTS, dict.fromkeys(self.context.peers.names, (_NO_BITS, _NO_BITS))
        split = self._last_split.choices.position.astype(np.int32)
        pieces = {name: self._last_split.untold(self.context.order.index(name)) for name in self.context.peers.names}
        last = {name: next(each) for name, each in pieces.items()}
        while following := {name: piece for name, each in pieces.items() if (piece := next(each, None)) is not None}:
            self.context.peers.ask({name: MoreSides(depth, split, *last[name]) for name in following}, Done)
            last |= following
        return split, last

    def _hear(self, depth: int, last: LastSplit, name: PartyName, answer: SplitAnswer) -> tuple[Sides, Sides]:
        """The sides that a party's answer tells, and the rest of it piece by piece."""
        fit, follow = (groups.heard() for groups in last.rows_of(self.context.order.index(name)))
        while True:
            try:
                fit, follow = fit.plus(answer.fit_left), follow.plus(answer.follow_left)
            except MalformedMessage:
                raise MalformedMessage(f"{name} sent left/right bits for another number of rows") from None
            if fit.complete and follow.complete:
                return fit.whole(), follow.whole()
            answer = self.context.peers.ask({name: SidesRequest(depth)}, SplitAnswer)[name]

    def _tree_of(self, level: Level, positions: Int64Array) -> Int32Array:
        first = self.start.number * self.context.trees_per_round
        return (first + level.fit.group[positions]).astype(np.int32)

    def _split_own(self, level: Level, offer: Candidates, choices: Choices, mine: Int64Array) -> tuple[Sides, Sides]:
        positions = choices.position[mine]
        handles = choices.handle[mine]
        sets = offer.left_sets(level.open.searchsorted(positions), handles) if self.block.layout.has_sets else []
        splits = self.block.splits_of(handles, sets)
        rules = self.block.rules_of(splits, self.bins, positions)
        keys = zip(self._tree_of(level, positions).tolist(), level.node[positions].tolist(), strict=True)
        for key, rule in zip(keys, rules, strict=True):
            self._rules[key] = in_all_columns(rule, self.columns_of_round)
        return (
            self.block.route(self.bins, level.fit.of(positions), splits),
            self.block.route(self.bins, level.follow.of(positions), splits),
        )

    def _split_request(self, level: Level, offer: Candidates, choices: Choices, owner: int) -> SplitRequest:
        at = (choices.owner == owner).nonzero()[0]
        positions, handles = choices.position[at], choices.handle[at]
        nodes = level.open.searchsorted(positions)
        starts = np.arange(len(at) + 1, dtype=np.int32)
        if offer.shuffled:  # only the owner knows which of equally good handles comes first
            tied = [
                offer.tied_with(node, handle) for node, handle in zip(nodes.tolist(), handles.tolist(), strict=True)
            ]
            starts, handles = _starts(tied), np.concatenate(tied)
            nodes = nodes.repeat(np.diff(starts))
        sets = offer.left_sets(nodes, handles) if self.round_layouts[self.context.order[owner]].has_sets else []
        return SplitRequest(
            depth=level.depth,
            tree=self._tree_of(level, positions),
            node=level.node[positions],
            position=positions.astype(np.int32),
            starts=starts,
            handles=handles,
            set_starts=_starts(sets) if sets else np.zeros(len(handles) + 1, dtype=np.int32),
            set_bins=np.concatenate(sets) if sets else _NO_INTS,
        )


class LastSplit:
    """Where the rows of the nodes just split go, as far as the owners have told."""

    def __init__(self, choices: Choices, fit: RowGroups, follow: RowGroups) -> None:
        self.choices = choices
        self._groups = fit, follow
        self._told: dict[int, tuple[Sides, Sides]] = {}

    def rows_of(self, owner: int) -> tuple[RowGroups, RowGroups]:
        """The fit and follow rows of this owner's nodes."""
        own = np.flatnonzero(self.choices.owner == owner)
        return self._groups[0].of(own), self._groups[1].of(own)

    def take(self, owner: int, fit_left: Sides, follow_left: Sides) -> None:
        self._told[owner] = fit_left, follow_left

    @cached_property
    def left(self) -> tuple[Sides, Sides]:
        """The sides of all fit rows and of all follow rows, when all owners have told."""
        fit, follow = (
            groups.laid([(self.choices.owner == owner, told[kind]) for owner, told in self._told.items()])
            for kind, groups in enumerate(self._groups)
        )
        return fit, follow

    def untold(self, owner: int) -> Iterator[tuple[UInt8Array, UInt8Array]]:
        """Pieces of the sides at nodes that this owner did not split itself, of fit and of follow rows."""
        others = self.choices.owner != owner
        fit, follow = (
            (groups if others.all() else groups.of(np.flatnonzero(others))).told(groups.take(others, whole))
            for groups, whole in zip(self._groups, self.left, strict=True)
        )
        return zip_longest(fit, follow, fillvalue=_NO_BITS)


def _starts(parts: Sequence[Int32Array]) -> Int32Array:
    starts = np.zeros(len(parts) + 1, dtype=np.int32)
    np.cumsum([part.size for part in parts], out=starts[1:])
    return starts


def _checked_layout(name: PartyName, offered: ColumnsOffered) -> BinLayout:
    widths = np.diff(offered.offsets)
    fits = (
        len(offered.offsets) == len(offered.missing) + 1 == len(offered.kind) + 1
        and (len(offered.offsets) == 0 or offered.offsets[0] == 0)
        and bool((widths > offered.missing).all())
        and bool((offered.missing <= 1).all() and (offered.kind <= 2).all())
    )
    if not fits:
        raise MalformedMessage(f"{name} offered columns whose bins do not fit together")
    return BinLayout(offered.offsets, offered.missing, offered.kind)
