"""The explicit list of protocols, and those that other packages bring by the entry point `veilboost.protocols`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from veilboost.errors import UnknownProtocol
from veilboost.protocols.api import ProtocolSpec
from veilboost.protocols.plain.spec import SPEC as PLAIN


@cache
def all_protocols() -> dict[str, ProtocolSpec]:
    """Name to spec, ours first."""
    found = {spec.name: spec for spec in (PLAIN,)}
    for entry in entry_points(group="veilboost.protocols"):
        spec: ProtocolSpec = entry.load()
        found.setdefault(spec.name, spec)
    return found


def protocol_named(name: str) -> ProtocolSpec:
    found = all_protocols()
    if name not in found:
        raise UnknownProtocol(f"there is no protocol {name!r}")
    return found[name]
