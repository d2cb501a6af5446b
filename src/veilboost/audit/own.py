"""What an active party knows without any attack: its own gradients, round by round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from veilboost.audit.replay import sides_of
from veilboost.audit.view import View
from veilboost.boost.grower import LEAF
from veilboost.fixedpoint import choose_scale, to_fixed
from veilboost.model.part import Skeleton, SplitRecords
from veilboost.protocols.vertical.messages import BeginTraining
from veilboost.types import BoolArray, Float32Array, Int32Array, PartyName


def own_gradients(view: View) -> list[Int32Array] | None:
    """(trees, rows, 2) on the grid for every round that the model kept; None where the view cannot tell.

    Labels give the first round's; which leaf each row reached, which the active party followed, gives the others'.
    """
    if view.part is None or view.part.skeleton is None or view.own is None or view.own.label is None:
        return None
    skeleton = view.part.skeleton
    if skeleton.objective == "custom":
        return None
    config, labels, weight = skeleton.config, view.own.label, view.own.weight
    if config.sampling != "uniform":
        return None
    objective = skeleton.loss
    watched = _held_out(view)
    bound = 1.0 if weight is None else float(weight[~watched].max(initial=0.0))
    margin = np.repeat(skeleton.base_margin[:, None], view.rows, axis=1)
    values, routes = view.part.matrix(view.own.columns, view.rows), _routes(view)
    if not _all_told(view, skeleton, routes):
        return None
    found: list[Int32Array] = []
    for first in range(0, len(skeleton.trees), skeleton.trees_per_round):
        g, h = objective.gradients(margin, labels, None)
        g, h = np.where(watched, 0.0, g), np.where(watched, 0.0, h)
        scale = choose_scale(*objective.bounds(1.0, g, h), bound, config.gradient_bits)
        found.append(to_fixed(g, h, scale, weight))
        for group in range(skeleton.trees_per_round):
            leaf = _follow(view, skeleton, view.part.records, values, first + group, routes)
            margin[group] += skeleton.trees[first + group].weight[leaf]
    return found


def leaf_of_rows(view: View, number: int) -> Int32Array:
    """The leaf of one tree that each row reached, as the active party followed it."""
    part, table, skeleton = view.part, view.own, None if view.part is None else view.part.skeleton
    if part is None or table is None or skeleton is None:
        raise TypeError("only an active party that has its table can follow rows")
    return _follow(view, skeleton, part.records, part.matrix(table.columns, view.rows), number, _routes(view))


Routes = Mapping[PartyName, Mapping[tuple[int, int], tuple[Int32Array, Int32Array]]]


def _routes(view: View) -> Routes:
    return {peer: sides_of(view, peer) for peer in view.peers}


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
    return np.unpackbits(opening[0].held_out, count=view.rows).astype(np.bool_)
