"""Every training parameter once: its default, its range, its help text.

The estimators' defaults, the command line's options and the reference page are made from this file.
Names follow XGBoost's.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

from veilboost.errors import ImpossibleParameter, UnsupportedCombination


@dataclass(frozen=True)
class ParameterInfo:
    """What is known of one parameter beside its default."""

    help: str
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    choices: tuple[str, ...] = ()
    flag: str | None = None

    def range_text(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        if self.low == -math.inf and self.high == math.inf:
            return "any"
        left = "(" if self.low_open or self.low == -math.inf else "["
        right = ")" if self.high == math.inf else "]"
        return f"{left}{_plain(self.low)}, {_plain(self.high)}{right}"


def _plain(bound: float) -> str:
    return str(int(bound)) if math.isfinite(bound) and bound == int(bound) else f"{bound:g}"


def param(default: Any, help: str, **info: Any) -> Any:
    """A field with its default (a type: a new one of it), help and range."""
    metadata = {"info": ParameterInfo(help, **info)}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


OBJECTIVES = ("auto", "binary", "multiclass", "regression", "poisson")
METRICS = ("auto", "auc", "logloss", "error", "rmse", "mae", "mlogloss", "merror", "aucpr", "ks")
CATEGORY_MODES = ("auto", "ordinal", "onehot", "sets")
PROPOSALS = ("global", "local")
BINNINGS = ("quantile", "width")
ORDERS = ("second", "first")
SAMPLINGS = ("uniform", "goss")


OptionValue = bool | int | float | str


class Checked:
    """A dataclass of parameters, each checked when it is made."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            # Frozen, but a whole number that NumPy or a caller wrote as 1 for 1.0 becomes what the field says.
            object.__setattr__(self, item.name, checked_parameter(getattr(self, item.name), item))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(item.name for item in dataclasses.fields(cls))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        unknown = sorted(set(values) - set(cls.names()))
        if unknown:
            raise ImpossibleParameter(f"unknown parameter {', '.join(unknown)}", "see docs/reference/parameters.md")
        return cls(**values)


@dataclass(frozen=True)
class ProtocolOptions(Checked):
    """A protocol's own parameters: none here; a protocol that has some declares a subclass with `param` fields."""


@dataclass(frozen=True)
class TrainingConfig(Checked):
    """The parameters of boosting that all protocols share. Validated when made."""

    objective: str = param("auto", "loss to minimise; auto looks at the labels", choices=OBJECTIVES)
    n_estimators: int = param(100, "number of boosting rounds", low=1, high=1_000_000, flag="--trees")
    max_depth: int = param(6, "depth of a tree", low=1, high=16, flag="--depth")
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
    seed: int = param(
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


def info_of(item: dataclasses.Field[Any]) -> ParameterInfo:
    return cast(ParameterInfo, item.metadata["info"])


def checked_parameter(value: Any, item: dataclasses.Field[Any]) -> Any:
    """The value in the field's own type, or an error: wrong type, out of range."""
    info, kind, name = info_of(item), str(item.type), item.name
    if kind.startswith("Mapping"):
        return _checked_options(value, name)
    if value is None:
        if "None" in kind:
            return None
        raise ImpossibleParameter(f"{name} is not set")
    if kind == "str":
        if value not in info.choices:
            raise ImpossibleParameter(f"{name}={value!r} is not one of {info.range_text()}")
        return value
    if kind == "bool":
        if not isinstance(value, bool):
            raise ImpossibleParameter(f"{name}={value!r} is not true or false")
        return value
    whole = kind.startswith("int")
    if isinstance(value, bool) or not isinstance(value, numbers.Integral if whole else numbers.Real):
        raise ImpossibleParameter(f"{name}={value!r} is not a {'whole ' if whole else ''}number")
    number: int | float = int(cast(int, value)) if whole else float(value)
    too_low = number < info.low or (info.low_open and number == info.low)
    if not math.isfinite(number) or too_low or number > info.high:
        raise ImpossibleParameter(f"{name}={value!r} is outside {info.range_text()}")
    return number


def _checked_options(value: Any, name: str) -> dict[str, OptionValue]:
    """Which names and ranges are allowed, the protocol knows; here they are only names and plain values."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ImpossibleParameter(f"{name} is not a table of names and values")
    entries = cast(Mapping[Any, Any], value)
    for key, entry in entries.items():
        if not isinstance(key, str) or not isinstance(entry, bool | int | float | str):
            raise ImpossibleParameter(f"{name} holds something beside text, numbers, true and false")
    return dict(entries)


DEFAULTS = TrainingConfig()
