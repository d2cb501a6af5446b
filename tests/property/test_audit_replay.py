"""Whatever the job, both ends of a conversation replay the same rows, and every row stands in one node of a level."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deviations import batch_of, chosen_gradients, spelled
from support import make_columns, make_labels, split_among, train
from veilboost.audit.replay import rounds
from veilboost.audit.sources import views_of_simulation
from veilboost.boost.bins import BinLayout
from veilboost.config import TrainingConfig
from veilboost.types import ColumnKind


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(10, 80),
    parties=st.integers(2, 4),
    depth=st.integers(1, 4),
    subsample=st.sampled_from([1.0, 0.5]),
    classes=st.sampled_from([2, 3]),
    missing=st.sampled_from([0.0, 0.2]),
)
def test_both_ends_replay_the_same_rows(
    seed: int, rows: int, parties: int, depth: int, subsample: float, classes: int, missing: float
) -> None:
    objective = "binary" if classes == 2 else "multiclass"
    columns = make_columns(seed, rows, 4, 1, missing)
    tables = split_among(columns, make_labels(seed, columns, objective), parties)
    config = TrainingConfig(
        n_estimators=2, max_depth=depth, max_bin=4, subsample=subsample, objective=objective, min_child_weight=0.0
    )
    views, _ = views_of_simulation(train(tables, config, record="payload"), tables)
    for name in list(tables)[1:]:
        for one, other in zip(rounds(views["p0"], name), rounds(views[name], "p0"), strict=True):
            for level, same in zip(one.levels, other.levels, strict=True):
                for here, there in ((level.fit, same.fit), (level.routed, same.routed)):
                    assert np.array_equal(here.listed(), there.listed())
                    assert np.array_equal(here.counts, there.counts)
                    for tree in range(one.trees):
                        own = here.of(np.flatnonzero(here.group == tree)).listed()
                        assert len(np.unique(own)) == len(own)


@given(st.integers(1, 200), st.integers(2, 20), st.integers(0, 5), st.data())
def test_powers_of_two_spell_the_rows_of_a_bin(rows: int, bits: int, number: int, data: st.DataObject) -> None:
    bins = np.array(data.draw(st.lists(st.integers(0, 6), min_size=rows, max_size=rows)))
    layout = BinLayout.of([7], [False], [ColumnKind.NUMERIC])
    for channel, gradients in enumerate(chosen_gradients(number, rows, bits)):
        batch = batch_of(number, channel, rows, bits)
        sums = np.bincount(bins, gradients, minlength=7).astype(np.int64) * 8  # some scale of the grid
        assert np.array_equal(spelled(sums, layout, len(batch))[:, 0], bins[batch])
