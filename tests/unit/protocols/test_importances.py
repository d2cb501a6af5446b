"""Every protocol's model has gains and covers, also those that never see exact sums."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from support import QUICK_OPTIONS, make_columns, make_labels, split_among, train
from veilboost import HorizontalClassifier
from veilboost.boost.grower import Tree
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


@pytest.mark.parametrize("protocol", protocols_of("horizontal"))
def test_no_kind_of_importance_of_a_horizontal_model_is_empty(protocol: str) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    options = {"epsilon": 0} if protocol == "mal" else {}
    model = HorizontalClassifier(protocol=protocol, participants=3, n_estimators=4, options=options).fit(X, y)
    for kind in IMPORTANCE_KINDS:
        values = [item.value for item in importance(model.joined_, kind)]
        assert sum(values) == pytest.approx(1.0)
        assert min(values) >= 0


def score_of_leaves(tree: Tree, node: int, config: TrainingConfig) -> tuple[float, float, float]:
    """The gradient sum of the leaves below a node, the sum of its absolute values, and of the gains below the node."""
    below = int(tree.left[node])
    if below < 0:
        g = float(-tree.weight[node] / config.learning_rate * (tree.cover[node] + config.reg_lambda))
        return g, abs(g), 0.0
    (left, left_size, left_gain), (right, right_size, right_gain) = (
        score_of_leaves(tree, child, config) for child in (below, below + 1)
    )
    size = left_size + right_size
    weights = [g / (tree.cover[at] + config.reg_lambda) for g, at in ((left, below), (right, below + 1))]
    weights.append((left + right) / (tree.cover[node] + config.reg_lambda))
    gain = max(left * weights[0] + right * weights[1] - (left + right) * weights[2], 0.0)
    # Weights of leaves have 24 bits, so a sum of gradients is known to 2^-24 of the sum of their absolute values.
    assert tree.gain[node] == pytest.approx(gain, abs=1e-6 * size * sum(map(abs, weights)))
    return left + right, size, gain + left_gain + right_gain


@pytest.mark.parametrize(
    ("protocol", "options", "noisy"),
    [
        ("plain", {}, False),
        ("masked", {"eps_ap": 5.0}, True),
        ("ldp", {"epsilon": 20.0}, True),
        ("ldp", {"mechanism": "none", "score": "first"}, True),
        ("ldp", {"epsilon": 20.0, "private_leaves": True}, True),
        ("elxgb", {"epsilon": 5.0, "key_bits": 512, "allow_insecure_key": True}, True),
    ],
)
def test_gains_are_those_of_the_leaves_where_scores_are_noisy(
    protocol: str, options: dict[str, object], noisy: bool
) -> None:
    columns = make_columns(9, 300, numeric=4)
    config = TrainingConfig(
        objective="binary",
        n_estimators=3,
        max_depth=3,
        max_bin=8,
        options=options,
        **({"min_child_weight": 0.0, "base_score": 0.5} if "private_leaves" in options else {}),
    )
    trees = train(split_among(columns, make_labels(9, columns), 2), config, protocol).shares["p0"].skeleton.trees
    for tree in trees:
        *_, gains = score_of_leaves(tree, 0, config)
        most = np.sum(tree.weight**2 * (tree.cover + config.reg_lambda)) / config.learning_rate**2
        assert gains <= most * (1 + 1e-6) or noisy, "exact gains add up to what the leaves gain"
    assert any((tree.gain > 0).any() for tree in trees)
