"""A run again, from messages alone: which rows stood in which node, level by level, as either side of it can tell."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from veilboost.audit.view import View
from veilboost.boost.rows import RowGroups
from veilboost.protocols.vertical.messages import (
    BeginRound,
    BeginTraining,
    MoreSides,
    ResumeTraining,
    SidesRequest,
    SplitAnswer,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.types import BoolArray, Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.message import Done, Message


@dataclass
class ReplayedLevel:
    """A level: its rows by node, what was asked, all that was said until its nodes were split, and the split.

    `request` belongs to the active party, `messages` are all that followed in both directions, split messages apart.
    """

    request: StatisticsRequest
    fit: RowGroups
    follow: RowGroups
    messages: list[Message] = field(default_factory=list[Message])
    split_request: SplitRequest | None = None
    split_answer: SplitAnswer | None = None

    @property
    def answer(self) -> Message:
        """What the passive party answered first."""
        return self.messages[0]

    @property
    def build(self) -> RowGroups:
        """The nodes that were asked about."""
        return self.fit.of(self.request.build.astype(np.int64))

    def sides(self) -> Iterator[tuple[int, int, Int32Array, Int32Array]]:
        """(tree, node, rows that go left, rows that go right) of every node that the passive party split."""
        if self.split_request is None or self.split_answer is None:
            return
        position = self.split_request.position.astype(np.int64)
        pairs = [
            _cut(groups.of(position), bits)
            for groups, bits in ((self.fit, self.split_answer.fit_left), (self.follow, self.split_answer.follow_left))
        ]
        for k, (tree, node) in enumerate(zip(self.split_request.tree, self.split_request.node, strict=True)):
            left, right = (np.concatenate([pair[side][k] for pair in pairs]) for side in (0, 1))
            yield int(tree), int(node), left, right


@dataclass
class ReplayedRound:
    """A round: what opened it and its levels."""

    opening: BeginRound
    fit: Int32Array
    trees: int
    levels: list[ReplayedLevel] = field(default_factory=list[ReplayedLevel])

    @property
    def number(self) -> int:
        return self.opening.number


def rounds(view: View, peer: PartyName) -> list[ReplayedRound]:
    """The rounds of a vertical job as the conversation with one peer tells them.

    The active party names `peer` one of its passive parties, a passive party the active one: both hear the same.
    """
    found: dict[int, ReplayedRound] = {}
    trees, current = 1, None
    before: list[MoreSides] = []
    for message in view.with_peer(peer):
        level = current.levels[-1] if current is not None and current.levels else None
        if isinstance(message, BeginTraining):
            trees = message.trees_per_round
        elif isinstance(message, ResumeTraining):
            found = {number: one for number, one in found.items() if number * trees < message.trees}
        elif isinstance(message, BeginRound):
            current = found[message.number] = _opened(message, view.rows, trees)
        elif isinstance(message, StatisticsRequest) and current is not None:
            current.levels.append(_entered(_joined(before, message), current, view.rows))
            before = []
        elif isinstance(message, MoreSides):
            before.append(message)
        elif isinstance(message, SplitRequest) and level is not None:
            level.split_request = message
        elif isinstance(message, SplitAnswer) and level is not None:
            level.split_answer = message if level.split_answer is None else _joined([level.split_answer], message)
        elif level is not None and not isinstance(message, SidesRequest | Done):
            level.messages.append(message)
    return [found[number] for number in sorted(found)]


def sides_of(view: View, peer: PartyName) -> dict[tuple[int, int], tuple[Int32Array, Int32Array]]:
    """Left and right rows of every node (tree, node) that the passive party of this conversation split."""
    return {
        (tree, node): (left, right)
        for one in rounds(view, peer)
        for level in one.levels
        for tree, node, left, right in level.sides()
    }


def foreign_sides(view: View, peer: PartyName) -> list[tuple[Int32Array, Int32Array]]:
    """Left and right rows of every node that the passive party of this conversation did not split.

    It is told them because it keeps rows by node too; of the last level of a tree nobody tells it.
    """
    found: list[tuple[Int32Array, Int32Array]] = []
    for one in rounds(view, peer):
        for above, level in itertools.pairwise(one.levels):
            asked = above.split_request
            own = set[int]() if asked is None else set(asked.position.tolist())
            for at, place in enumerate(level.request.split.tolist()):
                if place not in own:
                    sides = [
                        np.concatenate([each.rows[each.begin[k] : each.end[k]] for each in (level.fit, level.follow)])
                        for k in (2 * at, 2 * at + 1)
                    ]
                    found.append((sides[0], sides[1]))
    return found


def _opened(opening: BeginRound, rows: int, trees: int) -> ReplayedRound:
    fit = np.arange(rows, dtype=np.int32)
    if len(opening.fit):
        fit = fit[_bits(opening.fit, rows)]
    return ReplayedRound(opening, fit, trees)


_Told = TypeVar("_Told", StatisticsRequest, SplitAnswer)


def _joined(before: Sequence[MoreSides | SplitAnswer], last: _Told) -> _Told:
    """The last of several messages, with the sides of all: their pieces are whole bytes."""
    told = (*before, last)
    return replace(
        last,
        fit_left=np.concatenate([each.fit_left for each in told]),
        follow_left=np.concatenate([each.follow_left for each in told]),
    )


def _entered(request: StatisticsRequest, current: ReplayedRound, rows: int) -> ReplayedLevel:
    if not current.levels or request.depth == 0:
        follow = np.setdiff1d(np.arange(rows, dtype=np.int32), current.fit).astype(np.int32)
        return ReplayedLevel(request, RowGroups.root(current.fit, current.trees), RowGroups.root(follow, current.trees))
    above = current.levels[-1]
    split = request.split.astype(np.int64)
    own, answer = np.empty(0, dtype=np.int64), above.split_answer
    if above.split_request is not None and answer is not None:
        own = above.split_request.position.astype(np.int64)
    is_own = np.isin(split, own)
    fit = _children(above.fit.of(split), is_own, None if answer is None else answer.fit_left, request.fit_left)
    told = None if answer is None else answer.follow_left
    return ReplayedLevel(request, fit, _children(above.follow.of(split), is_own, told, request.follow_left))


def _children(groups: RowGroups, own: BoolArray, answered: UInt8Array | None, told: UInt8Array) -> RowGroups:
    here = int(groups.counts[own].sum())
    parts = [(~own, _bits(told, groups.size - here).view(np.uint8))]
    if answered is not None:
        parts.append((own, _bits(answered, here).view(np.uint8)))
    return groups.split(groups.laid(parts))


def _cut(groups: RowGroups, packed: UInt8Array) -> tuple[list[Int32Array], list[Int32Array]]:
    """The left and the right rows of each node."""
    listed, left = groups.listed(), _bits(packed, groups.size)
    edges: Int64Array = np.cumsum(groups.counts)[:-1]
    parts = list(zip(np.split(listed, edges), np.split(left, edges), strict=True))
    return [rows[is_left] for rows, is_left in parts], [rows[~is_left] for rows, is_left in parts]


def _bits(packed: UInt8Array, count: int) -> BoolArray:
    return np.unpackbits(packed, count=count).astype(np.bool_)
