"""The explicit list of protocols, and those that other packages bring by the entry point `veilboost.protocols`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from veilboost.errors import UnknownProtocol
from veilboost.protocols.api import ProtocolSpec
from veilboost.protocols.elxgb.spec import SPEC as ELXGB
from veilboost.protocols.federboost.spec import SPEC as FEDERBOOST
from veilboost.protocols.horizontal_registry import horizontal_protocols
from veilboost.protocols.lattice.spec import SPEC as LATTICE
from veilboost.protocols.ldp.spec import SPEC as LDP
from veilboost.protocols.masked.spec import SPEC as MASKED
from veilboost.protocols.paillier.spec import SPEC as PAILLIER
from veilboost.protocols.plain.spec import SPEC as PLAIN
from veilboost.protocols.sealed.spec import SPEC as SEALED
from veilboost.protocols.smm1.spec import SPEC as SMM1
from veilboost.protocols.smm2.spec import SPEC as SMM2


@cache
def all_protocols() -> dict[str, ProtocolSpec]:
    """Name to spec, ours first."""
    found = {spec.name: spec for spec in (PLAIN, PAILLIER, LATTICE, MASKED, LDP, FEDERBOOST, SMM1, SMM2, ELXGB, SEALED)}
    for entry in entry_points(group="veilboost.protocols"):
        spec: ProtocolSpec = entry.load()
        found.setdefault(spec.name, spec)
    return found


def protocol_named(name: str) -> ProtocolSpec:
    found = all_protocols()
    if name not in found:
        if name in horizontal_protocols():
            raise UnknownProtocol(f"{name} is for rows in different hands, not columns")
        raise UnknownProtocol(f"there is no protocol {name!r}")
    return found[name]
