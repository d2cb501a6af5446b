"""The schemes by name."""

from __future__ import annotations

from veilboost.crypto.ore.api import OreScheme
from veilboost.crypto.ore.clww import Clww
from veilboost.crypto.ore.lewi_wu import LewiWu
from veilboost.crypto.ore.pore import Pore
from veilboost.errors import ImpossibleParameter

_SCHEMES: tuple[type[OreScheme], ...] = (LewiWu, Pore, Clww)
SCHEMES = tuple(scheme.name for scheme in _SCHEMES)


def scheme_named(name: str, bits: int = 64) -> OreScheme:
    for scheme in _SCHEMES:
        if scheme.name == name:
            return scheme(bits)
    raise ImpossibleParameter(f"there is no order-revealing encryption {name!r}", f"use {', '.join(SCHEMES)}")
