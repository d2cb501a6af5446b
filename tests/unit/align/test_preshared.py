from __future__ import annotations

import numpy as np
import pytest

from veilboost.align.preshared import align_by_id
from veilboost.data.table import PartyTable
from veilboost.errors import EmptyIntersection
from veilboost.types import Column

pytestmark = pytest.mark.fast


def table(ids):
    ids = np.array(ids)
    return PartyTable(ids, (Column("x", np.arange(len(ids), dtype=np.float32)),), np.arange(len(ids), dtype=float))


def test_common_rows_in_the_order_of_ids():
    aligned = align_by_id({"a": table([5, 3, 9, 1]), "b": table([9, 2, 5]), "c": table([5, 9, 7, 8])})
    for party in aligned.values():
        assert party.ids.tolist() == [5, 9]
    assert aligned["a"].columns[0].values.tolist() == [0, 2]
    assert aligned["b"].label.tolist() == [2, 0]


def test_text_ids():
    aligned = align_by_id({"a": table(["x", "b", "a"]), "b": table(["a", "xx", "x"])})
    assert aligned["b"].ids.tolist() == ["a", "x"]
    assert aligned["b"].columns[0].values.tolist() == [0, 2]


def test_no_common_row():
    with pytest.raises(EmptyIntersection, match="VB-1201"):
        align_by_id({"a": table([1, 2]), "b": table([3, 4])})
    with pytest.raises(EmptyIntersection, match="another type"):
        align_by_id({"a": table([1, 2]), "b": table(["1", "2"])})
