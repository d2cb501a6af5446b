"""What `smm2` is and claims."""

from __future__ import annotations

from veilboost.config import TrainingConfig
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.smm2.active import smm2_active
from veilboost.protocols.smm2.cost import COST, memory
from veilboost.protocols.smm2.messages import Smm2Gains, Smm2Kernels, Smm2Masked, Smm2Round
from veilboost.protocols.smm2.options import Smm2Options
from veilboost.protocols.smm2.passive import smm2_passive
from veilboost.protocols.spec import Evidence, ProtocolSpec
from veilboost.protocols.vertical.kernels import refuse
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer, StatisticsRequest
from veilboost.protocols.vertical.statements import OWN_FEATURES, OWN_SIDES


def _refuse(config: TrainingConfig) -> None:
    refuse(config, Smm2Options.from_dict(config.options))


SPEC = ProtocolSpec(
    name="smm2",
    setting="vertical",
    summary="secure matrix multiplication: kernel vectors of split columns, among decoys, mask the gradients",
    source="FedXGBoost (Le et al.), FedXGBoost-SMM-2",
    exact=True,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="labels",
                adversary="every passive party",
                status=Status.BROKEN,
                why=(
                    "with fewer vectors than half of a node's rows, linear programming takes the mask off the first "
                    "tree's gradients; the answers of several blocks or levels together give every gradient exactly"
                ),
            ),
            OWN_SIDES,
            Protection(
                victim="passive",
                data="features",
                adversary="the active party",
                status=Status.HEURISTIC,
                why=(
                    "the active party learns vectors orthogonal to the split columns and to decoys, far fewer than "
                    "the null space has, and the sides of winning cuts; no attack is known in nodes of 150 rows or more"
                ),
            ),
        )
    ),
    messages=(*LIFECYCLE, Smm2Round, StatisticsRequest, Smm2Kernels, Smm2Masked, Smm2Gains),
    roles={"active": smm2_active, "passive": smm2_passive},
    exact_messages=lambda config, first: (StatisticsRequest, Smm2Kernels, Smm2Masked, Smm2Gains, SplitAnswer),
    options=Smm2Options,
    refuse=_refuse,
    engines=("local",),
    cost=COST,
    memory=memory,
    relative_cost=30,
    evidence=(
        Evidence("active", "labels", "smm2_stacking", True),
        OWN_FEATURES,
        Evidence("passive", "features", "smm2_columns", False),
    ),
)
