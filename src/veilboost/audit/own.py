"""What an active party knows without any attack: its own gradients, round by round."""

from __future__ import annotations

import numpy as np

from veilboost.audit.replay import sides_of
from veilboost.audit.view import View
from veilboost.boost.objective import make_objective
from veilboost.boost.tree import LEAF
from veilboost.fixedpoint import choose_scale, to_fixed
from veilboost.model.part import Skeleton
from veilboost.protocols.common.messages import BeginTraining
from veilboost.types import BoolArray, Float64Array, Int32Array, PartyName


def own_gradients(view: View) -> list[Int32Array] | None:
    """(trees, rows, 2) on the grid for every round that the model kept; None where the view cannot tell.

    Labels give the first round's; which leaf each row reached, which the active party followed, gives the others'.
    """
    skeleton = None if view.part is None else view.part.skeleton
    if view.own is None or view.own.label is None or skeleton is None or skeleton.objective == "custom":
        return None
    config, labels, weight = skeleton.config, view.own.label, view.own.weight
    if config.sampling != "uniform":
        return None
    objective = make_objective(
        skeleton.objective,
        classes=max(2, skeleton.trees_per_round),
        scale_pos_weight=config.scale_pos_weight,
        max_delta_step=config.max_delta_step,
        order=config.order,
    )
    watched = _held_out(view)
    bound = 1.0 if weight is None else float(weight[~watched].max(initial=0.0))
    margin = np.repeat(skeleton.base_margin[:, None], view.rows, axis=1)
    routes = {peer: sides_of(view, peer) for peer in view.peers}
    found: list[Int32Array] = []
    for first in range(0, len(skeleton.trees), skeleton.trees_per_round):
        g, h = objective.gradients(margin, labels, None)
        g, h = np.where(watched, 0.0, g), np.where(watched, 0.0, h)
        scale = choose_scale(*objective.bounds(1.0, g, h), bound, config.gradient_bits)
        found.append(to_fixed(g, h, scale, weight))
        for group in range(skeleton.trees_per_round):
            margin[group] += _weights(view, skeleton, first + group, routes)
    return found


def _weights(
    view: View,
    skeleton: Skeleton,
    number: int,
    routes: dict[PartyName, dict[tuple[int, int], tuple[Int32Array, Int32Array]]],
) -> Float64Array:
    """What the leaf of one tree that each row reaches weighs."""
    tree, part, table = skeleton.trees[number], view.part, view.own
    if part is None or table is None:
        raise TypeError("a view without its own part and table cannot follow rows")
    values = part.matrix(table.columns, view.rows)
    at = np.zeros(view.rows, dtype=np.int32)
    for node in np.flatnonzero(tree.left != LEAF).astype(np.int32).tolist():  # parents come before their children
        owner, rows = skeleton.parties[int(tree.owner[node])], np.flatnonzero(at == node).astype(np.int32)
        goes = np.zeros(view.rows, dtype=np.bool_)
        if owner == view.party:
            key = np.array([number], dtype=np.int32), np.array([node], dtype=np.int32)
            records = part.records.find(*key).repeat(len(rows))
            goes[rows] = part.records.goes_left(values, records, rows)
        else:
            goes[routes[owner][number, node][0]] = True
        at[rows] = tree.left[node] + ~goes[rows]
    return tree.weight[at].astype(np.float64)


def _held_out(view: View) -> BoolArray:
    opening = view.sent(BeginTraining)
    if not opening or not len(opening[0].held_out):
        return np.zeros(view.rows, dtype=np.bool_)
    return np.unpackbits(opening[0].held_out, count=view.rows).astype(np.bool_)
