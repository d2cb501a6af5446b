"""Every field of `TrainingConfig` in `secagg`: the model of pooled rows, bit for bit, or a refusal that says why."""

from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drawn_rows import trained_on_drawn_rows
from support import make_columns, make_labels
from veilboost.config import CATEGORY_MODES, METRICS, OBJECTIVES, TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.model.export import to_xgboost_json
from veilboost.model.joined import join
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.types import Column

pytestmark = pytest.mark.fast

ROWS, EDGES = 300, [150, 250]
USUAL = {"objective": "binary", "n_estimators": 4, "max_depth": 3, "max_bin": 8}
RANKING = ("auc", "aucpr", "ks")


@dataclass(frozen=True)
class Case:
    """A value other than the default; `refused`: part of the reason if `secagg` does not support it."""

    field: str
    value: Any
    also: tuple[tuple[str, Any], ...] = ()
    refused: str | None = None
    validates: bool = False

    @property
    def config(self):
        return TrainingConfig.from_dict({**USUAL, **dict(self.also), self.field: self.value})

    @property
    def name(self):
        return "-".join([f"{self.field}={self.value}", *(str(value) for _, value in self.also)])


METRIC_LOSS = {
    **dict.fromkeys(("mlogloss", "merror"), "multiclass"),
    **dict.fromkeys(("rmse", "mae"), "regression"),
    "mphe": "pseudo_huber",
    "poisson_deviance": "poisson",
    "gamma_deviance": "gamma",
    "tweedie_deviance": "tweedie",
}
CASES = (
    *(Case("objective", name) for name in OBJECTIVES if name not in ("absolute_error", "quantile")),
    Case("objective", "absolute_error", refused="quantiles of labels"),
    Case("objective", "quantile", refused="quantiles of labels"),
    Case("quantile_alpha", 0.3, (("objective", "quantile"),), refused="quantiles of labels"),
    Case("huber_slope", 3.0, (("objective", "pseudo_huber"),)),
    Case("tweedie_variance_power", 1.2, (("objective", "tweedie"),)),
    Case("n_estimators", 7),
    Case("max_depth", 1),
    Case("max_depth", 6),
    Case("learning_rate", 0.05),
    Case("max_bin", 2),
    Case("max_bin", 400),
    Case("binning", "width"),
    Case("proposal", "local", refused="proposal"),
    *(Case("categories", mode) for mode in CATEGORY_MODES),
    Case("reg_lambda", 0.0),
    Case("reg_alpha", 1.0),
    Case("gamma", 2.0),
    Case("min_child_weight", 9.0),
    Case("min_node_rows", 5, refused="min_node_rows"),
    Case("max_delta_step", 0.2),
    Case("subsample", 0.5),
    Case("sampling", "goss", refused="goss"),
    Case("top_rate", 0.3, (("sampling", "goss"),), refused="goss"),
    Case("other_rate", 0.3, (("sampling", "goss"),), refused="goss"),
    Case("colsample_bytree", 0.4),
    Case("colsample_bylevel", 0.5),
    Case("max_cat_to_onehot", 9, (("categories", "sets"),)),
    Case("max_cat_threshold", 2, (("categories", "sets"),)),
    Case("monotone_constraints", {"n0": 1, "n1": -1}),
    Case("interaction_constraints", {"pair": ("n0", "n1"), "others": ("n2", "n3")}),
    Case("scale_pos_weight", 3.0),
    Case("base_score", 0.3),
    Case("base_score", 0.3, (("objective", "pseudo_huber"),)),
    Case("order", "first"),
    Case("weighted_bins", True, refused="weighted_bins"),
    *(
        Case(
            "eval_metric",
            name,
            (("objective", METRIC_LOSS.get(name, "binary")),),
            None,
            True,
        )
        for name in METRICS
        if name != "quantile"
    ),
    Case("eval_metric", "quantile", refused="does not fit"),
    Case("early_stopping_rounds", 1, (("n_estimators", 40), ("learning_rate", 1.0)), validates=True),
    Case("early_stopping_rounds", 2, refused="validation rows"),
    Case("gradient_bits", 8),
    Case("gradient_bits", 30),
    Case("random_state", 9, (("subsample", 0.5), ("colsample_bytree", 0.5))),
    Case("options", {"colluding": 2}),  # without epsilon there is no noise, so it has no effect
    Case("options", {"eps": 1.0}, refused="eps"),
)


def whole(objective):
    """Missing values, categories, two constant columns (one of them without values), and ties."""
    columns = make_columns(21, rows=ROWS, numeric=4, categorical=2, missing=0.1)
    constant = (Column("one", np.ones(ROWS, np.float32)), Column("none", np.full(ROWS, np.nan, np.float32)))
    like = {"auto": "binary", "gamma": "poisson", "tweedie": "poisson"}
    base = like.get(objective, objective if objective in ("binary", "multiclass", "poisson") else "regression")
    label = make_labels(21, columns, base)
    label = label / 100.0 if base == "regression" else label  # residuals near the slope of pseudo_huber
    label = label - label.mean() if objective == "pseudo_huber" else label  # its base score is one step from 0
    label = label**3 if objective == "poisson" else label  # leaves that its max_delta_step limits
    return PartyTable(np.arange(ROWS), (*columns, *constant), label + 0.5 if objective == "gamma" else label)


def trained(case, table, held_out):
    parts = {f"p{at}": table.take(rows) for at, rows in enumerate(np.split(np.arange(ROWS), EDGES))}
    masks = None if held_out is None else dict(zip(parts, np.split(held_out, EDGES), strict=True))
    return simulate_training(parts, SERVER, "secagg", case.config, held_out=masks)


def test_every_field_has_a_case():
    assert {case.field for case in CASES} == {field.name for field in fields(TrainingConfig)}


@pytest.mark.parametrize("case", [case for case in CASES if case.refused is None], ids=lambda case: case.name)
def test_an_option_gives_the_model_of_pooled_rows(case):
    table = whole(case.config.objective)
    held_out = np.arange(ROWS) % 5 == 0 if case.validates else None
    run = trained(case, table, held_out)
    plain = trained_on_drawn_rows(table, replace(case.config, options={}), held_out)
    assert run.model.sha256() == join(plain.shares).sha256()
    assert any(tree.left[0] >= 0 for tree in run.model.skeleton.trees)  # no model of leaves alone
    found, expected = ([result.validation for result in each.history] for each in (run, plain))
    if case.config.eval_metric in RANKING:  # ties within an interval of scores
        assert found == pytest.approx(expected, abs=0.01)
    elif case.validates and case.config.eval_metric != "auto":
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if case.refused is not None], ids=lambda case: case.name)
def test_what_is_not_supported_is_refused_with_the_reason(case):
    with pytest.raises((UnsupportedCombination, InvalidParameter), match=case.refused) as refusal:
        trained(case, whole(case.config.objective), None)
    assert "; " in str(refusal.value)  # what to change


def test_another_engine_is_refused():
    table = whole("binary")
    with pytest.raises(UnsupportedCombination, match="engine"):
        simulate_training(
            {"p0": table, "p1": table}, SERVER, "secagg", TrainingConfig(), engine=SimpleNamespace(name="disk")
        )


def test_the_model_is_exported_and_predicts_as_that_of_pooled_rows():
    case, table = Case("max_depth", 4, (("objective", "multiclass"),)), whole("multiclass")
    run = trained(case, table, None)
    plain = join(simulate_training({"a": table}, "a", "plain", case.config).shares)
    exported, expected = (to_xgboost_json(model)["learner"]["gradient_booster"] for model in (run.model, plain))
    assert exported == expected
    for share in run.shares.values():
        assert np.array_equal(join({"model": share}).margins(table.columns), plain.margins(table.columns))
