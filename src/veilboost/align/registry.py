"""The explicit list of ways to align."""

from __future__ import annotations

from functools import cache

from veilboost.align.api import AlignmentSpec
from veilboost.align.ecdh.spec import SPEC as ECDH
from veilboost.align.hmac_csp.spec import SPEC as HMAC_CSP
from veilboost.align.preshared.spec import SPEC as PRESHARED
from veilboost.errors import ImpossibleParameter


@cache
def all_alignments() -> dict[str, AlignmentSpec]:
    """Name to spec."""
    return {spec.name: spec for spec in (PRESHARED, ECDH, HMAC_CSP)}


def alignment_named(name: str) -> AlignmentSpec:
    found = all_alignments()
    if name not in found:
        raise ImpossibleParameter(f"there is no alignment {name!r}", f"use one of {', '.join(found)}")
    return found[name]
