"""Every training parameter once: its default, its range, its help text.

The estimators' defaults, the command line's options and the reference page are made from this file.
Names follow XGBoost's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veilboost.errors import UnsupportedCombination
from veilboost.fields import Checked, param

OBJECTIVES = ("auto", "binary", "multiclass", "regression", "poisson")
METRICS = ("auto", "auc", "logloss", "error", "rmse", "mae", "mlogloss", "merror", "aucpr", "ks")
CATEGORY_MODES = ("auto", "ordinal", "onehot", "sets")
PROPOSALS = ("global", "local")
BINNINGS = ("quantile", "width")
ORDERS = ("second", "first")
SAMPLINGS = ("uniform", "goss")

OptionValue = bool | int | float | str


@dataclass(frozen=True)
class ProtocolOptions(Checked):
    """A protocol's own parameters: none here; a protocol that has some declares a subclass with `param` fields."""


@dataclass(frozen=True)
class TrainingConfig(Checked):
    """The parameters of boosting that all protocols share. Validated when made."""

    objective: str = param("auto", "loss to minimise; auto looks at the labels", choices=OBJECTIVES)
    n_estimators: int = param(100, "number of boosting rounds", low=1, high=1_000_000, alias="--trees")
    max_depth: int = param(6, "depth of a tree", low=1, high=16, alias="--depth")
    learning_rate: float = param(0.3, "shrinkage of each tree", low=0, high=1, low_open=True)
    max_bin: int = param(64, "most bins per numeric feature", low=2, high=1024)
    binning: str = param("quantile", "where bins lie: equal counts or equal width", choices=BINNINGS)
    proposal: str = param("global", "cuts once for all, or again for every node (FedXGBoost Alg. 5)", choices=PROPOSALS)
    categories: str = param(
        "auto",
        "categories as numbers, one against the rest, or sets ordered by gradient; auto: sets where the protocol can",
        choices=CATEGORY_MODES,
    )
    reg_lambda: float = param(1.0, "L2 regularisation of leaf weights", low=0)
    reg_alpha: float = param(0.0, "L1 regularisation of leaf weights", low=0)
    gamma: float = param(0.0, "least loss reduction of a split", low=0)
    min_child_weight: float = param(1.0, "least hessian sum of a child", low=0)
    min_node_rows: int = param(
        1,
        "fewest rows to fit on that a node and its sibling need for sums to be made; with fewer both are leaves",
        low=1,
        high=2**31 - 1,
    )
    max_delta_step: float = param(0.0, "most a leaf may weigh before shrinkage; 0 is no limit", low=0)
    subsample: float = param(1.0, "share of rows drawn for each round", low=0, high=1, low_open=True)
    sampling: str = param(
        "uniform",
        "how rows are drawn: all alike, or those with large gradients first (tells passive parties which these are)",
        choices=SAMPLINGS,
    )
    top_rate: float = param(0.2, "share of rows kept for their gradients (goss)", low=0, high=1, low_open=True)
    other_rate: float = param(0.1, "share of rows drawn from the others (goss)", low=0.001, high=1)
    colsample_bytree: float = param(1.0, "share of columns drawn for each tree", low=0, high=1, low_open=True)
    scale_pos_weight: float = param(1.0, "weight of positive rows (binary)", low=0, low_open=True)
    base_score: float | None = param(None, "prediction before the first tree; unset: from the labels")
    order: str = param("second", "second-order boosting, or first-order (GBDT: h = 1)", choices=ORDERS)
    weighted_bins: bool = param(
        False, "quantiles count sample weights, as XGBoost's do (sends the weights to passive parties)"
    )
    eval_metric: str = param("auto", "metric to report and to stop by", choices=METRICS)
    early_stopping_rounds: int | None = param(
        None, "stop after so many rounds without improvement on the validation rows", low=1
    )
    gradient_bits: int = param(20, "bits of a gradient on the fixed-point grid", low=8, high=30)
    random_state: int = param(
        0, "seed of row and column sampling and of hold-out splits; noise is never seeded", low=0, high=2**53 - 1
    )

    options: Mapping[str, OptionValue] = param(dict, "the protocol's own parameters, by name", flag="--option")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.proposal == "local" and self.weighted_bins:
            raise UnsupportedCombination("weighted_bins needs proposal='global'")
        if self.sampling == "goss":
            if self.subsample < 1.0:
                raise UnsupportedCombination(
                    "subsample draws rows where sampling='uniform'",
                    "leave it at 1; top_rate and other_rate are goss's own",
                )
            if self.top_rate + self.other_rate > 1.0:
                raise UnsupportedCombination(
                    "top_rate and other_rate are more than all rows", "let them sum to 1 at most"
                )
        elif (self.top_rate, self.other_rate) != (type(self).top_rate, type(self).other_rate):
            raise UnsupportedCombination("top_rate and other_rate need sampling='goss'")


DEFAULTS = TrainingConfig()
