"""`min_node_rows`: no sums are made of a node with fewer rows, or of its sibling, in any protocol."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import QUIET_OPTIONS, make_columns, make_labels, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.protocols.registry import protocols_of
from veilboost.protocols.vertical.passive import VerticalPassive

pytestmark = pytest.mark.fast

ROWS = 120
EXACT = [spec.name for spec in protocols_of("vertical").values() if spec.exact and spec.name != "plain"]


def scene(seed, objective="binary", **changes):
    columns = make_columns(seed, rows=ROWS, numeric=4, missing=0.1)
    tables = split_among(columns, make_labels(seed, columns, objective), 3)
    given_ = {"objective": objective, "n_estimators": 2, "max_depth": 4, "max_bin": 8, "min_child_weight": 0.0}
    return tables, TrainingConfig.from_dict({**given_, "categories": "ordinal", **changes})


def watched(tables, config, protocol):
    """The model, and of every level that a passive party summed: rows of all nodes, the nodes asked for."""
    levels = []
    original = VerticalPassive._statistics

    def noted(self, message, state, job):
        answer = original(self, message, state, job)
        levels.append((message.depth, self._round.fit.counts, message.build))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VerticalPassive, "_statistics", noted)
        return train(tables, config, protocol), levels


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([1, 2, 7, 20, 41, ROWS, ROWS + 1]),
    st.sampled_from(["binary", "multiclass", "regression"]),
    st.sampled_from([{}, {"subsample": 0.6}, {"proposal": "local"}]),
)
def test_exact_protocols_equal_plain_and_no_node_or_sibling_is_smaller(seed, least, objective, changes):
    tables, config = scene(seed, objective, min_node_rows=least, **changes)
    model, levels = watched(tables, config, "lattice")
    assert sha(model) == sha(train(tables, config))
    for depth, counts, build in levels:
        assert (counts[build] >= least).all()
        assert depth == 0 or (counts[build ^ 1] >= least).all()
    if least > ROWS:
        assert not levels, "a root with too few rows is a leaf"


@pytest.mark.parametrize("protocol", sorted({*EXACT, *QUIET_OPTIONS}))
def test_every_protocol_honours_it(protocol):
    tables, config = scene(5, min_node_rows=25)
    model, levels = watched(tables, config, protocol)
    assert sha(model) == sha(train(tables, config))
    assert sha(model) != sha(train(tables, scene(5)[1])), "without it the trees are larger"
    assert levels or protocol == "federboost"
    assert all(counts[build].min() >= 25 for _, counts, build in levels)


@pytest.mark.parametrize("options", [{"eps": 4.0, "least_rows": 5}])
def test_noise_may_choose_any_split_and_sums_keep_to_it(options):
    tables, config = scene(5, min_node_rows=25, min_child_weight=1.0, options=options)
    _, levels = watched(tables, config, "sealed")
    assert levels
    assert all(counts[build].min() >= 25 for _, counts, build in levels)
