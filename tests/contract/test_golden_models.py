"""Exact protocols give the models on record, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scenes import exact_models, exact_protocols

pytestmark = pytest.mark.fast
RECORD = json.loads((Path(__file__).parents[1] / "golden" / "models.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("protocol", sorted({*RECORD, *exact_protocols()}))
def test_an_exact_protocol_gives_the_models_on_record(protocol):
    """After a change that is meant to change models: python tests/golden/make_models.py, in a commit of its own."""
    assert exact_models(protocol) == RECORD[protocol]
