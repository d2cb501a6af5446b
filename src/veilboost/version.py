"""Which release this is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def release() -> str:
    return version("veilboost")
