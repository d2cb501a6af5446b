"""The parameters of `masked`, and what they cannot be combined with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.errors import ImpossibleParameter, UnsupportedCombination
from veilboost.fields import param

SCALES = ("adaptive", "worst")
BUDGETS = ("release", "composed", "label")
FORMULAS = ("corrected", "printed")

# Section 6.2: 60 trees of depth 6, advanced composition over T * D steps, delta_AP = 1e-3, eps_PP = 1, delta_PP = 1/n
# (the last three are the defaults below). Theorem 3 then leaves W = 1. `eps_ap` is what the paper varies.
PAPER_SETTING: Mapping[str, Any] = {
    "n_estimators": 60,
    "max_depth": 6,
    "options": {"budget": "composed", "formulas": "printed", "noise_vectors": 1},
}


@dataclass(frozen=True)
class MaskedOptions(ProtocolOptions):
    """How much noise masks carry: from budgets by Theorems 2 and 3, or by hand."""

    eps_ap: float = param(4.0, "the active party's epsilon (Theorem 2), for what `budget` says", low=0, low_open=True)
    delta_ap: float = param(
        1e-3,
        "the active party's delta by the paper's theorem; totals are composed at the policy's delta",
        low=0,
        low_open=True,
        high=0.999,
    )
    eps_pp: float = param(1.0, "a passive party's epsilon for one mask (Theorem 3)", low=0, low_open=True)
    delta_pp: float | None = param(
        None, "a passive party's delta for one mask; unset: one over the rows", low=0, low_open=True, high=0.999
    )
    budget: str = param(
        "release",
        "what eps_ap pays for: one noised vector, all T * D steps by advanced composition, or one person's label "
        "over the whole job",
        choices=BUDGETS,
    )
    scale: str = param(
        "adaptive",
        "noise for the rows that a candidate sends left (a mask's scale then tells their number), or for all rows",
        choices=SCALES,
    )
    noise_vectors: int | None = param(None, "noise vectors of a mask (W); unset: as the budget allows", low=1, high=64)
    formulas: str = param(
        "corrected", "Theorem 3 and the range of gradients corrected, or as printed", choices=FORMULAS
    )
    sigma1: float | None = param(None, "by hand: noise that cancels in sums; 0 with sigma2=0 turns noise off", low=0)
    sigma2: float | None = param(None, "by hand: noise that stays in sums", low=0)
    clip: float | None = param(
        None, "gradients and hessians are cut off here; needed where the loss has no range", low=0, low_open=True
    )
    chunk_megabytes: float = param(8.0, "how much of the masks travels in one message", low=0.001, high=1024)

    @property
    def by_hand(self) -> bool:
        return self.sigma1 is not None and self.sigma2 is not None

    @property
    def noise_off(self) -> bool:
        return self.by_hand and self.sigma1 == 0 and self.sigma2 == 0

    @property
    def vectors(self) -> int:
        """W. One vector leaves the largest share of the noise in the null space, and costs the fewest bytes."""
        return 1 if self.noise_vectors is None else self.noise_vectors


def refuse(config: TrainingConfig) -> None:
    """What `masked` cannot do, before anything is sent or spent."""
    options = MaskedOptions.from_dict(config.options)
    if config.categories == "sets":
        raise UnsupportedCombination(
            "masked has no sums per category to order sets by", "set categories to ordinal or onehot"
        )
    if (options.sigma1 is None) != (options.sigma2 is None):
        raise UnsupportedCombination("sigma1 and sigma2 are given together", "give both, or neither and budgets")
    if options.noise_off:
        return
    if options.by_hand:
        if options.sigma2 == 0:
            raise ImpossibleParameter(
                "sigma2=0 shows every splitting vector to the active party",
                "give a sigma2 above 0, or sigma1=0 as well to turn noise off",
            )
    else:
        check_passive_budget(options)
    if config.sampling == "goss":
        raise UnsupportedCombination(
            "goss tells passive parties who has a large gradient, which masked is to hide", "use sampling='uniform'"
        )
    if config.objective in ("regression", "poisson") and options.clip is None:
        raise UnsupportedCombination(
            f"the gradients of {config.objective} have no range that noise could be measured by",
            "set the option clip to the largest gradient that is to count",
        )


def check_passive_budget(options: MaskedOptions) -> None:
    """Theorem 3 speaks only of eps_PP > W ln 2."""
    least = options.vectors * math.log(2.0)
    if options.eps_pp > least:
        return
    most = math.ceil(options.eps_pp / math.log(2.0)) - 1
    fewer = f"take noise_vectors={most}, or " if most else ""
    raise ImpossibleParameter(
        f"eps_pp={options.eps_pp:g} is not above W ln 2 = {least:.4f} (W = {options.vectors})",
        f"{fewer}give an eps_pp above {least:.4f}",
    )
