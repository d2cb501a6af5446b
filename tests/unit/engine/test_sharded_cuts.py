"""Cuts found by counting in shards are those of the whole column, byte for byte, and no piece of work sees it whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import make_columns, make_labels, sha, split_among, train
from veilboost.boost.bins import propose_cuts
from veilboost.config import TrainingConfig
from veilboost.engine import cuts
from veilboost.engine.pool import Pool
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.shards import Shards
from veilboost.fixedpoint import from_ordered, to_ordered
from veilboost.types import Column

pytestmark = pytest.mark.fast

EXTREME = [0.0, -0.0, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan]
ties = st.integers(-3, 3).map(float)
close = st.integers(0, 40).map(lambda steps: float(np.float32(1) + steps * np.finfo(np.float32).eps))
floats = st.floats(width=32, allow_infinity=False) | ties | close | st.sampled_from(EXTREME)
repeated = st.lists(st.tuples(floats, st.integers(1, 60)), max_size=25).map(
    lambda pairs: [value for value, times in pairs for _ in range(times)]
)
columns = (st.lists(floats, max_size=150) | repeated).flatmap(st.permutations)


def asked(columns_, shards, max_bin, binning="quantile", held_out=None, few=0, points=cuts.POINTS):
    """Cuts of columns in so many shards; the limits are small enough here for a few rows to be many."""
    cut = Shards.of(Pool(), len(columns_[0]), shards)
    config = TrainingConfig(max_bin=max_bin, binning=binning)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuts, "FEW_ROWS", few)
        patch.setattr(cuts, "POINTS", points)
        mask = None if held_out is None else cut.place(held_out)
        return cuts.cuts_in_shards([cut.place(column) for column in columns_], config, None, mask)


@settings(max_examples=150, deadline=None)
@given(
    values=columns,
    shards=st.integers(1, 7),
    max_bin=st.integers(2, 64),
    binning=st.sampled_from(["quantile", "quantile", "width"]),
    held=st.booleans(),
    few=st.sampled_from([0, 0, 1 << 18]),
    points=st.sampled_from([2, 7, 300, cuts.POINTS]),
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the width of an infinite range
def test_cuts_are_those_of_the_whole_column(values, shards, max_bin, binning, held, few, points):
    column = np.array([*values, np.nan], dtype=np.float32)
    held_out = np.arange(len(column)) % 3 == 1 if held else None
    found = asked([column], shards, max_bin, binning, held_out, few, points)[0]
    expected = propose_cuts(column if held_out is None else column[~held_out], None, max_bin, binning)
    assert found.dtype == np.float32
    assert found.tobytes() == expected.tobytes()


COLUMNS = {
    "continuous": lambda rng: rng.normal(size=3000),
    "half one value": lambda rng: np.where(rng.random(3000) < 0.5, 0.0, rng.normal(size=3000)),
    "all but one row one value": lambda rng: np.where(np.arange(3000) == 1234, 5.0, -2.0),
    "geometric": lambda rng: rng.geometric(0.05, size=3000),
    "skewed ties": lambda rng: np.floor(np.exp(2.5 * rng.normal(size=3000))),
    "constant": lambda rng: np.full(3000, 7.0),
    "all missing": lambda rng: np.full(3000, np.nan),
    "sorted": lambda rng: np.arange(3000.0),
    "two zeros": lambda rng: rng.choice([0.0, -0.0, 1.0], size=3000),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("binning", ["quantile", "width"])
def test_columns_that_need_different_numbers_of_questions_go_side_by_side(binning):
    rng = np.random.default_rng(0)
    values = [make(rng).astype(np.float32) for make in COLUMNS.values()]
    assert len(values) > 2 * cuts.COLUMNS_AT_ONCE
    for shards in (1, 5):
        found = asked(values, shards, 16, binning)
        for name, column, own in zip(COLUMNS, values, found, strict=True):
            assert own.tobytes() == propose_cuts(column, None, 16, binning).tobytes(), name
    assert asked(values[:1], 3, 16, binning)[0].size == 15
    assert cuts.cuts_in_shards([], TrainingConfig(), None, None) == []


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1))
def test_keys_keep_the_order_of_values_and_come_back(values):
    column = np.array(values, dtype=np.float32)
    keys = to_ordered(column)
    assert np.array_equal(keys[:, None] < keys, column[:, None] < column)
    assert np.array_equal(from_ordered(keys), column)


class Watching(Pool):
    """Notes how many numbers a piece of work is handed at most, and how many the driver gets."""

    def __init__(self):
        self.most = 0

    def _size(self, value):
        if isinstance(value, tuple | list):
            return sum(self._size(each) for each in value)
        return value.size if isinstance(value, np.ndarray) else 0

    def get(self, refs):
        self.most = max(self.most, self._size(list(refs)))
        return super().get(refs)

    def call(self, function, *arguments):
        self.most = max(self.most, self._size(arguments))
        return function(*arguments)


@pytest.mark.parametrize("binning", ["quantile", "width"])
def test_nobody_holds_a_column(monkeypatch, binning):
    monkeypatch.setattr(cuts, "FEW_ROWS", 0)
    monkeypatch.setattr(cuts, "POINTS", 100)
    pool = Watching()
    shards = Shards.of(pool, 20_000, 20)
    rng = np.random.default_rng(3)
    placed = [shards.place(rng.normal(size=20_000).astype(np.float32)) for _ in range(5)]
    held_out = shards.place(rng.random(20_000) < 0.1)
    found = cuts.cuts_in_shards(placed, TrainingConfig(max_bin=8, binning=binning), None, held_out)
    assert [len(own) for own in found] == [7] * 5
    assert pool.most <= 6 * 20_000 // 20, "of a shard its five columns, and who is held out"


def test_what_a_rule_of_a_protocol_is_handed_stays_in_its_shards():
    seen = []

    def propose(number, values):
        seen.append(values)
        return np.array([number], dtype=np.float32)

    rng = np.random.default_rng(4)
    values = [rng.normal(size=90).astype(np.float32) for _ in range(2)]
    held_out = rng.random(90) < 0.3
    engine = ShardedEngine(Pool(), 4, "ray")
    for mask in (None, held_out):
        seen.clear()
        block = engine.columns(
            [Column(str(k), v) for k, v in enumerate(values)], 90, TrainingConfig(), None, mask, 1, propose
        )
        assert [own.tolist() for own in block.cuts] == [[0.0], [1.0]]
        for given_, column in zip(seen, values, strict=True):
            assert not isinstance(given_, np.ndarray)
            assert np.array_equal(np.asarray(given_), column if mask is None else column[~mask])
            assert len(given_) == len(np.asarray(given_))


@pytest.mark.parametrize(
    ("protocol", "changes"),
    [
        ("plain", {}),
        ("plain", {"binning": "width"}),
        ("plain", {"weighted_bins": True}),
        ("sealed", {"options": {"eps_features": 4.0}}),
    ],
)
def test_the_model_is_that_of_one_machine(monkeypatch, protocol, changes):
    monkeypatch.setattr(cuts, "FEW_ROWS", 0)
    table = make_columns(5, 150, numeric=6, categorical=1, missing=0.1)
    weights = np.random.default_rng(1).random(150) + 0.25 if changes.get("weighted_bins") else None
    tables = split_among(table, make_labels(5, table), 2, weights)
    config = TrainingConfig(objective="binary", n_estimators=1, max_depth=2, max_bin=8, categories="onehot", **changes)
    held_out = np.arange(150) % 4 == 1
    expected = sha(train(tables, config, protocol, held_out=held_out, unsafe_noise_seed=0))
    for count in (1, 3, 7):
        engine = ShardedEngine(Pool(), count, "ray")
        run = train(tables, config, protocol, engine=engine, held_out=held_out, unsafe_noise_seed=0)
        assert sha(run) == expected
