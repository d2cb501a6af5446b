"""A run again, from messages alone: which rows stood in which node, level by level, as either side of it can tell."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from veilboost.audit.view import View
from veilboost.boost.grower import LEAF
from veilboost.boost.rows import RowGroups
from veilboost.fixedpoint import choose_scale, to_fixed
from veilboost.model.share import Skeleton, SplitRecords
from veilboost.protocols.vertical.messages import (
    AssignmentsRequest,
    BeginRound,
    BeginTraining,
    MoreAssignments,
    ResumeTraining,
    SplitAnswer,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.types import BoolArray, Float32Array, Int32Array, Int64Array, PartyName, UInt8Array
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
    before: list[MoreAssignments] = []
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
        elif isinstance(message, MoreAssignments):
            before.append(message)
        elif isinstance(message, SplitRequest) and level is not None:
            level.split_request = message
        elif isinstance(message, SplitAnswer) and level is not None:
            level.split_answer = message if level.split_answer is None else _joined([level.split_answer], message)
        elif level is not None and not isinstance(message, AssignmentsRequest | Done):
            level.messages.append(message)
    return [found[number] for number in sorted(found)]


def assignments_of(view: View, peer: PartyName) -> dict[tuple[int, int], tuple[Int32Array, Int32Array]]:
    """Left and right rows of every node (tree, node) that the passive party of this conversation split."""
    return {
        (tree, node): (left, right)
        for one in rounds(view, peer)
        for level in one.levels
        for tree, node, left, right in level.sides()
    }


def foreign_assignments(view: View, peer: PartyName) -> list[tuple[Int32Array, Int32Array]]:
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


def _joined(before: Sequence[MoreAssignments | SplitAnswer], last: _Told) -> _Told:
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
    return groups.split(groups.merged(parts))


def _cut(groups: RowGroups, packed: UInt8Array) -> tuple[list[Int32Array], list[Int32Array]]:
    """The left and the right rows of each node."""
    listed, left = groups.listed(), _bits(packed, groups.size)
    edges: Int64Array = np.cumsum(groups.counts)[:-1]
    parts = list(zip(np.split(listed, edges), np.split(left, edges), strict=True))
    return [rows[is_left] for rows, is_left in parts], [rows[~is_left] for rows, is_left in parts]


def _bits(packed: UInt8Array, count: int) -> BoolArray:
    return np.unpackbits(packed, count=count).astype(np.bool_)


# --- what an active party knows without any attack: its own gradients, round by round -----------------------------

Routes = Mapping[PartyName, Mapping[tuple[int, int], tuple[Int32Array, Int32Array]]]


def own_gradients(view: View) -> list[Int32Array] | None:
    """(trees, rows, 2) on the grid for every round that the model kept; None where the view cannot tell.

    Labels give the first round's; which leaf each row reached, which the active party followed, gives the others'.
    """
    if view.share is None or view.share.skeleton is None or view.own is None or view.own.label is None:
        return None
    skeleton = view.share.skeleton
    if skeleton.objective == "custom":
        return None
    config, labels, weight = skeleton.config, view.own.label, view.own.weight
    if config.sampling != "uniform":
        return None
    objective = skeleton.loss
    watched = _held_out(view)
    bound = 1.0 if weight is None else float(weight[~watched].max(initial=0.0))
    margin = np.repeat(skeleton.base_margin[:, None], view.rows, axis=1)
    values, routes = view.share.matrix(view.own.columns, view.rows), _routes(view)
    if not _all_told(view, skeleton, routes):
        return None
    found: list[Int32Array] = []
    for first in range(0, len(skeleton.trees), skeleton.trees_per_round):
        g, h = objective.gradients(margin, labels, None)
        g, h = np.where(watched, 0.0, g), np.where(watched, 0.0, h)
        scale = choose_scale(*objective.bounds(1.0, g, h), bound, config.gradient_bits)
        found.append(to_fixed(g, h, scale, weight))
        for group in range(skeleton.trees_per_round):
            leaf = _follow(view, skeleton, view.share.records, values, first + group, routes)
            margin[group] += skeleton.trees[first + group].weight[leaf]
    return found


def leaf_of_rows(view: View, number: int) -> Int32Array:
    """The leaf of one tree that each row reached, as the active party followed it."""
    return leaves_of_rows(view)[number]


def leaves_of_rows(view: View) -> list[Int32Array]:
    """The leaf of every tree that each row reached, as the active party followed it."""
    part, table, skeleton = view.share, view.own, None if view.share is None else view.share.skeleton
    if part is None or table is None or skeleton is None:
        raise TypeError("only an active party that has its table can follow rows")
    values, routes = part.matrix(table.columns, view.rows), _routes(view)
    return [_follow(view, skeleton, part.records, values, number, routes) for number in range(len(skeleton.trees))]


def _routes(view: View) -> Routes:
    return {peer: assignments_of(view, peer) for peer in view.peers}


def _all_told(view: View, skeleton: Skeleton, routes: Routes) -> bool:
    """Did every owner tell the sides of its splits? Where one party grows all trees nobody does."""
    for number, tree in enumerate(skeleton.trees):
        for node in np.flatnonzero(tree.left != LEAF).tolist():
            owner = skeleton.parties[int(tree.owner[node])]
            if owner != view.party and (number, node) not in routes.get(owner, {}):
                return False
    return True


def _follow(
    view: View, skeleton: Skeleton, records: SplitRecords, values: Float32Array, number: int, routes: Routes
) -> Int32Array:
    tree = skeleton.trees[number]
    at = np.zeros(view.rows, dtype=np.int32)
    for node in np.flatnonzero(tree.left != LEAF).tolist():  # parents come before their children
        owner, rows = skeleton.parties[int(tree.owner[node])], np.flatnonzero(at == node).astype(np.int32)
        goes = np.zeros(view.rows, dtype=np.bool_)
        if owner == view.party:
            record = records.find(np.array([number], dtype=np.int32), np.array([node], dtype=np.int32))
            goes[rows] = records.goes_left(values, record.repeat(len(rows)), rows)
        else:
            goes[routes[owner][number, node][0]] = True
        at[rows] = tree.left[node] + ~goes[rows]
    return at


def _held_out(view: View) -> BoolArray:
    opening = view.sent(BeginTraining)
    if not opening or not len(opening[0].held_out):
        return np.zeros(view.rows, dtype=np.bool_)
    return _bits(opening[0].held_out, view.rows)
