"""Protocols for experiments, which are in no list of protocols."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from papers.law import LAW
from papers.unpacked import UNPACKED
from veilboost.protocols.registry import all_protocols


@contextmanager
def experiments_at_hand() -> Generator[None]:
    """They can be named in here."""
    known = all_protocols()
    own = {spec.name: spec for spec in (LAW, UNPACKED)}
    known.update(own)
    try:
        yield
    finally:
        for name in own:
            del known[name]
