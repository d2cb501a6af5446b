"""Secure inference by Paillier: what the signs of all slots of a node tell the CSP, which needs but one of them.

A node has M slots: a threshold in its attribute's own, decoys in all others. One random sign s turns all of them. The
decoys of a node stay what they are from user to user, so their signs, up to s, are a name for the node; and once s is
known up to one turn for each node, so is which users stand on the same side of it. Where decoys look like thresholds,
as published, each sign says besides whether a user's value of that attribute lies above its decoy.
"""

from __future__ import annotations

import numpy as np

from veilboost.types import BoolArray, Float64Array, Int64Array


def linked(signs: BoolArray, serial: Int64Array) -> tuple[Int64Array, BoolArray]:
    """For each pair of a user and a node: a name of the node, and the user's side, up to one turn for each node.

    `signs` (pairs, M) are those of the decrypted slots, `serial` the number of each node's attribute, from 1 on.
    """
    pair, own = np.arange(len(signs)), serial - 1
    first = np.where(own == 0, 1, 0)  # the first slot that holds a decoy
    turned = signs ^ signs[pair, first][:, None]
    side = turned[pair, own].copy()
    turned[pair, own] = False
    names = np.unique(np.column_stack((serial, turned)), axis=0, return_inverse=True)[1]
    return names.astype(np.int64).ravel(), side


def same_side(names: Int64Array, side: BoolArray) -> tuple[Int64Array, Int64Array, BoolArray]:
    """Two pairs at a time that are said to be at one node, and whether they are said to be on one side of it."""
    one: list[int] = []
    other: list[int] = []
    for name in np.unique(names).tolist():
        there = np.flatnonzero(names == name).tolist()
        one += there[:-1]
        other += there[1:]
    first, second = np.array(one, dtype=np.int64), np.array(other, dtype=np.int64)
    return first, second, side[first] == side[second]


def ranks_by_decoys(signs: BoolArray, serial: Int64Array) -> Float64Array:
    """One user at many nodes (nodes, M): how high its value of every attribute lies, up to one turn for all.

    Signs of slots are those of decoy less value, times the node's s: the vector of s is what they have in common.
    """
    level = 2.0 * signs - 1.0
    level[np.arange(len(level)), serial - 1] = 0.0
    turn = np.where(np.linalg.svd(level, full_matrices=False)[0][:, 0] < 0, -1.0, 1.0)
    return -(turn[:, None] * level).mean(axis=0)
