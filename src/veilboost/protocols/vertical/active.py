"""The active role of vertical training.

It requests statistics, selects splits, lets their owners split the nodes, and sends the assignments to the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from typing import TypeAlias

import numpy as np

from veilboost import _native
from veilboost.boost import rows
from veilboost.boost.bins import NO_SETS, BinLayout, Sets
from veilboost.boost.grower import Choices, Level, LevelSums, Round, SplitFinder, Tree
from veilboost.boost.limits import ColumnConstraints, round_limits
from veilboost.boost.rows import Assignments, ReceivedAssignments, RowGroups
from veilboost.boost.split import Candidates, left_sums
from veilboost.errors import InconsistentSplit, MalformedMessage
from veilboost.fixedpoint import MAX_BITS, Scale, weight_bits
from veilboost.model.share import SplitRecords
from veilboost.protocols.vertical import messages, roles
from veilboost.protocols.vertical.constraints import checked_constraints
from veilboost.protocols.vertical.round_state import summed_ahead
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.message import Done

_NO_BITS = np.empty(0, dtype=np.uint8)
_NO_INTS = np.empty(0, dtype=np.int32)


class VerticalActive(SplitFinder):
    """The active role of a vertical protocol: the `SplitFinder` that grows trees.

    `later` is the cipher of rounds after the first, if it differs.
    """

    def __init__(
        self,
        context: roles.ActiveContext,
        cipher: roles.StatisticsCipher,
        selector: roles.Selector | None = None,
        leaves: roles.Leaves | None = None,
        later: roles.StatisticsCipher | None = None,
    ) -> None:
        self.context, self.config, self.cipher, self._later = context, context.config, cipher, later
        self.selector, self.leaves = selector or roles.Selector(context), leaves or roles.Leaves(context)
        self.threads = context.threads
        self._owner = context.order.index(context.party)
        self._layouts: dict[PartyName, BinLayout] = {}
        self._constraints: dict[PartyName, ColumnConstraints] = {}
        self._known: dict[PartyName, Int64Array] = {}  # sums of the level's nodes, if they are known
        self._ahead: Ahead | None = None  # a request for the next level that was sent with the splits of this one
        self._requests: dict[int, messages.SplitRequest] = {}  # the splits of the level, by owner
        self._left: dict[int, tuple[Int64Array, Int64Array]] = {}  # sums of their left children, once they are needed
        self._rules = roles.RuleBook()

    @property
    def derives_siblings(self) -> bool:
        return self.cipher.derives_siblings

    def begin_training(self, held_out: BoolArray | None, bin_weights: Float64Array | None) -> Sequence[int]:
        """Start the job at all passive parties; return the number of columns of each owner, in the job's order."""
        opening = messages.BeginTraining(
            config=json.dumps(self.config.to_dict()),
            rows=self.context.rows,
            trees_per_round=self.context.trees_per_round,
            weight_bits=min(weight_bits(self.context.largest_weight), MAX_BITS),
            held_out=_NO_BITS if held_out is None else np.packbits(held_out),
            weights=np.empty(0) if bin_weights is None else bin_weights,
        )
        answers = self.context.peers.ask(dict.fromkeys(self.context.peers.names, opening), messages.ColumnsOffered)
        self._layouts = {name: _checked_layout(name, answer) for name, answer in answers.items()}
        self._layouts[self.context.party] = own = self.context.block.layout
        self._constraints = {name: checked_constraints(name, answer) for name, answer in answers.items()}
        self._constraints[self.context.party] = self.context.constraints or ColumnConstraints.none(own.features)
        self.cipher.begin_training(self._layouts)
        if self.context.chose is not None and self.cipher.chosen:
            self.context.chose(self.cipher.chosen)
        return [self._layouts[name].features for name in self.context.order]

    def resume(self, records: SplitRecords, trees: int, digests: Mapping[PartyName, str]) -> None:
        """Continue after `trees` trees: passive parties discard later ones, `records` are our own up to there.

        `digests` are those of the passive parties' checkpoints of as many trees.
        """
        self._rules.restore(records)
        self._rules.keep(trees)
        peers = self.context.peers
        peers.ask({name: messages.ResumeTraining(trees, digests.get(name, "")) for name in peers.names}, Done)

    def records(self) -> SplitRecords:
        """The active party's own split records so far."""
        return self._rules.records()

    def end_training(self, trees: int) -> SplitRecords:
        """End the job and keep the first `trees` trees; return the active party's own split records."""
        self.context.peers.ask(dict.fromkeys(self.context.peers.names, messages.EndTraining(trees)), Done)
        self._rules.keep(trees)
        return self._rules.records()

    def begin_round(self, start: Round) -> None:
        self.leaves.begin_round(start)
        if start.number and self._later is not None:
            self.cipher = self._later
        start = self.cipher.shown(start)
        columns = dict(zip(self.context.order, start.columns, strict=True))
        own = columns[self.context.party]
        block = self.context.block if own is None else self.context.block.subset(own)
        layouts = {
            name: layout if (chosen := columns[name]) is None else layout.subset(chosen)
            for name, layout in self._layouts.items()
        }
        constraints = [self._constraints[name].subset(columns[name]) for name in self.context.order]
        limits = round_limits(constraints, start.number, start.trees, start.scale, self.config)
        self._current = roles.ActiveRound(start, block, own, layouts, limits)
        self._sums = {name: LevelSums() for name in layouts}
        fit = _NO_BITS
        if len(start.routed):
            mask = np.zeros(start.gradients.shape[1], dtype=np.bool_)
            mask[start.fit] = True
            fit = np.packbits(mask)
        openings = {
            name: messages.BeginRound(
                start.number,
                fit,
                chosen is None,
                _NO_INTS if chosen is None else chosen,
                levels=limits.levels[owner]
                if self.cipher.shuffled and limits is not None and limits.levels is not None
                else messages.NO_LEVELS,
            )
            for owner, (name, chosen) in enumerate(columns.items())
            if name != self.context.party
        }
        opening = self.cipher.openings(self._current, openings)
        if self.context.exact is not None:
            self.context.exact.before_round(
                self.config, start.number, self.context.rows, block.layout.slots, self.context.trees_per_round
            )
        self.context.peers.flush()  # of a round that no request followed
        self.context.peers.hold(opening, Done)
        self.cipher.opened(self._current)
        self._last_split: LastSplit | None = None
        self._ahead = None

    def end_round(self) -> None:
        self.leaves.end_round()

    def finished(self, tree: Tree) -> Tree:
        return tree.with_gains_of_leaves(self.config) if self.cipher.noisy_gains else tree

    def leaf_weights(self, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        weights = self.leaves.weights(self._current, level, leaves, scale)
        return weights if self._current.limits is None else self._current.limits.bounded(level, leaves, weights)

    def candidates(self, level: Level) -> Sequence[Candidates]:
        self._current, level = self.cipher.enter(self._current, level)
        current, own = self._current, self.context.party
        asked, ahead, self._ahead = level, self._ahead, None
        if ahead is None:
            split, assignments = self._send_assignments(level.depth)
            build = level.build.astype(np.int32)
            waiting = self.cipher.ask(
                current,
                level,
                {
                    name: messages.StatisticsRequest(level.depth, split, *assignments[name], build)
                    for name in self.context.peers.names
                },
            )
        else:
            summed, known = summed_ahead(level.fit, ahead.request, self.config)
            asked, waiting = level.asking(known, summed), ahead.waiting
        self._bins = current.block.level_bins(level.fit, level.routed)
        built = current.block.histogram(self._bins, current.start.gradients, level.fit.of(level.build))
        sums = self._sums[own].complete(level, built)
        limits = current.limits_of(self._owner, level)
        offers = {own: self.selector.score(current, level, sums, current.block.layout, False, limits)}
        self._known = {own: sums}
        for name, found in self.cipher.read(current, asked, waiting).items():
            if isinstance(found, Candidates):
                offers[name] = found
                if len(asked.open) > len(level.open):
                    at = asked.open.searchsorted(level.open)
                    offers[name] = Candidates(found.best_handle[at], found.best_gain[at])
                continue
            layout = current.layouts[name]
            built = found if len(asked.build) == len(level.build) else found[asked.build.searchsorted(level.build)]
            if self.cipher.checks_totals:
                _check_totals(name, built, layout, level.totals[level.build])
            self._known[name] = self._sums[name].complete(level, built)
            limits = current.limits_of(self.context.order.index(name), level)
            offers[name] = self.selector.score(current, level, self._known[name], layout, self.cipher.shuffled, limits)
        # A party that answers too late, if a protocol has a clock, has no candidates.
        return [offers.get(name) or Candidates.none(len(level.open)) for name in self.context.order]

    def select(self, level: Level, offers: Sequence[Candidates]) -> Choices:
        return self.selector.select(self._current, level, offers)

    def split(self, level: Level, offers: Sequence[Candidates], choices: Choices) -> tuple[RowGroups, RowGroups]:
        names = self.context.order
        self._requests = {
            owner: self._split_request(level, offers[owner], choices, owner) for owner in choices.owners()
        }
        self._left.clear()
        sent = {names[owner]: request for owner, request in self._requests.items() if owner != self._owner}
        last = LastSplit(choices, level.fit.of(choices.position), level.routed.of(choices.position))
        routed, pending = self.cipher.route(self._current, level, sent), None
        children = self._children_ahead(level, choices, last) if sent else _NO_INTS
        taken: dict[int, Int32Array] = {}
        store = self.context.store if level.depth + 1 == self.config.max_depth else None
        if len(children) or (store is not None and routed is None):
            pending = self.context.peers.hold(sent, messages.SplitAnswer)
        elif routed is None:
            pending = self.context.peers.send(sent)
        if self._owner in self._requests:
            last.assignments[self._owner] = self._split_own(last, self._requests[self._owner])
        if len(children):
            self._ahead = self._ask_ahead(level, last, children, tuple(sent))
        if store is not None:
            store((self._current.start.number + 1) * self.context.trees_per_round)
            self.context.peers.flush()  # for what no checkpoint was sent with
        if pending is not None:
            for name, answer in self.context.peers.collect(pending, messages.SplitAnswer).items():
                last.assignments[names.index(name)] = self._receive(level.depth, last, name, answer)
                taken[names.index(name)] = _taken(name, sent[name], answer)
            self._last_split = last
        for name, assignments in (routed or {}).items():  # no other party keeps rows by node: there is nothing to check
            last.assignments[names.index(name)] = assignments
            del self._requests[names.index(name)]
        if self._current.limits is not None and self._current.limits.follows_paths:
            self._current.limits.split(choices, self._features(choices, taken))
        return last.children(len(names))

    def _features(self, choices: Choices, taken: Mapping[int, Int32Array]) -> Int32Array:
        """The columns by which nodes were split, by their positions in the order that was sent."""
        feature = np.empty(len(choices.handle), dtype=np.int32)
        for owner in choices.owners():
            at, layout = choices.by(owner), self._current.layouts[self.context.order[owner]]
            feature[at] = layout.locate(taken.get(owner, choices.handle[at]))[0]
        return feature

    def check_split(self, level: Level, choices: Choices, children: Level) -> None:
        """Detect altered sums: the rows that a party sends left must add up to the sums with which it won."""
        left = self.cipher.totals(children)[0::2]
        for owner, request in self._requests.items():
            name = self.context.order[owner]
            if owner == self._owner or name not in self._known:  # or only gains are known
                continue
            found = _for_ties(request, left[choices.by(owner)])  # one of them was taken
            reported, bins = self._left_sums(owner)
            if not np.count_nonzero(reported != found):
                continue
            fits = (np.abs(reported - found) <= self.cipher.tolerance(self._current, name, bins)).all(axis=1)
            if not np.logical_or.reduceat(fits, request.starts[:-1]).all():
                raise InconsistentSplit(
                    f"{name} sent rows left that do not add up to the sums with which its split was chosen"
                )

    def _left_sums(self, owner: int) -> tuple[Int64Array, Int64Array]:
        """The known sums of the left children by an owner's splits, for all tied handles, and of how many bins."""
        if owner not in self._left:
            name, request = self.context.order[owner], self._requests[owner]
            sets = Sets(request.set_starts, request.set_bins) if len(request.set_bins) else NO_SETS
            nodes = _for_ties(request, request.position.astype(np.int64))
            self._left[owner] = left_sums(self._known[name], self._current.layouts[name], nodes, request.handles, sets)
        return self._left[owner]

    def _children_ahead(self, level: Level, choices: Choices, last: LastSplit) -> Int32Array:
        """The children that the next level may sum, if they can be requested together with the splits; else none.

        Two passive parties do not know each other's splits, and only whole assignments can be sent with a request.
        """
        if (
            not (self.cipher.asks_ahead and last.is_short)
            or len(self.context.peers.names) > 1
            or level.depth + 1 == self.config.max_depth
        ):
            return _NO_INTS
        children = np.arange(2 * len(choices.position), dtype=np.int32)
        if len(self._known) < len(self.context.order):  # only gains are known
            return children
        least = self._current.start.scale.h_unit, 2 * self.config.min_child_weight, self.derives_siblings
        if self.derives_siblings and min(level.totals[:, 1].tolist()) * least[0] >= 2 * least[1]:
            return children  # of a large hessian one child has half, and one child is summed for both
        may_split = np.empty((len(choices.position), 2), dtype=np.bool_)
        for owner, request in self._requests.items():
            left, _ = self._left_sums(owner)
            at = choices.by(owner)
            _native.children_ahead(at, request.position, level.totals, request.starts, left, *least, may_split)
        return children[may_split.ravel()]

    def _ask_ahead(self, level: Level, last: LastSplit, children: Int32Array, to: Sequence[PartyName]) -> Ahead:
        """Request statistics of the next level together with the splits that were held."""
        request = messages.StatisticsRequest(
            level.depth + 1,
            last.choices.position.astype(np.int32),
            *last.packed(self._owner),
            children,
            ahead=True,
            smaller=self.cipher.least_summed if self.derives_siblings else 0,
        )
        return Ahead(request, self.cipher.ask(self._current, level, dict.fromkeys(to, request)))

    def _send_assignments(self, depth: int) -> tuple[Int32Array, Mapping[PartyName, tuple[UInt8Array, UInt8Array]]]:
        """Send every party the assignments of the level above; the last piece is sent with the level's request."""
        if self._last_split is None:
            return _NO_INTS, dict.fromkeys(self.context.peers.names, (_NO_BITS, _NO_BITS))
        split = self._last_split.choices.position.astype(np.int32)
        pieces = {name: self._last_split.unsent(self.context.order.index(name)) for name in self.context.peers.names}
        last = {name: next(each) for name, each in pieces.items()}
        while following := {name: piece for name, each in pieces.items() if (piece := next(each, None)) is not None}:
            self.context.peers.ask(
                {name: messages.MoreAssignments(depth, split, *last[name]) for name in following}, Done
            )
            last |= following
        return split, last

    def _receive(self, depth: int, last: LastSplit, name: PartyName, answer: messages.SplitAnswer) -> Known:
        """Return the assignments of a party's answer; request the rest of it piece by piece."""
        fit, routed = last.receivers(self.context.order.index(name))
        while True:
            try:
                fit, routed = fit.plus(answer.fit_left), routed.plus(answer.routed_left)
            except MalformedMessage:
                raise MalformedMessage(f"{name} sent left/right assignments for another number of rows") from None
            if fit.complete and routed.complete:
                return fit, routed
            answer = self.context.peers.ask({name: messages.AssignmentsRequest(depth)}, messages.SplitAnswer)[name]

    def _tree_of(self, level: Level, positions: Int64Array) -> Int32Array:
        return level.fit.group[positions] + np.int32(self._current.start.number * self.context.trees_per_round)

    def _split_own(self, last: LastSplit, own: messages.SplitRequest) -> tuple[Assignments, Assignments]:
        block = self._current.block
        sets = Sets(own.set_starts, own.set_bins) if block.layout.has_sets else NO_SETS
        splits = block.splits_of(own.handles, sets)
        rules = block.rules_of(splits, self._bins, own.position.astype(np.int64))
        self._rules.note(own.tree, own.node, rules, self._current.columns)
        fit, routed = last.rows_of(self._owner)
        return block.route(self._bins, fit, splits), block.route(self._bins, routed, splits)

    def _split_request(self, level: Level, offer: Candidates, choices: Choices, owner: int) -> messages.SplitRequest:
        at = choices.by(owner)
        positions, handles = choices.position[at], choices.handle[at]
        starts = np.arange(len(at) + 1, dtype=np.int32)
        has_sets = self._current.layouts[self.context.order[owner]].has_sets
        nodes = level.open.searchsorted(positions) if offer.shuffled or has_sets else positions
        if offer.shuffled:  # only the owner knows which of equally good handles comes first
            tied = [
                offer.tied_with(node, handle) for node, handle in zip(nodes.tolist(), handles.tolist(), strict=True)
            ]
            starts, handles = _starts(tied), np.concatenate(tied)
            nodes = nodes.repeat(np.diff(starts))
        sets = offer.left_sets(nodes, handles) if has_sets else NO_SETS
        follows_paths = self._current.limits is not None and self._current.limits.follows_paths
        return messages.SplitRequest(
            depth=level.depth,
            tree=self._tree_of(level, positions),
            node=level.node[positions],
            position=positions.astype(np.int32),
            starts=starts,
            handles=handles,
            set_starts=sets.starts if len(sets.starts) else np.zeros(len(handles) + 1, dtype=np.int32),
            set_bins=sets.bins,
            ask_taken=follows_paths and len(handles) > len(positions),
        )


# Assignments of the rows of one owner's nodes: those that are summed, and those that are only routed.
Known: TypeAlias = tuple[Assignments | ReceivedAssignments, Assignments | ReceivedAssignments]


@dataclass(frozen=True)
class Ahead:
    """A request for statistics that was sent together with the splits of the level above, and its answer."""

    request: messages.StatisticsRequest
    waiting: roles.Waiting


class LastSplit:
    """The assignments of the rows of the nodes just split, as far as their owners have sent them."""

    def __init__(self, choices: Choices, fit: RowGroups, routed: RowGroups) -> None:
        self.choices = choices
        self._groups = fit, routed
        self.assignments: dict[int, Known] = {}  # by owner
        self._rows: dict[int, tuple[RowGroups, RowGroups]] = {}

    def rows_of(self, owner: int) -> tuple[RowGroups, RowGroups]:
        """The rows of this owner's nodes: those that are summed, and those that are only routed."""
        if owner not in self._rows:
            own = self.choices.by(owner)
            self._rows[owner] = self._groups[0].of(own), self._groups[1].of(own)
        return self._rows[owner]

    def children(self, owners: int) -> tuple[RowGroups, RowGroups]:
        """The rows of the nodes' children, when all owners have sent their assignments."""
        (fit, routed), owner = self._groups, self.choices.owner
        known = [self.assignments.get(number, (_NO_BITS, _NO_BITS)) for number in range(owners)]
        return fit.split_by(owner, [own[0] for own in known]), routed.split_by(owner, [own[1] for own in known])

    def receivers(self, owner: int) -> tuple[ReceivedAssignments, ReceivedAssignments]:
        """Empty receivers of this owner's assignments."""
        own = self.choices.by(owner)
        return self._groups[0].receiver(own), self._groups[1].receiver(own)

    @cached_property
    def left(self) -> tuple[Assignments, Assignments]:
        """The assignments of all rows, when all owners have sent theirs: summed rows, and rows that are only routed."""
        fit, routed = (
            groups.merged(
                [(self.choices.owner == owner, _whole(each[kind])) for owner, each in self.assignments.items()]
            )
            for kind, groups in enumerate(self._groups)
        )
        return fit, routed

    @property
    def is_short(self) -> bool:
        """Whether one message holds the assignments of all rows."""
        return max(self._groups[0].size, self._groups[1].size) <= rows.ASSIGNMENTS_AT_ONCE

    def packed(self, owner: int) -> tuple[UInt8Array, UInt8Array]:
        """The assignments at this owner's nodes, for both kinds of rows, if they are short."""
        if owner not in self.assignments:
            return _NO_BITS, _NO_BITS
        (fit, routed), known = self.rows_of(owner), self.assignments[owner]
        return next(fit.packed_pieces(_whole(known[0]))), next(routed.packed_pieces(_whole(known[1])))

    def unsent(self, owner: int) -> Iterator[tuple[UInt8Array, UInt8Array]]:
        """Pieces of the assignments at nodes that this owner did not split itself, for both kinds of rows."""
        others = self.choices.owner != owner
        fit, routed = (
            groups.of(others.nonzero()[0]).packed_pieces(groups.take(others, whole))
            for groups, whole in zip(self._groups, self.left, strict=True)
        )
        return zip_longest(fit, routed, fillvalue=_NO_BITS)


def _whole(part: Assignments | ReceivedAssignments) -> Assignments:
    return part.whole() if isinstance(part, ReceivedAssignments) else part


def _for_ties(request: messages.SplitRequest, values: Int64Array) -> Int64Array:
    """Values of the nodes of a request, repeated for each of its handles."""
    if len(request.handles) == len(values):
        return values
    return values.repeat(request.starts[1:] - request.starts[:-1], axis=0)


def _starts(parts: Sequence[Int32Array]) -> Int32Array:
    starts = np.zeros(len(parts) + 1, dtype=np.int32)
    np.cumsum([part.size for part in parts], out=starts[1:])
    return starts


def _checked_layout(name: PartyName, offered: messages.ColumnsOffered) -> BinLayout:
    widths = np.diff(offered.offsets)
    fits = (
        len(offered.offsets) == len(offered.missing) + 1 == len(offered.kind) + 1
        and (len(offered.offsets) == 0 or offered.offsets[0] == 0)
        and bool((widths > offered.missing).all())
        and bool((offered.missing <= 1).all() and (offered.kind <= 2).all())
    )
    if not fits:
        raise MalformedMessage(f"{name} offered columns with inconsistent bins")
    return BinLayout(offered.offsets, offered.missing, offered.kind)


def _taken(name: PartyName, request: messages.SplitRequest, answer: messages.SplitAnswer) -> Int32Array:
    """The handles that a party split by."""
    if not request.ask_taken:
        if len(answer.taken):
            raise MalformedMessage(f"{name} named the candidates that it took, which nobody asked for")
        return request.handles[request.starts[:-1]]
    taken = answer.taken
    if taken.shape != request.node.shape or not ((taken >= request.starts[:-1]) & (taken < request.starts[1:])).all():
        raise MalformedMessage(f"{name} took a candidate that was not among the tied ones")
    return request.handles[taken]


def _check_totals(name: PartyName, sums: Int64Array, layout: BinLayout, totals: Int64Array) -> None:
    """The holder of ciphertexts can alter them, so the bins of every column must add up to the node's totals."""
    if not sums.size:
        return
    by_column = np.add.reduceat(sums, layout.offsets[:-1], axis=1)
    if not np.array_equal(by_column, np.broadcast_to(totals[:, None, :], by_column.shape)):
        raise MalformedMessage(f"the sums of {name} do not add up to the node's totals", "start the job again")


active_by = partial(roles.role_of, VerticalActive)
