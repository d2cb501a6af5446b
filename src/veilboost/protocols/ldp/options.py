"""The parameters of `ldp`, and what they cannot be combined with."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleParameter, UnsupportedCombination
from veilboost.fields import param
from veilboost.protocols.vertical.perturb import NoiseOptions, Ranges, loss_ranges, refuse_true_sums, refuse_void_noise

SCORES = ("second", "first")


@dataclass(frozen=True)
class LdpOptions(NoiseOptions):
    """How gradients are perturbed and how noisy sums are scored."""

    score: str = param(
        "second", "from sums of gradients and hessians, or from gradients alone (FedXGBoost eq. 12)", choices=SCORES
    )
    per_node: bool = param(False, "fresh noise at every level, as published, instead of once per tree")
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
        if options.per_node or options.paper_form:
            raise UnsupportedCombination(
                "private_leaves goes with noise once per tree and no exact sums", "leave per_node and paper_form off"
            )
        refuse_true_sums(config)
    if options.mechanism == "none":
        return
    if options.noise_multiplier and options.mechanism != "gaussian":
        raise UnsupportedCombination("noise_multiplier is for mechanism='gaussian'", "set epsilon instead")
    refuse_void_noise(config, options, "ldp")
    ranges = ranges_of(config, options)
    if ranges.g == 0 or ranges.h == 0:
        raise ImpossibleParameter(
            f"gradients of objective {config.objective!r} have no bound, and noise must hide all of their range",
            "set clip (and clip_hessian, for poisson) to where gradients may be cut off",
        )
