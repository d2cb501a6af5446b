"""From the data options of `simulate` to a learning problem: aligned tables for training and for testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost.errors import (
    EmptyTable,
    ImpossibleParameter,
    LabelOutOfRange,
    MissingLabel,
    UnsupportedCombination,
)
from veilboost.experiment.tables import TableOptions, Tables, load_tables
from veilboost.protocols.validation import with_classes
from veilboost.types import BoolArray, Float64Array, PartyName

DEFAULT_TEST_SIZE = 0.2


@dataclass(frozen=True)
class SplitOptions:
    """What a person said about which rows are kept from training."""

    test_data: Sequence[str]
    test_size: float | None
    validation_size: float | None
    seed: int


@dataclass(frozen=True)
class Problem:
    """Aligned tables of all parties in the job's order; rows of `held_out` are the validation rows of `train`."""

    active: PartyName
    train: Tables
    test: Tables
    held_out: BoolArray | None


def load_problem(options: TableOptions, split: SplitOptions) -> Problem:
    """Load, align, split. Nothing depends on the order of rows in a file, only on ids and seed."""
    if split.test_data and split.test_size is not None:
        raise UnsupportedCombination("--test-data and --test-size are both given", "leave one of them out")
    test_size = _share(split.test_size, "--test-size") or DEFAULT_TEST_SIZE
    validation_size = _share(split.validation_size, "--validation-size")
    active, train, test = load_tables(options, split.test_data)
    labels(train, active)
    if test is not None:
        test = _same_classes(test, train, active)
    else:
        in_test = draw_rows(train[active].rows, test_size, (split.seed,))
        train, test = _take(train, ~in_test), _take(train, in_test)
    held_out = None
    if validation_size is not None:
        # Another stream than the split's, which would draw the same rows first again.
        held_out = draw_rows(train[active].rows, validation_size, (split.seed, 1))
    return Problem(active, train, test, held_out)


def labels(tables: Tables, active: PartyName) -> Float64Array:
    """The active party's labels, which it must have."""
    found = tables[active].label
    if found is None:
        raise MissingLabel(f"no label column of the active party {active!r} is named", "name it with --label")
    return found


def with_declared(problem: Problem, classes: Sequence[str]) -> Problem:
    """The problem with its labels as codes of the declared classes."""
    train, test = (
        {**tables, problem.active: with_classes(tables[problem.active], classes)}
        for tables in (problem.train, problem.test)
    )
    return replace(problem, train=train, test=test)


def draw_rows(rows: int, share: float, key: Sequence[int]) -> BoolArray:
    """A mask of a random share of rows, at least one and not all."""
    wanted = round(rows * share)
    if not 0 < wanted < rows:
        raise EmptyTable(f"{rows} rows are too few to keep a share of {share:g} apart", "give more rows")
    mask = np.zeros(rows, dtype=np.bool_)
    mask[np.random.default_rng(key).permutation(rows)[:wanted]] = True
    return mask


def _share(value: float | None, option: str) -> float | None:
    if value is not None and not 0 < value < 1:
        raise ImpossibleParameter(f"{option} {value:g} is outside (0, 1)")
    return value


def _take(tables: Tables, mask: BoolArray) -> Tables:
    return {name: table.take(mask) for name, table in tables.items()}


def _same_classes(test: Tables, train: Tables, active: PartyName) -> Tables:
    """The test labels as codes into the classes of training: a test file may lack one of them."""
    classes, own = train[active].label_classes, test[active]
    if own.label is None or own.label_classes == classes:
        return test
    if classes is None or own.label_classes is None:
        raise LabelOutOfRange(
            "labels are text in one of --data and --test-data and numbers in the other",
            "write them the same way",
        )
    unknown = set(own.label_classes).difference(classes)
    if unknown:
        raise LabelOutOfRange(f"the test labels hold classes that training does not know: {len(unknown)}")
    code = np.array([classes.index(name) for name in own.label_classes], dtype=np.float64)
    return {**test, active: replace(own, label=code[own.label.astype(np.intp)], label_classes=classes)}
