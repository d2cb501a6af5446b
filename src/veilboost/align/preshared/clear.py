"""Alignment by ids in the clear, where one process holds all tables.

It reveals every id to whoever runs it: right for a simulation, wrong between companies.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from veilboost.data.table import PartyTable, id_order
from veilboost.errors import EmptyIntersection
from veilboost.types import PartyName


def align_by_id(tables: Mapping[PartyName, PartyTable]) -> dict[PartyName, PartyTable]:
    """Every party's rows of the people that all parties know, in the order of their ids."""
    shared = None
    for name, table in tables.items():
        ids = np.sort(table.ids)
        if shared is not None and (shared.dtype.kind == "i") != (ids.dtype.kind == "i"):
            raise EmptyIntersection(f"{name} has ids of another type than the parties before it")
        shared = ids if shared is None else np.intersect1d(shared, ids, assume_unique=True)
    if shared is None or not len(shared):
        raise EmptyIntersection(f"the {len(tables)} parties have no row in common")
    shared = shared[id_order(shared)]
    aligned: dict[PartyName, PartyTable] = {}
    for name, table in tables.items():
        order = np.argsort(table.ids)
        aligned[name] = table.take(order[np.searchsorted(table.ids, shared, sorter=order)])
    return aligned
