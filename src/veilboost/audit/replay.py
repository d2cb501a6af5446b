"""Replays a run from its messages: the rows of each node, level by level, as either peer can reconstruct them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from veilboost.protocols.vertical.round_state import summed_ahead
from veilboost.types import BoolArray, Float32Array, Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.message import Done, Message


@dataclass
class ReplayedLevel:
    """A level: its rows by node, the request, the messages before its nodes were split, and the split.

    The active party sent `request`; `messages` are all later messages in both directions except split messages. `fit`
    are the rows that the trees are fitted on, `routed` the rows that are only routed.
    """

    request: StatisticsRequest
    fit: RowGroups
    routed: RowGroups
    messages: list[Message] = field(default_factory=list[Message])
    split_request: SplitRequest | None = None
    split_answer: SplitAnswer | None = None

    @property
    def answer(self) -> Message:
        """The first answer of the passive party."""
        return self.messages[0]

    @property
    def build(self) -> RowGroups:
        """The nodes that the request asks about."""
        return self.fit.of(self.request.build.astype(np.int64))

    def assignments(self) -> Iterator[tuple[int, int, Int32Array, Int32Array]]:
        """(tree, node, rows that go left, rows that go right) of every node that the passive party split."""
        if self.split_request is None or self.split_answer is None:
            return
        position = self.split_request.position.astype(np.int64)
        pairs = [
            _cut(groups.of(position), bits)
            for groups, bits in ((self.fit, self.split_answer.fit_left), (self.routed, self.split_answer.routed_left))
        ]
        for k, (tree, node) in enumerate(zip(self.split_request.tree, self.split_request.node, strict=True)):
            left, right = (np.concatenate([pair[child][k] for pair in pairs]) for child in (0, 1))
            yield int(tree), int(node), left, right


@dataclass
class ReplayedRound:
    """A round: its opening message and its levels."""

    opening: BeginRound
    fit: Int32Array
    trees: int
    levels: list[ReplayedLevel] = field(default_factory=list[ReplayedLevel])

    @property
    def number(self) -> int:
        return self.opening.number


def rounds(view: View, peer: PartyName) -> list[ReplayedRound]:
    """The rounds of a vertical job, reconstructed from the messages exchanged with one peer.

    For the active party, `peer` is a passive party; for a passive party, the active one. Both give the same rounds.
    """
    found: dict[int, ReplayedRound] = {}
    trees, current = 1, None
    before: list[MoreAssignments] = []
    for message in _in_turn(view.with_peer(peer)):
        level = current.levels[-1] if current is not None and current.levels else None
        if isinstance(message, BeginTraining):
            trees = message.trees_per_round
        elif isinstance(message, ResumeTraining):
            found = {number: one for number, one in found.items() if number * trees < message.trees}
        elif isinstance(message, BeginRound):
            current = found[message.number] = _opened(message, view.rows, trees)
        elif isinstance(message, StatisticsRequest) and current is not None:
            level = _entered(_joined(before, message), current, view)
            if len(level.request.build):  # otherwise no node of a request ahead had enough rows
                current.levels.append(level)
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


def _in_turn(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages, with a request ahead after the answer to the split request that it was sent together with."""
    splits, ahead = False, list[Message]()
    for message in messages:
        if splits and isinstance(message, StatisticsRequest):
            ahead = [message]
            continue
        yield message
        splits = isinstance(message, SplitRequest)
        if isinstance(message, SplitAnswer):
            yield from ahead
            ahead = []


def assignments_of(view: View, peer: PartyName) -> dict[tuple[int, int], tuple[Int32Array, Int32Array]]:
    """Left and right rows of every node (tree, node) that the passive party of this exchange split."""
    return {
        (tree, node): (left, right)
        for one in rounds(view, peer)
        for level in one.levels
        for tree, node, left, right in level.assignments()
    }


def foreign_assignments(view: View, peer: PartyName) -> list[tuple[Int32Array, Int32Array]]:
    """Left and right rows of every node that the passive party of this exchange did not split.

    It receives them because it tracks the rows of each node; none for the deepest level of `max_depth`.
    """
    found: list[tuple[Int32Array, Int32Array]] = []
    for one in rounds(view, peer):
        for above, level in itertools.pairwise(one.levels):
            asked = above.split_request
            own = set[int]() if asked is None else set(asked.position.tolist())
            for at, place in enumerate(level.request.split.tolist()):
                if place not in own:
                    left, right = (
                        np.concatenate([each.rows[each.begin[k] : each.end[k]] for each in (level.fit, level.routed)])
                        for k in (2 * at, 2 * at + 1)
                    )
                    found.append((left, right))
    return found


def _opened(opening: BeginRound, rows: int, trees: int) -> ReplayedRound:
    fit = np.arange(rows, dtype=np.int32)
    if len(opening.fit):
        fit = fit[_bits(opening.fit, rows)]
    return ReplayedRound(opening, fit, trees)


_Assigning = TypeVar("_Assigning", StatisticsRequest, SplitAnswer)


def _joined(before: Sequence[MoreAssignments | SplitAnswer], last: _Assigning) -> _Assigning:
    """The last of several messages, with the assignments of all; each piece is a whole number of bytes."""
    pieces = (*before, last)
    return replace(
        last,
        fit_left=np.concatenate([each.fit_left for each in pieces]),
        routed_left=np.concatenate([each.routed_left for each in pieces]),
    )


def _entered(request: StatisticsRequest, current: ReplayedRound, view: View) -> ReplayedLevel:
    if not current.levels or request.depth == 0:
        routed = np.setdiff1d(np.arange(view.rows, dtype=np.int32), current.fit).astype(np.int32)
        return ReplayedLevel(request, RowGroups.root(current.fit, current.trees), RowGroups.root(routed, current.trees))
    above = current.levels[-1]
    split = request.split.astype(np.int64)
    own, answer = np.empty(0, dtype=np.int64), above.split_answer
    if above.split_request is not None and answer is not None:
        own = above.split_request.position.astype(np.int64)
    is_own = np.isin(split, own)
    fit = _children(above.fit.of(split), is_own, None if answer is None else answer.fit_left, request.fit_left)
    answered = None if answer is None else answer.routed_left
    if request.ahead:
        request = replace(request, build=summed_ahead(fit, request, view.config)[0].astype(np.int32))
    return ReplayedLevel(request, fit, _children(above.routed.of(split), is_own, answered, request.routed_left))


def _children(groups: RowGroups, own: BoolArray, answered: UInt8Array | None, received: UInt8Array) -> RowGroups:
    here = int(groups.counts[own].sum())
    parts = [(~own, _bits(received, groups.size - here).view(np.uint8))]
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


# --- the active party's own gradients, round by round ------------------------------------------------------------

Routes = Mapping[PartyName, Mapping[tuple[int, int], tuple[Int32Array, Int32Array]]]


def own_gradients(view: View) -> list[Int32Array] | None:
    """Gradients (trees, rows, 2) on the grid for every round of the model; None if the view does not determine them.

    Labels give those of the first round; the leaves of the rows, which the active party knows, give the others.
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
    held_out = _held_out(view)
    bound = 1.0 if weight is None else float(weight[~held_out].max(initial=0.0))
    margin = np.repeat(skeleton.base_margin[:, None], view.rows, axis=1)
    values, routes = view.share.matrix(view.own.columns, view.rows), _routes(view)
    if not _all_assigned(view, skeleton, routes):
        return None
    found: list[Int32Array] = []
    for first in range(0, len(skeleton.trees), skeleton.trees_per_round):
        g, h = objective.gradients(margin, labels, None)
        g, h = np.where(held_out, 0.0, g), np.where(held_out, 0.0, h)
        scale = choose_scale(*objective.bounds(1.0, g, h), bound, config.gradient_bits)
        found.append(to_fixed(g, h, scale, weight))
        for group in range(skeleton.trees_per_round):
            leaf = _route(view, skeleton, view.share.records, values, first + group, routes)
            margin[group] += skeleton.trees[first + group].weight[leaf]
    return found


def leaf_of_rows(view: View, number: int) -> Int32Array:
    """The leaf of each row in one tree, as the active party routes rows."""
    return leaves_of_rows(view)[number]


def leaves_of_rows(view: View) -> list[Int32Array]:
    """The leaf of each row in every tree, as the active party routes rows."""
    share, table, skeleton = view.share, view.own, None if view.share is None else view.share.skeleton
    if share is None or table is None or skeleton is None:
        raise TypeError("only an active party that has its table can route rows")
    values, routes = share.matrix(table.columns, view.rows), _routes(view)
    return [_route(view, skeleton, share.records, values, number, routes) for number in range(len(skeleton.trees))]


def _routes(view: View) -> Routes:
    return {peer: assignments_of(view, peer) for peer in view.peers}


def _all_assigned(view: View, skeleton: Skeleton, routes: Routes) -> bool:
    """Whether every owner sent the assignments of its splits. If one party grows all trees, nobody does."""
    for number, tree in enumerate(skeleton.trees):
        for node in np.flatnonzero(tree.left != LEAF).tolist():
            owner = skeleton.parties[int(tree.owner[node])]
            if owner != view.party and (number, node) not in routes.get(owner, {}):
                return False
    return True


def _route(
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
