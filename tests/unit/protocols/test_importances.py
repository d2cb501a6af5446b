"""Every protocol's model has gains and covers, also those that never see exact sums."""

from __future__ import annotations

import pytest

from support import QUICK_OPTIONS, make_columns, make_labels, split_among, train
from veilboost.config import TrainingConfig
from veilboost.model.explain import IMPORTANCE_KINDS, importance
from veilboost.model.joined import join
from veilboost.protocols.registry import protocols_of

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("protocol", protocols_of("vertical"))
def test_no_kind_of_importance_is_empty(protocol: str) -> None:
    columns = make_columns(9, 300, numeric=4)
    options = QUICK_OPTIONS.get(protocol, {"eps": 100.0, "least_rows": 5} if protocol == "sealed" else {})
    config = TrainingConfig(objective="binary", n_estimators=2, max_depth=2, max_bin=8, options=options)
    run = train(split_among(columns, make_labels(9, columns), 2), config, protocol)
    for kind in IMPORTANCE_KINDS:
        values = [item.value for item in importance(join(run.shares), kind)]
        assert sum(values) == pytest.approx(1.0)
        assert min(values) >= 0
