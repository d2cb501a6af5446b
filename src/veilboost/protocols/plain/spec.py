"""The spec of `plain`, the reference. It protects nothing."""

from __future__ import annotations

from veilboost.privacy.statement import Statement, Status
from veilboost.protocols import spec
from veilboost.protocols.cost import Cost
from veilboost.protocols.plain.active import PlainCipher
from veilboost.protocols.plain.messages import MoreGradients, PlainRound, PlainSums
from veilboost.protocols.plain.passive import PlainPassiveCipher
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer, StatisticsRequest
from veilboost.protocols.vertical.passive import passive_by

SPEC = spec.ProtocolSpec(
    name="plain",
    summary="sends gradients and sums in the clear; the reference whose model every exact protocol reproduces",
    source="reference",
    exact=True,
    limits_splits=True,
    statement=Statement(
        (
            spec.of_active(
                data="labels",
                status=Status.UNPROTECTED,
                why="gradients are sent in the clear; in the first round their signs are the labels",
            ),
            spec.OWN_ASSIGNMENTS,
            spec.of_passive(
                data="features",
                status=Status.UNPROTECTED,
                why="exact sums per bin and the left/right assignments of every winning split are sent; raw values and "
                "thresholds are not",
            ),
        )
    ),
    messages=(*LIFECYCLE, PlainRound, MoreGradients, StatisticsRequest, PlainSums),
    roles={"active": active_by(PlainCipher), "passive": passive_by(PlainPassiveCipher)},
    exact_messages=lambda config, first: (PlainRound, StatisticsRequest, PlainSums, SplitAnswer),
    cost=Cost(scale=20_000, reach=60, asks_ahead=True),
    relative_cost=1,
    evidence=(spec.LABELS_BY_NODES, spec.OWN_FEATURES, spec.FEATURES_BY_SUMS),
)
