"""What `sealed` can be told, and what it fills in for itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from veilboost.config import DEFAULTS, ProtocolOptions, TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.fields import param
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.types import Role

UTILITIES = ("root", "square")


@dataclass(frozen=True)
class SealedOptions(ProtocolOptions):
    """Budgets and how they are used."""

    eps: float = param(
        1.0,
        "label epsilon of everything that passive parties and the model's users see",
        low=0,
        low_open=True,
        high=1000,
    )
    delta: float = param(
        DEFAULT_DELTA,
        "label delta; between parties it is that of the active party's policy, and need not be given",
        low=0,
        low_open=True,
        high=0.1,
    )
    eps_features: float = param(
        0.0, "epsilon of the passive statistics that the active party sees; 0: exact sums", low=0, high=1000
    )
    delta_features: float = param(
        DEFAULT_DELTA,
        "delta of the passive statistics; between parties it must be that of the passive parties' policies",
        low=0,
        low_open=True,
        high=0.1,
    )
    utility: str = param(
        "root", "what private selection prefers by: the root of the gain, or the gain", choices=UTILITIES
    )
    selection_share: float = param(
        0.5, "share of the label budget for selecting splits; the rest is for leaves", low=0.01, high=0.99
    )
    least_rows: int = param(0, "least rows of a child; 0: chosen for the number of rows", low=0)


def options_of(config: TrainingConfig) -> SealedOptions:
    return SealedOptions.from_dict(config.options)


def delta_option(config: TrainingConfig, role: Role) -> str | None:
    """Which option is the delta of a role's data; statistics without noise have none."""
    if role is Role.ACTIVE:
        return "delta"
    return "delta_features" if options_of(config).eps_features > 0 else None


def refuse(config: TrainingConfig) -> None:
    """Whatever would let a label out beside the paid ways (the proof names each)."""
    problems = {
        config.categories == "sets": "categories='sets' orders categories by their labels; use onehot or ordinal",
        config.early_stopping_rounds is not None: "early stopping looks at labels",
        config.gamma > 0: "gamma stops by a gain that is not private",
        config.scale_pos_weight != 1.0: "scale_pos_weight gives labels away by the hessians",
        config.sampling == "goss": "goss samples rows by their gradients",
        config.base_score not in {None, 0.5}: "base_score is 0.5, because the share of a class is not free",
        config.reg_lambda < 0.5: "reg_lambda is at least 0.5, for the sensitivity of the gain",
        config.max_delta_step > 0 or config.reg_alpha > 0: "reg_alpha and max_delta_step are not part of the proof",
    }
    if options_of(config).eps_features > 0:
        problems |= {
            config.proposal == "local": "with eps_features cuts are found once: proposal='global'",
            config.binning == "width": "with eps_features cuts are noisy quantiles: binning='quantile'",
            config.weighted_bins: "with eps_features cuts count no weights",
        }
    for found, problem in problems.items():
        if found:
            raise UnsupportedCombination(f"sealed: {problem}")


def completed(config: TrainingConfig, rows: int) -> TrainingConfig:
    """Fill in what was left at its default: trees, depth and rate for the budget and the rows, and base_score."""
    options = options_of(config)
    # What was measured on 24000 rows holds for the same product of both; noise in the cells wants fewer trees still.
    weakest = options.eps if options.eps_features == 0 else min(options.eps, options.eps_features / 8)
    signal = weakest * rows / 24_000
    trees, depth, rate = (10, 3, 0.5) if signal < 1.5 else (20, 4, 0.3) if signal < 3 else (40, 5, 0.2)
    least = options.least_rows or max(5, min(rows // 120, 2000))
    return replace(
        config,
        n_estimators=trees if config.n_estimators == DEFAULTS.n_estimators else config.n_estimators,
        max_depth=depth if config.max_depth == DEFAULTS.max_depth else config.max_depth,
        learning_rate=rate if config.learning_rate == DEFAULTS.learning_rate else config.learning_rate,
        base_score=0.5 if config.objective in {"auto", "binary"} else config.base_score,
        options={**config.options, "least_rows": least},
    )
