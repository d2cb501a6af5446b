"""Rows of bytes (digests, points) in order: sorting them, and finding some among others.

Rows are compared byte by byte from the first. Nearly always the first eight bytes decide, and comparing those as one
number is several times quicker; where two rows share them, whole rows are compared.
"""

from __future__ import annotations

import numpy as np

from veilboost.types import AnyArray, BoolArray, Int64Array, UInt8Array


def sort_order(rows: UInt8Array) -> Int64Array:
    """The order in which the rows are sorted."""
    heads = _heads(rows)
    order = np.argsort(heads, kind="stable")
    ordered = heads[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(_whole(rows), kind="stable")
    return order.astype(np.int64, copy=False)


def strictly_sorted(rows: UInt8Array) -> bool:
    """Whether the rows are in order and no two are equal."""
    heads = _heads(rows)
    if (heads[1:] > heads[:-1]).all():
        return True
    whole = _whole(rows)
    return bool((whole[1:] > whole[:-1]).all())


def distinct(rows: UInt8Array) -> bool:
    """Whether no two rows are equal."""
    return strictly_sorted(rows[sort_order(rows)])


def find(ordered: UInt8Array, wanted: UInt8Array) -> Int64Array:
    """Where each wanted row stands among strictly sorted ones, -1 where it does not."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    heads, among = _heads(wanted), _heads(ordered)
    if (among[1:] == among[:-1]).any():
        places = np.searchsorted(_whole(ordered), _whole(wanted))
    else:
        places = np.searchsorted(among, heads)
    places = np.minimum(places, len(ordered) - 1)
    return np.where((ordered[places] == wanted).all(axis=1), places, -1)


def contains(ordered: UInt8Array, wanted: UInt8Array) -> BoolArray:
    """Which wanted rows stand among strictly sorted ones."""
    return find(ordered, wanted) >= 0


def _heads(rows: UInt8Array) -> AnyArray:
    return np.ascontiguousarray(rows[:, :8]).view(">u8").ravel().astype(np.uint64)


def _whole(rows: UInt8Array) -> AnyArray:
    # NumPy compares fixed-length byte strings as unsigned bytes, zeros at the end included, since all are as long.
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel()
