"""What `sealed` is and claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.crypto.lattice.keys import SECURITY_BITS
from veilboost.privacy.calibrate import CalibrationRequest
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.cost import any_size
from veilboost.protocols.lattice.cost import COST, memory
from veilboost.protocols.lattice.messages import LatticeRequest, LatticeRound, LatticeSums
from veilboost.protocols.sealed.accounting import feature_multiplier, label_noise, noise_bits, plan
from veilboost.protocols.sealed.active import sealed_active
from veilboost.protocols.sealed.options import SealedOptions, completed, delta_option, options_of, refuse
from veilboost.protocols.sealed.passive import SealedPassiveCipher
from veilboost.protocols.spec import BinSums, Evidence, ProtocolSpec
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer
from veilboost.protocols.vertical.passive import passive_by
from veilboost.protocols.vertical.statements import OWN_FEATURES, OWN_SIDES, of_passive


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """Trees, depth, rate and noise for the budgets asked for."""
    options = dict(request.options)
    if request.epsilon_active is not None:
        options["eps"] = request.epsilon_active
    if request.delta_active is not None:
        options["delta"] = request.delta_active
    if request.epsilon_passive is not None:
        options["eps_features"] = request.epsilon_passive
    if request.delta_passive is not None:
        options["delta_features"] = request.delta_passive
    config = completed(
        TrainingConfig(n_estimators=request.trees, max_depth=request.depth, options=options), request.rows
    )
    chosen = options_of(config)
    noise = label_noise(chosen, config.n_estimators, config.max_depth)
    found: dict[str, Any] = {
        "trees": config.n_estimators,
        "depth": config.max_depth,
        "learning_rate": config.learning_rate,
        "least_rows": chosen.least_rows,
        "selection_epsilon": noise.selection,
        "leaf_sigma": noise.leaf_sigma,
    }
    if chosen.eps_features > 0:
        found["cell_multiplier"] = feature_multiplier(chosen, config.n_estimators, config.max_depth)
    return found


SPEC = ProtocolSpec(
    name="sealed",
    setting="vertical",
    summary="lattice encryption, private selection of splits, private leaves, noise inside the ciphertexts",
    source="VeilBoost",
    exact=False,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="labels",
                adversary="every passive party, and whoever gets the model",
                status=Status.SOUND,
                why="(eps, delta) differential privacy of all they see, one label replaced: private selection, noisy "
                "leaves, everything else encrypted or free of labels; ring-LWE at 128 bits",
            ),
            OWN_SIDES,
            Protection(
                victim="passive",
                data="statistics of features, with eps_features on",
                adversary="the active party, following the protocol",
                status=Status.SOUND,
                why="(eps_features, delta_features) differential privacy of cuts and sums, one record replaced by one "
                "on the same sides of all winning cuts: noisy quantiles, discrete Gaussian noise inside the "
                "ciphertexts; the schema (columns, kinds, categories, which have missing values) is public",
            ),
            of_passive(
                data="statistics of features, with eps_features off",
                status=Status.OPEN,
                why="exact sums, as in lattice; eps_features is off unless it is given",
            ),
            of_passive(
                data="sides of winning cuts",
                status=Status.OPEN,
                why="on which side of each winning cut of its columns a row lies is told exactly, as in every protocol "
                "that keeps rows together; the ledger counts these bits",
            ),
        )
    ),
    messages=(*LIFECYCLE, LatticeRound, LatticeRequest, LatticeSums),
    roles={"active": sealed_active, "passive": passive_by(SealedPassiveCipher)},
    options=SealedOptions,
    refuse=refuse,
    plan=plan,
    calibrate=calibrate,
    delta_option=delta_option,
    # Which rows are together follows from private selections, which are booked as such.
    exact_messages=lambda config, first: (
        (LatticeSums, SplitAnswer) if options_of(config).eps_features == 0 else (SplitAnswer,)
    ),
    complete=completed,
    security_bits=lambda config: SECURITY_BITS,
    sets=False,
    declared_classes=True,
    # Ciphertexts of a level go in one message, and noise is drawn for every bin.
    cost=replace(
        COST,
        there=(*COST.there, "slots_p"),
        most_bytes=any_size,
        options={"eps": 1000.0},
    ),
    memory=partial(memory, streams=False),
    relative_cost=6.5,
    evidence=(
        Evidence("active", "labels", None, False),
        OWN_FEATURES,
        Evidence("passive", "statistics of features", "histogram_bins", True),
        Evidence("passive", "sides of winning cuts", "feature_order", True),
    ),
    sums=BinSums(counts=True, noise_bits=lambda config: noise_bits(options_of(config))),
)
