"""Rows of a table in shards are the rows of the same table in memory, whatever the order and the shards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilboost.data import table as tables
from veilboost.data.table import PartyTable, drawn_places, drawn_rows
from veilboost.engine.api import LOCAL
from veilboost.engine.pool import Pool
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.shards import ShardedArray
from veilboost.engine.tables import gathered, taken
from veilboost.types import Column

pytestmark = pytest.mark.fast


def whole(rows):
    values = np.arange(rows, dtype=np.float32)
    codes = (np.arange(rows) % 3 - 1).astype(np.int32)
    ids = np.array([f"p{k}" for k in range(rows)])
    return PartyTable(ids, (Column("x", values), Column("c", codes, ("a", "b"))), values * 2.0, None, values + 1.0)


def spread(table, engine):
    shards = engine.cut(table.rows)
    return PartyTable(
        shards.place(table.ids),
        tuple(Column(each.name, shards.place(each.values), each.categories) for each in table.columns),
        shards.place(table.label),
        None,
        shards.place(table.weight),
    )


@given(
    st.integers(1, 40).flatmap(lambda rows: st.tuples(st.just(rows), st.permutations(range(rows)))),
    st.integers(0, 40),
    st.integers(1, 9),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_rows_are_taken_in_order(rows_and_order, count, shards, cuts):
    rows, order = rows_and_order
    wanted = np.array(order[: max(1, count % (rows + 1))], dtype=np.int64)
    pieces = np.split(wanted, sorted(cut % (len(wanted) + 1) for cut in cuts))
    table, engine = whole(rows), ShardedEngine(Pool(), shards, "ray")
    found = taken(engine, spread(table, engine), iter(pieces), len(wanted))
    assert isinstance(found.ids, ShardedArray)
    for one, other in ((gathered(found), table.take(wanted)), (taken(LOCAL, table, pieces, 0), table.take(wanted))):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.label.tolist() == other.label.tolist()
        assert one.weight.tolist() == other.weight.tolist()
        for column, expected in zip(one.columns, other.columns, strict=True):
            assert column.values.tolist() == expected.values.tolist()
            assert column.categories == expected.categories


def test_what_is_drawn_does_not_depend_on_how_much_is_drawn_at_once(monkeypatch):
    expected = drawn_rows(np.arange(1000), 0.3, random_state=4)
    monkeypatch.setattr(tables, "_AT_ONCE", 64)
    np.testing.assert_array_equal(drawn_places(1000, 0.3, random_state=4), expected)
    assert 200 < expected.sum() < 400
