"""The page on the architecture is true to the code."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = {path.parent.name for path in (REPOSITORY / "src" / "veilboost").glob("*/__init__.py")}


def diagram() -> str:
    return PAGE[PAGE.index("flowchart TB") : PAGE.index("callers --> runs")]


def test_every_package_is_in_the_diagram_and_in_the_table_and_nothing_else_is() -> None:
    drawn = [line.strip() for line in diagram().splitlines() if re.fullmatch(r"    \w+", line)]
    told = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(drawn) == sorted(PACKAGES)
    assert sorted(told) == sorted(PACKAGES)


def test_groups_of_the_diagram_are_in_the_order_of_the_layers() -> None:
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["type"] == "layers")["layers"]
    height = {name: at for at, layer in enumerate(layers) for name in layer.split(" | ")}
    assert set(height) >= PACKAGES
    groups = re.findall(r"subgraph \w+ \[[^\]]*\]\n((?:    \w+\n)+)", diagram())
    for upper, lower in itertools.pairwise(groups):
        # No package imports one that is drawn in a group above its own.
        assert max(height[name] for name in upper.split()) <= max(height[name] for name in lower.split())
        assert min(height[name] for name in upper.split()) <= min(height[name] for name in lower.split())


def test_names_in_the_text_exist() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "src").rglob("*.py"))
    for name in (
        "Job",
        "Coordinator",
        "TrainingSession",
        "RunSummary",
        "StatisticsCipher",
        "PassiveCipher",
        "Selector",
    ):
        assert f"`{name}`" in PAGE
        assert f"class {name}" in source, name
