"""What `preshared` is and claims."""

from __future__ import annotations

from veilboost.align.api import AlignmentSpec
from veilboost.align.preshared.active import PresharedActive
from veilboost.align.preshared.messages import OrderCheck, OrderConfirmed
from veilboost.align.preshared.passive import PresharedPassive
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.wire.message import Reveals

SPEC = AlignmentSpec(
    name="preshared",
    summary="the parties already agreed on rows and order; only a salted digest of the order is compared",
    source="reference",
    finds_by_id=False,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="ids",
                adversary="every passive party",
                status=Status.HEURISTIC,
                why="only a salted digest of the whole list is sent: who does not have the list must guess all of it",
            ),
            Protection(
                victim="passive",
                data="ids",
                adversary="the active party",
                status=Status.HEURISTIC,
                why="it sends nothing unless the lists are equal, and refuses without saying in what they differ",
            ),
        )
    ),
    outcome=(
        Reveals("all of its rows are common: every other party knows the same people", "active"),
        Reveals("all of its rows are common: every other party knows the same people", "passive"),
    ),
    messages=(OrderCheck, OrderConfirmed),
    active=PresharedActive,
    passive=PresharedPassive,
    helpers={},
)
