"""The parameters of `elxgb`, and what they cannot be combined with."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleParameter, UnsupportedCombination
from veilboost.fields import param
from veilboost.protocols.paillier.options import PaillierOptions
from veilboost.protocols.vertical.perturb import NoiseOptions, Ranges, loss_ranges, refuse_true_sums, refuse_void_noise

BACKENDS = ("paillier", "lattice")


@dataclass(frozen=True)
class ElxgbOptions(NoiseOptions, PaillierOptions):
    """How the first tree is encrypted and how later gradients are perturbed. Defaults are the paper's, but the key."""

    backend: str = param("paillier", "encryption of the first tree", choices=BACKENDS)
    mechanism: str = param("gaussian", "noise on the gradients of later trees", choices=("gaussian", "none"))
    epsilon: float = param(10.0, "what one release of one number of a person costs", low=0, low_open=True)
    delta: float = param(
        1e-4,
        "delta of one number of one person, as in the paper; totals are composed at the policy's delta",
        low=0,
        high=1,
        low_open=True,
    )
    noise_multiplier: float = param(0.0, "sigma over the range of a number; 0: from epsilon and delta", low=0)
    clip: float = param(0.5, "gradients are cut off at plus and minus this before noise", low=0, low_open=True)
    private_leaves: bool = param(False, "noise on the sums that leaf weights are made of too")
    clock: float = param(
        0.0, "seconds to wait for others after a level's first answer, then go on without them; 0: wait for all", low=0
    )


def ranges_of(config: TrainingConfig, options: ElxgbOptions, trees_per_round: int = 1) -> Ranges:
    """What noise must hide: gradients within the clipping, hessians within theirs or the loss's range."""
    _, h = loss_ranges(config, trees_per_round)
    # Hessians of 1 (first-order boosting, squared error) tell nothing and are not sent.
    sent = config.order == "second" and config.objective != "regression"
    return Ranges(options.clip, (options.clip_hessian or h) if sent else None)


def leaf_ranges(config: TrainingConfig, trees_per_round: int = 1) -> Ranges:
    """As `ranges_of`, of what leaf sums are made of: gradients that nothing was cut off from."""
    g, h = loss_ranges(config, trees_per_round)
    return Ranges(g, h if config.order == "second" else None)


def refuse(config: TrainingConfig) -> None:
    """What `elxgb` cannot do, before anything is sent or spent."""
    options = ElxgbOptions.from_dict(config.options)
    if config.categories == "sets":
        raise UnsupportedCombination(
            "a node of elxgb's encrypted model compares one number, not a set of categories",
            "set categories to ordinal or onehot",
        )
    if options.backend == "lattice" and options.key_bits != ElxgbOptions.key_bits:
        raise UnsupportedCombination("key_bits is for backend='paillier'", "leave it out")
    if options.mechanism == "none":
        return
    refuse_void_noise(config, options, "elxgb")
    if ranges_of(config, options).h == 0:
        raise ImpossibleParameter(
            f"hessians of objective {config.objective!r} have no bound, and noise must hide all of their range",
            "set clip_hessian to where they may be cut off",
        )
    if options.private_leaves:
        if leaf_ranges(config).g == 0:
            raise UnsupportedCombination(
                "private_leaves needs gradients with a bound", "use it for classification, or leave it off"
            )
        refuse_true_sums(config)
