"""The explicit list of protocols, and those that other packages bring by the entry point `veilboost.protocols`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from veilboost.errors import UnknownProtocol
from veilboost.protocols.elxgb.spec import SPEC as ELXGB
from veilboost.protocols.federboost.spec import SPEC as FEDERBOOST
from veilboost.protocols.lattice.spec import SPEC as LATTICE
from veilboost.protocols.ldp.spec import SPEC as LDP
from veilboost.protocols.mal.spec import SPEC as MAL
from veilboost.protocols.masked.spec import SPEC as MASKED
from veilboost.protocols.paillier.spec import SPEC as PAILLIER
from veilboost.protocols.plain.spec import SPEC as PLAIN
from veilboost.protocols.sealed.spec import SPEC as SEALED
from veilboost.protocols.secagg.spec import SPEC as SECAGG
from veilboost.protocols.smm1.spec import SPEC as SMM1
from veilboost.protocols.smm2.spec import SPEC as SMM2
from veilboost.protocols.spec import ProtocolSpec, Setting

BUILT_IN = (PLAIN, PAILLIER, LATTICE, MASKED, LDP, FEDERBOOST, SMM1, SMM2, ELXGB, SEALED, MAL, SECAGG)


@cache
def all_protocols() -> dict[str, ProtocolSpec]:
    """Name to spec, ours first."""
    found = {spec.name: spec for spec in BUILT_IN}
    for entry in entry_points(group="veilboost.protocols"):
        spec: ProtocolSpec = entry.load()
        found.setdefault(spec.name, spec)
    return found


def protocols_of(setting: Setting) -> dict[str, ProtocolSpec]:
    """Name to spec of those for one setting."""
    return {name: spec for name, spec in all_protocols().items() if spec.setting == setting}


def protocol_named(name: str, setting: Setting | None = None) -> ProtocolSpec:
    """The protocol of this name, and of this setting where a caller has tables of one; or `UnknownProtocol`."""
    spec = all_protocols().get(name)
    if spec is None:
        raise UnknownProtocol(f"there is no protocol {name!r}")
    if setting is not None and spec.setting != setting:
        raise UnknownProtocol(f"{name} is {spec.setting}, and this job is {setting}")
    return spec
