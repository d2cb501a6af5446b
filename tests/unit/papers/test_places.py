"""The paper map names only what exists: functions, tests and targets; so do the verdicts of an earlier release."""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path

import pytest

from papers.earlier import EARLIER
from papers.places import PLACES, Place
from papers.target import PAPERS, targets_of

pytestmark = pytest.mark.fast

REPOSITORY = Path(__file__).resolve().parents[3]
_NAMES = [f"{place.paper}-{place.where}-{place.what}" for place in PLACES]


@functools.cache
def names_in(file: Path) -> set[str]:
    return {each.name for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize("place", PLACES, ids=_NAMES)
def test_function_and_test_exist(place: Place) -> None:
    module, _, name = place.function.partition(":")
    assert functools.reduce(getattr, name.split("."), importlib.import_module(module)) is not None
    file, _, test = place.test.partition("::")
    assert test in names_in(REPOSITORY / file)
    assert place.target in {"", *(target.name for target in targets_of(place.paper))}


def test_every_algorithm_and_theorem_of_the_papers_has_a_place() -> None:
    for paper, kinds in (
        ("maskedxgboost", [f"Algorithm {n}" for n in (1, 2, 3)] + [f"Theorem {n}" for n in (1, 2, 3)]),
        ("fedxgboost", [f"Algorithm {n}" for n in range(1, 7)]),
        ("elxgb", [f"Algorithm {n}" for n in range(1, 6)]),
        ("mal", [f"Algorithm {n}" for n in (1, 2, 3)]),
    ):
        named = [place.where for place in PLACES if place.paper == paper]
        assert not [kind for kind in kinds if not any(where.startswith(kind) for where in named)], paper


def test_no_place_is_listed_twice() -> None:
    assert len(_NAMES) == len(set(_NAMES))
    assert {place.paper for place in PLACES} == set(PAPERS)


def test_earlier_verdicts_are_those_of_targets() -> None:
    assert set(EARLIER) <= {(target.paper, target.name) for paper in PAPERS for target in targets_of(paper)}
