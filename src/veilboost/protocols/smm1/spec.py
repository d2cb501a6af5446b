"""What `smm1` is and claims."""

from __future__ import annotations

from veilboost.config import TrainingConfig
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.smm1.active import smm1_active
from veilboost.protocols.smm1.cost import COST, memory
from veilboost.protocols.smm1.messages import Smm1Request, Smm1Response
from veilboost.protocols.smm1.passive import smm1_passive
from veilboost.protocols.spec import Evidence, ProtocolSpec
from veilboost.protocols.vertical.kernels import KernelOptions, refuse
from veilboost.protocols.vertical.messages import LIFECYCLE, BeginRound, SplitAnswer
from veilboost.protocols.vertical.statements import LABELS_BY_NODES, OWN_FEATURES, OWN_SIDES


def _refuse(config: TrainingConfig) -> None:
    refuse(config, KernelOptions.from_dict(config.options))


SPEC = ProtocolSpec(
    name="smm1",
    setting="vertical",
    summary="secure matrix multiplication: kernel vectors of the gradients mask the passive parties' split columns",
    source="FedXGBoost (Le et al.), FedXGBoost-SMM-1",
    exact=True,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="gradients",
                adversary="every passive party",
                status=Status.HEURISTIC,
                why=(
                    "a passive party learns vectors orthogonal to the gradients, far fewer than rows; in nodes of some "
                    "hundred rows no attack is known at a tenth of the rows, while at seven tenths a few known labels "
                    "give all others"
                ),
            ),
            Protection(
                victim="active",
                data="labels, by which rows are together",
                adversary="every passive party",
                status=Status.BROKEN,
                why=(
                    "every node's rows are told in the clear, and rows of a leaf have similar labels: a party that "
                    "knows a few labels infers most others"
                ),
                needs_secrets=False,
            ),
            OWN_SIDES,
            Protection(
                victim="passive",
                data="features",
                adversary="the active party",
                status=Status.BROKEN,
                why=(
                    "with fewer vectors than half of a node's rows, linear programming takes the mask off the split "
                    "columns, and with few vectors rounding does; exact sums per bin are known besides"
                ),
            ),
        )
    ),
    messages=(*LIFECYCLE, BeginRound, Smm1Request, Smm1Response),
    roles={"active": smm1_active, "passive": smm1_passive},
    exact_messages=lambda config, first: (Smm1Request, Smm1Response, SplitAnswer),
    options=KernelOptions,
    refuse=_refuse,
    engines=("local",),
    cost=COST,
    memory=memory,
    relative_cost=6,
    evidence=(LABELS_BY_NODES, OWN_FEATURES, Evidence("passive", "features", "smm1_columns", True)),
)
