"""The spec of `sealed`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.crypto.lattice.keys import SECURITY_BITS
from veilboost.privacy.calibrate import CalibrationRequest
from veilboost.privacy.statement import Statement, Status
from veilboost.protocols.cost import Cost
from veilboost.protocols.lattice.messages import (
    BinMasks,
    ExpandedRequest,
    ExpandedSums,
    ExpansionKeys,
    ExpansionReady,
    LatticeRequest,
    LatticeRound,
    LatticeSums,
    MasksRequest,
    VectorRequest,
    VectorSums,
)
from veilboost.protocols.lattice.spec import COST, memory
from veilboost.protocols.sealed import parameters
from veilboost.protocols.sealed.active import sealed_active
from veilboost.protocols.sealed.passive import SealedPassiveCipher
from veilboost.protocols.spec import (
    OWN_ASSIGNMENTS,
    OWN_FEATURES,
    BinSums,
    Evidence,
    ProtocolSpec,
    of_active,
    of_passive,
)
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer
from veilboost.protocols.vertical.passive import passive_by


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """Return trees, depth, learning rate and noise for the given budgets."""
    budgets = {
        "eps": request.epsilon_active,
        "delta": request.delta_active,
        "eps_features": request.epsilon_passive,
        "delta_features": request.delta_passive,
    }
    options = {**request.options, **{name: value for name, value in budgets.items() if value is not None}}
    config = parameters.completed(
        TrainingConfig(n_estimators=request.trees, max_depth=request.depth, options=options), request.rows
    )
    chosen = parameters.options_of(config)
    noise = parameters.label_noise(chosen, config.n_estimators, config.max_depth)
    found: dict[str, Any] = {
        "trees": config.n_estimators,
        "depth": config.max_depth,
        "learning_rate": config.learning_rate,
        "least_rows": chosen.least_rows,
        "selection_epsilon": noise.selection,
        "leaf_sigma": noise.leaf_sigma,
    }
    if chosen.eps_features > 0:
        found["cell_multiplier"] = parameters.feature_multiplier(chosen, config.n_estimators, config.max_depth)
    return found


SPEC = ProtocolSpec(
    name="sealed",
    summary="trains under lattice encryption and selects splits and leaves with differential privacy",
    source="VeilBoost",
    statement=Statement(
        (
            of_active(
                data="labels",
                adversary="every passive party, and everyone who receives the model",
                status=Status.SOUND,
                why="(eps, delta)-differential privacy of everything they receive, with one label replaced: private "
                "selection, noisy leaves, everything else encrypted or independent of labels; ring-LWE at 128 bits",
            ),
            OWN_ASSIGNMENTS,
            of_passive(
                data="statistics of features, with eps_features on",
                adversary="a semi-honest active party",
                status=Status.SOUND,
                why="(eps_features, delta_features)-differential privacy of cut points and sums, with one record "
                "replaced by one that has the same left/right assignment at all winning splits: noisy quantiles, "
                "discrete Gaussian noise inside the ciphertexts; the schema (columns, types, categories, which have "
                "missing values) is public",
            ),
            of_passive(
                data="statistics of features, with eps_features off",
                status=Status.UNPROTECTED,
                why="exact sums, as in lattice; eps_features is off by default",
            ),
            of_passive(
                data="left/right assignments of winning splits",
                status=Status.UNPROTECTED,
                why="the left/right assignment of each row at each winning split on its columns is sent exactly, as in "
                "every protocol that keeps rows by node; the ledger counts these bits",
            ),
        )
    ),
    messages=(
        *LIFECYCLE,
        MasksRequest,
        BinMasks,
        LatticeRound,
        LatticeRequest,
        LatticeSums,
        VectorRequest,
        VectorSums,
        ExpansionKeys,
        ExpansionReady,
        ExpandedRequest,
        ExpandedSums,
    ),
    roles={"active": sealed_active, "passive": passive_by(SealedPassiveCipher)},
    options=parameters.SealedOptions,
    by_line=lambda config: parameters.layout_of(config) == "auto",
    refuse=parameters.refuse,
    plan=parameters.plan,
    calibrate=calibrate,
    delta_option=parameters.delta_option,
    # Which rows share a node follows from private selections, which are booked as such.
    exact_messages=lambda config, first: (
        (LatticeSums, SplitAnswer) if parameters.options_of(config).eps_features == 0 else (SplitAnswer,)
    ),
    complete=parameters.completed,
    security_bits=lambda config: SECURITY_BITS,
    sets=False,
    declared_classes=True,
    chooses_rounds=True,
    # The ciphertexts of a level are sent in one message, and noise is drawn for every bin.
    cost=replace(
        COST,
        there=(*COST.there, "slots_p"),
        most_bytes=Cost().most_bytes,
        options={"eps": 1000.0},
    ),
    memory=partial(memory, streams=False),
    relative_cost=6.5,
    evidence=(
        Evidence("active", "labels", None, False),
        OWN_FEATURES,
        Evidence("passive", "statistics of features", "histogram_bins", True),
        Evidence("passive", "left/right assignments of winning splits", "feature_order", True),
    ),
    sums=BinSums(counts=True, noise_bits=lambda config: parameters.noise_bits(parameters.options_of(config))),
)
