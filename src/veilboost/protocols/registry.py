"""The built-in protocols, and those that other packages register under the entry point `veilboost.protocols`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from veilboost.errors import UnknownProtocol
from veilboost.fields import closest
from veilboost.protocols.spec import ProtocolSpec, Setting

_OURS = "plain paillier lattice masked ldp federboost smm1 smm2 elxgb sealed mal secagg"  # each is a folder here
BUILT_IN: tuple[ProtocolSpec, ...] = tuple(import_module(f"{__package__}.{name}.spec").SPEC for name in _OURS.split())


@cache
def all_protocols() -> dict[str, ProtocolSpec]:
    """Map names to specs, built-in protocols first."""
    found = {spec.name: spec for spec in BUILT_IN}
    for entry in entry_points(group="veilboost.protocols"):
        spec: ProtocolSpec = entry.load()
        found.setdefault(spec.name, spec)
    return found


def protocols_of(setting: Setting) -> dict[str, ProtocolSpec]:
    """Map names to specs, for the protocols of one setting."""
    return {name: spec for name, spec in all_protocols().items() if spec.setting == setting}


def protocol_named(name: str, setting: Setting | None = None) -> ProtocolSpec:
    """Return the protocol of this name; raise `UnknownProtocol` if there is none or if its setting differs."""
    spec = all_protocols().get(name)
    if spec is None:
        close = closest(name, all_protocols())
        raise UnknownProtocol(f"there is no protocol {name!r}", f"did you mean {close!r}?" if close else None)
    if setting is not None and spec.setting != setting:
        raise UnknownProtocol(f"{name} is a {spec.setting} protocol, but this job is {setting}")
    return spec
