"""What `ecdh` is and claims."""

from __future__ import annotations

from veilboost.align.api import AlignmentSpec
from veilboost.align.ecdh.active import EcdhActive
from veilboost.align.ecdh.messages import BlindOther, BlindOwn, CommonRows, OtherPoints, OwnPoints
from veilboost.align.ecdh.passive import EcdhPassive
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.wire.message import Done, Reveals

SPEC = AlignmentSpec(
    name="ecdh",
    summary="ids become points that every party blinds once; the active party compares; no third party",
    source="Diffie-Hellman set intersection (Meadows 1986; Huberman, Franklin, Hogg 1999), as a ring",
    finds_by_id=True,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="ids",
                adversary="every passive party",
                status=Status.SOUND,
                why="it sees blinded points, random under decisional Diffie-Hellman on Curve25519 with the hash a "
                "random oracle, and the common rows",
            ),
            Protection(
                victim="passive",
                data="ids that the active party does not know",
                adversary="an active party that follows the protocol",
                status=Status.SOUND,
                why="under the same assumptions it learns only how many there are and how many are shared by whom",
            ),
            Protection(
                victim="passive",
                data="ids that the active party knows but not all parties do",
                adversary="the active party",
                status=Status.OPEN,
                why="comparing the finished sets shows which of its own ids each single party knows",
            ),
            Protection(
                victim="passive",
                data="ids",
                adversary="an active party that deviates",
                status=Status.OPEN,
                why="it can put guessed ids into the sets it hands around and see which are known",
            ),
        )
    ),
    outcome=(
        Reveals("which of its rows all parties have in common", "active"),
        Reveals("which of its rows all parties have in common", "passive"),
        Reveals("how many rows are common", "active"),
        Reveals("how many rows are common", "passive"),
    ),
    messages=(BlindOwn, OwnPoints, BlindOther, OtherPoints, CommonRows, Done),
    active=EcdhActive,
    passive=EcdhPassive,
    helpers={},
)
