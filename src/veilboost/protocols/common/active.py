"""The active side of the vertical level loop: everything but how foreign statistics are obtained."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from veilboost.boost.columns import Rule, Split
from veilboost.boost.grower import Choices, Level, Round, best_choices
from veilboost.boost.layout import BinLayout
from veilboost.boost.split import Candidates, candidates_from_sums, leaf_weights
from veilboost.errors import MalformedMessage
from veilboost.fixedpoint import Scale
from veilboost.model.part import SplitRecords
from veilboost.protocols.api import ActiveContext, ActiveSide
from veilboost.protocols.common.messages import (
    BeginRound,
    BeginTraining,
    ColumnsOffered,
    EndTraining,
    SplitAnswer,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.protocols.common.sums import LevelSums
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
        self._rules: dict[tuple[int, int], Rule] = {}

    # --- what a protocol supplies ------------------------------------------------------------------------

    @abstractmethod
    def round_message(self, start: Round, party: PartyName, opening: BeginRound) -> BeginRound:
        """What opens a round at a passive party; a protocol adds its own content to `opening`."""

    @abstractmethod
    def ask_statistics(self, requests: Mapping[PartyName, StatisticsRequest]) -> Mapping[PartyName, Pending]:
        """Send the level's requests."""

    @abstractmethod
    def read_statistics(
        self, level: Level, pending: Mapping[PartyName, Pending]
    ) -> Mapping[PartyName, Candidates]:
        """Turn the answers into candidates, a row per open node."""

    # --- the job ----------------------------------------------------------------------------------------

    def begin_training(self, held_out: BoolArray | None, bin_weights: Float64Array | None) -> Sequence[int]:
        opening = BeginTraining(
            config=json.dumps(self.config.to_dict()),
            rows=self.context.rows,
            trees_per_round=self.context.trees_per_round,
            held_out=_NO_BITS if held_out is None else np.packbits(held_out),
            weights=np.empty(0) if bin_weights is None else bin_weights,
        )
        answers = self.context.peers.ask({name: opening for name in self.context.peers.names}, ColumnsOffered)
        for name, answer in answers.items():
            self.layouts[name] = _checked_layout(name, answer)
        self.layouts[self.context.party] = self.context.block.layout
        return [self.layouts[name].features for name in self.context.order]

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
        messages = {}
        for name in self.context.peers.names:
            chosen = columns[name]
            opening = BeginRound(start.number, fit, chosen is None, _NO_INTS if chosen is None else chosen)
            messages[name] = self.round_message(start, name, opening)
        self.context.peers.ask(messages, Done)
        self._last_split: tuple[Choices, dict[PartyName, tuple[UInt8Array, UInt8Array]]] | None = None

    # --- the level --------------------------------------------------------------------------------------

    def candidates(self, level: Level) -> Sequence[Candidates]:
        split = _NO_INTS
        bits = {name: (_NO_BITS, _NO_BITS) for name in self.context.peers.names}
        if level.depth > 0 and self._last_split is not None:
            split = self._last_split[0].position.astype(np.int32)
            bits = self._last_split[1]
        build = level.build.astype(np.int32)
        pending = self.ask_statistics(
            {
                name: StatisticsRequest(level.depth, split, *bits[name], build)
                for name in self.context.peers.names
            }
        )
        self.bins = self.block.level_bins(level.fit, level.follow)
        built = self.block.histogram(self.bins, self.start.gradients, level.fit.of(level.build))
        own = candidates_from_sums(
            self._own_sums.complete(level, built),
            self.block.layout,
            level.totals[level.open],
            self.start.scale,
            self.config,
            self.context.threads,
        )
        foreign = self.read_statistics(level, pending)
        return [own if name == self.context.party else foreign[name] for name in self.context.order]

    def select(self, level: Level, offers: Sequence[Candidates]) -> Choices:
        return best_choices(level, offers, self.config.gamma)

    def split(
        self, level: Level, offers: Sequence[Candidates], choices: Choices
    ) -> tuple[UInt8Array, UInt8Array]:
        names = self.context.order
        pending = self.context.peers.send(
            {
                name: self._split_request(level, offers[owner], choices, owner)
                for owner, name in enumerate(names)
                if owner != self.owner and (choices.owner == owner).any()
            }
        )
        fit, follow = level.fit.of(choices.position), level.follow.of(choices.position)
        fit_left = np.empty(int(fit.counts.sum()), dtype=np.uint8)
        follow_left = np.empty(int(follow.counts.sum()), dtype=np.uint8)
        mine = choices.owner == self.owner
        if mine.any():
            own = self._split_own(level, offers[self.owner], choices, mine)
            fit_left[fit.mask_of(mine)], follow_left[follow.mask_of(mine)] = own
        for name, answer in self.context.peers.collect(pending, SplitAnswer).items():
            theirs = choices.owner == names.index(name)
            for whole, groups, packed in (
                (fit_left, fit, answer.fit_left),
                (follow_left, follow, answer.follow_left),
            ):
                whole[groups.mask_of(theirs)] = _unpack(
                    name, packed, int(groups.counts[theirs].sum())
                )
        told: dict[PartyName, tuple[UInt8Array, UInt8Array]] = {}
        for owner, name in enumerate(names):
            others = choices.owner != owner
            told[name] = (
                np.packbits(fit_left[fit.mask_of(others)]),
                np.packbits(follow_left[follow.mask_of(others)]),
            )
        self._last_split = choices, told
        return fit_left, follow_left

    def leaf_weights(self, totals: Int64Array, scale: Scale) -> Float64Array:
        return leaf_weights(totals, scale, self.config)

    # --- parts of a split -------------------------------------------------------------------------------

    def _tree_of(self, level: Level, positions: Int64Array) -> Int32Array:
        first = self.start.number * self.context.trees_per_round
        return (first + level.fit.group[positions]).astype(np.int32)

    def _split_own(
        self, level: Level, offer: Candidates, choices: Choices, mine: BoolArray
    ) -> tuple[UInt8Array, UInt8Array]:
        positions = choices.position[mine]
        rows_of_offer = np.searchsorted(level.open, positions)
        splits: list[Split] = []
        for k, at in enumerate(np.flatnonzero(mine)):
            handle = int(choices.tied[at][0])  # handles are sorted: lowest column, then lowest cut
            split = self.block.split_of(handle, offer.left_set(int(rows_of_offer[k]), handle))
            splits.append(split)
            rule = self.block.rule_of(split, self.bins.cuts_at(int(positions[k])))
            key = int(self._tree_of(level, positions[k : k + 1])[0]), int(level.node[positions[k]])
            self._rules[key] = rule.for_column(self.columns_of_round)
        return (
            self.block.route(self.bins, level.fit.of(positions), splits),
            self.block.route(self.bins, level.follow.of(positions), splits),
        )

    def _split_request(self, level: Level, offer: Candidates, choices: Choices, owner: int) -> SplitRequest:
        at = np.flatnonzero(choices.owner == owner)
        positions = choices.position[at]
        tied = [choices.tied[k] for k in at]
        sets = [
            offer.left_set(row, int(handle))
            for row, handles in zip(np.searchsorted(level.open, positions).tolist(), tied, strict=True)
            for handle in handles
        ]
        return SplitRequest(
            depth=level.depth,
            tree=self._tree_of(level, positions),
            node=level.node[positions],
            position=positions.astype(np.int32),
            starts=_starts(tied),
            handles=np.concatenate(tied),
            set_starts=_starts(sets),
            set_bins=np.concatenate(sets),
        )


def _starts(parts: Sequence[Int32Array]) -> Int32Array:
    starts = np.zeros(len(parts) + 1, dtype=np.int32)
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return starts


def _unpack(name: PartyName, packed: UInt8Array, count: int) -> UInt8Array:
    if len(packed) != (count + 7) // 8:
        raise MalformedMessage(f"{name} sent left/right bits for another number of rows")
    return np.unpackbits(packed, count=count)


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
