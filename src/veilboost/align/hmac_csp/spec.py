"""What `hmac_csp` is and claims."""

from __future__ import annotations

from veilboost.align.api import AlignmentSpec
from veilboost.align.hmac_csp.active import HmacActive
from veilboost.align.hmac_csp.authority import Authority
from veilboost.align.hmac_csp.csp import Csp
from veilboost.align.hmac_csp.messages import (
    AlignmentKey,
    CommonConfirmed,
    CommonHashes,
    CommonRequest,
    ConfirmCommon,
    HashedRows,
    KeyRequest,
    PrepareHashes,
    SubmitHashes,
)
from veilboost.align.hmac_csp.passive import HmacPassive
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.wire.message import Done, Reveals


def _protections(victim: str) -> tuple[Protection, ...]:
    return (
        Protection(
            victim=victim,
            data="ids",
            adversary="the CSP alone",
            status=Status.SOUND,
            why="without the key digests are random to it, if the hash is a pseudorandom function and the CSP follows "
            "the protocol",
        ),
        Protection(
            victim=victim,
            data="ids",
            adversary="the other parties",
            status=Status.SOUND,
            why="they see nothing of it but the common rows, if the CSP follows the protocol and keeps digests to "
            "itself",
        ),
        Protection(
            victim=victim,
            data="ids",
            adversary="the CSP together with a party or the authority",
            status=Status.BROKEN,
            why="the key is the same for all: with key and digests every id that can be guessed is found",
        ),
    )


SPEC = AlignmentSpec(
    name="hmac_csp",
    summary="ids hashed under a key of an authority; a computing service that lacks the key intersects the digests",
    source="ELXGB, section 6.1 and Algorithm 4",
    finds_by_id=True,
    statement=Statement((*_protections("active"), *_protections("passive"))),
    outcome=(
        Reveals("which of its rows all parties have in common", "active"),
        Reveals("which of its rows all parties have in common", "passive"),
        Reveals("how many rows are common", "active"),
        Reveals("how many rows are common", "passive"),
        Reveals("how many rows are common", "csp"),
    ),
    messages=(
        PrepareHashes,
        KeyRequest,
        AlignmentKey,
        SubmitHashes,
        HashedRows,
        CommonRequest,
        CommonHashes,
        ConfirmCommon,
        CommonConfirmed,
        Done,
    ),
    active=HmacActive,
    passive=HmacPassive,
    helpers={"authority": Authority, "csp": Csp},
    hashes_ids=True,
)
