"""The explicit list of horizontal protocols, and those that other packages bring by `veilboost.horizontal`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from veilboost.errors import UnknownProtocol
from veilboost.protocols.horizontal import HorizontalSpec
from veilboost.protocols.mal.spec import SPEC as MAL
from veilboost.protocols.secagg.spec import SPEC as SECAGG


@cache
def horizontal_protocols() -> dict[str, HorizontalSpec]:
    """Name to spec, ours first."""
    found = {spec.name: spec for spec in (MAL, SECAGG)}
    for entry in entry_points(group="veilboost.horizontal"):
        spec: HorizontalSpec = entry.load()
        found.setdefault(spec.name, spec)
    return found


def horizontal_named(name: str) -> HorizontalSpec:
    found = horizontal_protocols()
    if name not in found:
        raise UnknownProtocol(f"there is no horizontal protocol {name!r}")
    return found[name]
