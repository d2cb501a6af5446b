"""The parameters of `ldp`, and what they cannot be combined with."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.errors import ImpossibleParameter, UnsupportedCombination
from veilboost.fields import param
from veilboost.protocols.vertical.perturb import Ranges, loss_ranges

MECHANISMS = ("gaussian", "laplace", "duchi", "piecewise", "hybrid", "none")
SCORES = ("second", "first")


@dataclass(frozen=True)
class LdpOptions(ProtocolOptions):
    """How gradients are perturbed and how noisy sums are scored."""

    mechanism: str = param("gaussian", "noise on each person's gradient", choices=MECHANISMS)
    epsilon: float = param(1.0, "what one release of one person's gradient and hessian costs", low=0, low_open=True)
    delta: float = param(
        1e-3,
        "delta of one release (gaussian), as in the paper; totals are composed at the policy's delta",
        low=0,
        high=1,
        low_open=True,
    )
    noise_multiplier: float = param(
        0.0, "sigma over the sensitivity of a release (gaussian); 0: from epsilon and delta", low=0
    )
    score: str = param(
        "second",
        "from sums of gradients and hessians, or from gradients alone (FedXGBoost eq. 12)",
        choices=SCORES,
    )
    clip: float = param(0.0, "gradients are cut off at plus and minus this; 0: the range of the loss", low=0)
    clip_hessian: float = param(0.0, "hessians are cut off at this; 0: the range of the loss", low=0)
    per_node: bool = param(False, "fresh noise at every level, as published, instead of once per tree")
    private_leaves: bool = param(
        False, "leaf weights from the noisy gradients too: then nothing but the releases depends on the labels"
    )
    paper_form: bool = param(False, "as published: exact sums of each node are sent, right sums are what is left")


def ranges_of(config: TrainingConfig, options: LdpOptions, trees_per_round: int = 1) -> Ranges:
    """The ranges that noise must hide: of the loss, or what values are clipped to."""
    g, h = loss_ranges(config, trees_per_round)
    # Hessians of 1 (first-order boosting, squared error) tell nothing and cost nothing.
    sent = options.score == "second" and config.order == "second" and config.objective != "regression"
    return Ranges(options.clip or g, (options.clip_hessian or h) if sent else None)


def refuse(config: TrainingConfig) -> None:
    """What `ldp` cannot do, before anything is sent or spent."""
    options = LdpOptions.from_dict(config.options)
    if config.categories == "sets":
        raise UnsupportedCombination(
            "ldp has no noisy sums per category to order sets by", "set categories to ordinal or onehot"
        )
    if options.score == "first" and config.reg_lambda == 0:
        raise UnsupportedCombination("the first-order score divides by reg_lambda", "set reg_lambda above 0")
    if options.private_leaves:
        _refuse_what_leaks(config, options)
    if options.mechanism == "none":
        return
    if options.delta == 1 and options.mechanism == "gaussian":
        raise ImpossibleParameter(
            "delta=1 protects nobody", "give a number between 0 and 1, well below one over the rows"
        )
    if options.noise_multiplier and options.mechanism != "gaussian":
        raise UnsupportedCombination("noise_multiplier is for mechanism='gaussian'", "set epsilon instead")
    if config.sampling == "goss":
        raise UnsupportedCombination(
            "goss tells passive parties who has a large gradient, which ldp is to hide", "use sampling='uniform'"
        )
    ranges = ranges_of(config, options)
    if ranges.g == 0 or ranges.h == 0:
        raise ImpossibleParameter(
            f"gradients of objective {config.objective!r} have no bound, and noise must hide all of their range",
            "set clip (and clip_hessian, for poisson) to where gradients may be cut off",
        )


def _refuse_what_leaks(config: TrainingConfig, options: LdpOptions) -> None:
    """With `private_leaves` all that passive parties see must follow from the releases."""
    if options.per_node or options.paper_form:
        raise UnsupportedCombination(
            "private_leaves goes with noise once per tree and no exact sums", "leave per_node and paper_form off"
        )
    if config.min_child_weight > 0 or config.base_score is None:
        raise UnsupportedCombination(
            "which nodes may split follows from true hessians, and the first prediction from the labels",
            "with private_leaves set min_child_weight to 0 and base_score to a number known beforehand",
        )
