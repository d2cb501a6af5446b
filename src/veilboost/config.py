"""All training parameters, each declared once with its default, range and help text.

The estimators' defaults, the command-line options and the reference page are derived from this file. Names follow
XGBoost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from veilboost.errors import UnsupportedCombination
from veilboost.fields import Checked, param

OBJECTIVES = (
    "auto",
    "binary",
    "multiclass",
    "regression",
    "absolute_error",
    "quantile",
    "pseudo_huber",
    "poisson",
    "gamma",
    "tweedie",
)
METRICS = (
    "auto",
    "auc",
    "logloss",
    "error",
    "rmse",
    "mae",
    "quantile",
    "mphe",
    "poisson_deviance",
    "gamma_deviance",
    "tweedie_deviance",
    "mlogloss",
    "merror",
    "aucpr",
    "ks",
)
CATEGORY_MODES = ("auto", "ordinal", "onehot", "sets")
PROPOSALS = ("global", "local")
BINNINGS = ("quantile", "width")
ORDERS = ("second", "first")
SAMPLINGS = ("uniform", "goss")

# XGBoost's names of the objectives.
OBJECTIVE_ALIASES = {
    "binary:logistic": "binary",
    "multi:softprob": "multiclass",
    "multi:softmax": "multiclass",
    "reg:squarederror": "regression",
    "reg:absoluteerror": "absolute_error",
    "reg:quantileerror": "quantile",
    "reg:pseudohubererror": "pseudo_huber",
    "count:poisson": "poisson",
    "reg:gamma": "gamma",
    "reg:tweedie": "tweedie",
}

# XGBoost's names of metrics, where they differ.
METRIC_ALIASES = {"gamma-deviance": "gamma_deviance"}

# Losses whose leaves are quantiles of their rows' residuals.
LEAF_QUANTILE_OBJECTIVES = ("absolute_error", "quantile")

# The parameters that only one loss has. XGBoost has the same names.
LOSS_PARAMETERS = {"quantile": "quantile_alpha", "pseudo_huber": "huber_slope", "tweedie": "tweedie_variance_power"}

OptionValue = bool | int | float | str

UNSET_ROUNDS, AUTO_ROUNDS = -1, -2  # instead of a number: nobody gave one; the protocol chooses one
ROUNDS = 100  # the default of most protocols


def named_sets(given: Any) -> Any:
    """A list of lists, as XGBoost has it, with numbers from 1 as names; anything else as it is."""
    if isinstance(given, list | tuple):
        return {str(at): columns for at, columns in enumerate(cast("list[Any]", given), 1)}
    return given


@dataclass(frozen=True)
class ProtocolOptions(Checked):
    """Parameters of one protocol. A protocol that has parameters declares a subclass with `param` fields."""


@dataclass(frozen=True)
class TrainingConfig(Checked):
    """The boosting parameters that all protocols share, validated on construction."""

    objective: str = param(
        "auto",
        "loss to minimise; auto: chosen from the labels; XGBoost's names are accepted too (binary:logistic, "
        "multi:softprob, multi:softmax, reg:squarederror, reg:absoluteerror, reg:quantileerror, "
        "reg:pseudohubererror, count:poisson, reg:gamma, reg:tweedie)",
        choices=OBJECTIVES,
        aliases=OBJECTIVE_ALIASES,
    )
    n_estimators: int = param(
        UNSET_ROUNDS,
        "number of boosting rounds; auto: as many as the privacy budget and the number of rows allow (only sealed); "
        "default: auto in sealed, otherwise 100",
        low=1,
        high=1_000_000,
        words={"auto": AUTO_ROUNDS, "default": UNSET_ROUNDS},
        alias="--trees",
    )
    max_depth: int = param(6, "maximum depth of a tree", low=1, high=16, alias="--depth")
    learning_rate: float = param(0.3, "shrinkage of each tree's leaf weights", low=0, high=1, low_open=True)
    max_bin: int = param(64, "maximum number of bins per numeric feature", low=2, high=1024)
    binning: str = param("quantile", "how bins are chosen: equal counts (quantile) or equal width", choices=BINNINGS)
    proposal: str = param(
        "global", "propose cuts once (global) or again for every node (local, FedXGBoost Alg. 5)", choices=PROPOSALS
    )
    categories: str = param(
        "auto",
        "how categories are split: as ordered numbers (ordinal), one against the rest (onehot), or as sets ordered by "
        "gradient (sets); auto: sets if the protocol supports them, otherwise onehot",
        choices=CATEGORY_MODES,
    )
    max_cat_to_onehot: int = param(
        1,
        "columns with fewer categories than this are split one against the rest, if categories are split as sets; "
        "1: none",
        low=1,
        high=65_536,
    )
    max_cat_threshold: int = param(
        64,
        "of a column with more categories than this, a split by a set has fewer than this on the side to which missing "
        "values do not go",
        low=1,
        high=65_536,
    )
    reg_lambda: float = param(1.0, "L2 regularisation of leaf weights", low=0)
    reg_alpha: float = param(0.0, "L1 regularisation of leaf weights", low=0)
    gamma: float = param(0.0, "minimum loss reduction of a split", low=0)
    min_child_weight: float = param(1.0, "minimum hessian sum of a child", low=0)
    min_node_rows: int = param(
        1,
        "minimum number of training rows in a node and in its sibling; with fewer, both become leaves and no sums are "
        "computed for them",
        low=1,
        high=2**31 - 1,
    )
    max_delta_step: float = param(0.0, "maximum absolute leaf weight before shrinkage; 0: no limit", low=0)
    subsample: float = param(1.0, "fraction of rows sampled in each round", low=0, high=1, low_open=True)
    sampling: str = param(
        "uniform",
        "how rows are sampled: uniform, or by gradient (goss, which reveals the rows with large gradients to passive "
        "parties)",
        choices=SAMPLINGS,
    )
    top_rate: float = param(
        0.2, "goss: fraction of rows with the largest gradients, which are kept", low=0, high=1, low_open=True
    )
    other_rate: float = param(0.1, "goss: fraction of rows sampled from the rest", low=0.001, high=1)
    colsample_bytree: float = param(1.0, "fraction of columns sampled for each tree", low=0, high=1, low_open=True)
    colsample_bylevel: float = param(
        1.0, "fraction of a tree's columns sampled for each of its levels", low=0, high=1, low_open=True
    )
    monotone_constraints: Mapping[str, int] = param(
        dict,
        "columns in which predictions may only rise (1) or only fall (-1), by name",
        low=-1,
        high=1,
        example="income = 1",
    )
    interaction_constraints: Mapping[str, tuple[str, ...]] = param(
        dict,
        "sets of columns: the columns of a path from the root to a leaf must all be in one of the sets, or be one "
        "column; by name of the set, or as a list of lists",
        keys="party",
        example='spending = ["income", "debt"]',
    )
    scale_pos_weight: float = param(1.0, "weight of rows with label 1 (binary only)", low=0, low_open=True)
    quantile_alpha: float = param(0.5, "quantile that objective quantile predicts", low=0.001, high=0.999)
    huber_slope: float = param(
        1.0,
        "objective pseudo_huber: residual from which the loss grows linearly",
        low=0.001,
        high=1e9,
    )
    tweedie_variance_power: float = param(
        1.5,
        "objective tweedie: the variance is proportional to the mean to this power; near 1 as poisson, near 2 as gamma",
        low=1.001,
        high=1.999,
    )
    base_score: float | None = param(None, "prediction before the first tree; unset: computed from the labels")
    order: str = param("second", "second-order boosting, or first-order boosting (GBDT: h = 1)", choices=ORDERS)
    weighted_bins: bool = param(
        False, "weight the quantiles by sample weights, as XGBoost does (sends the weights to passive parties)"
    )
    eval_metric: str = param("auto", "metric for reports and early stopping", choices=METRICS, aliases=METRIC_ALIASES)
    early_stopping_rounds: int | None = param(
        None, "stop after this many rounds without improvement on the validation rows", low=1
    )
    gradient_bits: int = param(12, "bits of a gradient in fixed-point arithmetic", low=8, high=30)
    random_state: int = param(
        0, "seed for row and column sampling and for hold-out splits; noise is never seeded", low=0, high=2**53 - 1
    )

    options: Mapping[str, OptionValue] = param(dict, "parameters of the protocol, by name", flag="--option")

    def __post_init__(self) -> None:
        object.__setattr__(self, "interaction_constraints", named_sets(self.interaction_constraints))
        super().__post_init__()
        for objective, name in LOSS_PARAMETERS.items():
            if self.objective != objective and getattr(self, name) != getattr(type(self), name):
                raise UnsupportedCombination(
                    f"{name} is a parameter of objective {objective!r}, and objective is {self.objective!r}",
                    f"set objective to {objective!r}, or leave {name} out",
                )
        if self.proposal == "local" and self.weighted_bins:
            raise UnsupportedCombination(
                "weighted_bins needs proposal='global'", "set proposal to 'global' or weighted_bins to false"
            )
        if self.sampling == "goss":
            if self.subsample < 1.0:
                raise UnsupportedCombination(
                    "subsample needs sampling='uniform', and sampling is 'goss'",
                    "set subsample to 1; with goss, top_rate and other_rate set the fractions of rows",
                )
            if self.top_rate + self.other_rate > 1.0:
                raise UnsupportedCombination(
                    "top_rate and other_rate sum to more than 1", "lower one of them: their sum must be at most 1"
                )
        elif (self.top_rate, self.other_rate) != (type(self).top_rate, type(self).other_rate):
            raise UnsupportedCombination(
                "top_rate and other_rate need sampling='goss'",
                "set sampling to 'goss', or leave top_rate and other_rate at their defaults",
            )


DEFAULTS = TrainingConfig()
CONSTRAINTS = ("monotone_constraints", "interaction_constraints")  # the parameters that name columns
