"""The spec of `elxgb`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from veilboost.config import TrainingConfig
from veilboost.privacy.statement import Statement, Status
from veilboost.protocols import spec
from veilboost.protocols.cost import InTurn
from veilboost.protocols.elxgb.active import elxgb_active
from veilboost.protocols.elxgb.messages import LocalGains, NoisyRound
from veilboost.protocols.elxgb.parameters import ElxgbOptions, calibrate, plan, refuse
from veilboost.protocols.elxgb.passive import ElxgbPassiveCipher
from veilboost.protocols.lattice.messages import LatticeRequest, LatticeRound, LatticeSums
from veilboost.protocols.ldp.spec import memory as ldp_memory
from veilboost.protocols.paillier.messages import PaillierRound, PaillierSums
from veilboost.protocols.paillier.spec import PRECOMPUTATION
from veilboost.protocols.paillier.spec import memory as paillier_memory
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer, StatisticsRequest
from veilboost.protocols.vertical.passive import passive_by
from veilboost.wire.message import Message


def _by_paillier(config: TrainingConfig) -> bool:
    return ElxgbOptions.from_dict(config.options).backend == "paillier"


def _exact_messages(config: TrainingConfig, first: int) -> Sequence[type[Message]]:
    """The first tree is summed under encryption; for later trees the passive party sends its best gains."""
    if first:
        return StatisticsRequest, LocalGains, SplitAnswer
    if _by_paillier(config):
        return StatisticsRequest, PaillierSums, SplitAnswer
    return LatticeRequest, LatticeSums, SplitAnswer


SPEC = spec.ProtocolSpec(
    name="elxgb",
    summary="trains the first tree on encrypted gradients and later trees on noisy gradients",
    source="ELXGB (Xu et al.), Algorithms 1 to 3",
    statement=Statement(
        (
            spec.of_active(
                data="gradients of the first tree",
                status=Status.SOUND,
                why="Paillier encryption with a key of 2048 bits or more, or ring-LWE encryption at 128 bits, against "
                "parties that follow the protocol",
            ),
            spec.of_active(
                data="labels, through noisy gradients of later trees",
                status=Status.BROKEN,
                why="at the published epsilon of 10 per number the sum of the noisy gradients of four trees reveals "
                "most labels; releases compose over trees, and without private_leaves leaf weights are computed from "
                "true gradients, so later releases reveal more than the ledger counts",
            ),
            spec.SHARED_NODES,
            spec.OWN_ASSIGNMENTS,
            spec.of_passive(
                data="features, many rows",
                status=Status.HEURISTIC,
                why="the passive party sends exact sums per bin for the first tree, one gain per node for later trees, "
                "and the left/right assignments of every winning split; with thirty rows or more for every sum of one "
                "bin our attacks left most bins unrecovered",
                needs_secrets=False,
            ),
            spec.EXACT_SUMS_OF_FEW_ROWS,
        )
    ),
    messages=(
        *LIFECYCLE,
        PaillierRound,
        PaillierSums,
        LatticeRound,
        LatticeRequest,
        LatticeSums,
        NoisyRound,
        StatisticsRequest,
        LocalGains,
    ),
    roles={"active": elxgb_active, "passive": passive_by(ElxgbPassiveCipher)},
    exact_messages=_exact_messages,
    options=ElxgbOptions,
    refuse=refuse,
    plan=plan,
    calibrate=calibrate,
    sets=False,
    engines=("local",),
    cost=InTurn("paillier", "ldp"),
    memory=lambda job, columns: paillier_memory(job, columns) + ldp_memory(job, columns),
    relative_cost=350,
    evidence=(
        spec.Evidence("active", "labels", "noisy_gradients", True),
        spec.OWN_FEATURES,
        spec.FEATURES_BY_CUTS,
    ),
    precompute=replace(PRECOMPUTATION, applies=_by_paillier),
)
