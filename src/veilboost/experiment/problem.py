"""Turn data options into a learning problem: aligned tables for training and for testing.

The input is one table, whose columns are partitioned, or one table per party.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from veilboost.align.clear import align_by_id
from veilboost.data.categories import MAX_CATEGORIES
from veilboost.data.datasets import ID, LABEL, load_dataset
from veilboost.data.load import load_table
from veilboost.data.schema import SchemaRules, Selection, check_roles
from veilboost.data.table import PartyTable
from veilboost.engine.tables import with_frequent_categories
from veilboost.errors import (
    EmptyTable,
    InvalidParameter,
    LabelOutOfRange,
    MissingColumn,
    MissingLabel,
    UnsupportedCombination,
)
from veilboost.protocols.validation import with_classes
from veilboost.types import BoolArray, Column, Float64Array, PartyName

DEFAULT_PARTIES, DEFAULT_TEST_SIZE = 2, 0.2
REST = "*"
_NAMED = re.compile(r"([A-Za-z][\w-]*)=(.*)", re.DOTALL)
_DATASET_ID, _DATASET_LABEL = "id", "label"

Tables = Mapping[PartyName, PartyTable]
Names = dict[PartyName, list[str]]


@dataclass(frozen=True)
class DataOptions:
    """The options about tables and about rows held back from training, unparsed."""

    data: Sequence[str]
    dataset: str | None
    label: str | None
    id: str | None
    weight: str | None
    categorical: Sequence[str]
    constant: str
    parties: int | None
    columns: Sequence[str]
    active: str | None
    test_data: Sequence[str]
    test_size: float | None
    validation_size: float | None
    random_state: int


@dataclass(frozen=True)
class Problem:
    """Aligned tables of all parties in the job's order; rows of `held_out` are the validation rows of `train`."""

    active: PartyName
    train: Tables
    test: Tables
    held_out: BoolArray | None


def load_problem(options: DataOptions) -> Problem:
    """Load, align, split. Nothing depends on the order of rows in a file, only on ids and random_state."""
    if options.test_data and options.test_size is not None:
        raise UnsupportedCombination("--test-data and --test-size are both given", "leave one of them out")
    test_size = _share(options.test_size, "--test-size") or DEFAULT_TEST_SIZE
    validation_size = _share(options.validation_size, "--validation-size")
    active, train, test = _load_tables(options)
    labels(train, active)
    if test is not None:
        test = _same_classes(test, train, active)
    else:
        in_test = draw_rows(train[active].rows, test_size, (options.random_state,))
        train, test = _take(train, ~in_test), _take(train, in_test)
    held_out = None
    if validation_size is not None:
        # A different stream than the test split's, which would draw the same rows first.
        held_out = draw_rows(train[active].rows, validation_size, (options.random_state, 1))
    train = {name: with_frequent_categories(table, MAX_CATEGORIES) for name, table in train.items()}
    return Problem(active, train, test, held_out)


def labels(tables: Tables, active: PartyName) -> Float64Array:
    """The active party's labels; raises `MissingLabel` if it has none."""
    found = tables[active].label
    if found is None:
        raise MissingLabel(f"the active party {active!r} has no label column", "name it with --label")
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
        raise EmptyTable(f"{rows} rows are too few to hold back a share of {share:g}", "give more rows")
    mask = np.zeros(rows, dtype=np.bool_)
    mask[np.random.default_rng(key).permutation(rows)[:wanted]] = True
    return mask


def _share(value: float | None, option: str) -> float | None:
    if value is not None and not 0 < value < 1:
        raise InvalidParameter(f"{option} {value:g} is outside (0, 1)", f"give {option} a share between 0 and 1")
    return value


def _take(tables: Tables, mask: BoolArray) -> Tables:
    return {name: table.take(mask) for name, table in tables.items()}


def _same_classes(test: Tables, train: Tables, active: PartyName) -> Tables:
    """The test labels as codes into the training classes: a test file may lack a class."""
    classes, own = train[active].label_classes, test[active]
    if own.label is None or own.label_classes == classes:
        return test
    if classes is None or own.label_classes is None:
        raise LabelOutOfRange(
            "labels are text in one of --data and --test-data and numbers in the other", "write them the same way"
        )
    unknown = set(own.label_classes).difference(classes)
    if unknown:
        raise LabelOutOfRange(f"the test labels hold {len(unknown)} classes that are not in the training labels")
    code = np.array([classes.index(name) for name in own.label_classes], dtype=np.float64)
    return {**test, active: replace(own, label=code[own.label.astype(np.intp)], label_classes=classes)}


# --- tables -----------------------------------------------------------------------------------------------


def _load_tables(options: DataOptions) -> tuple[PartyName, Tables, Tables | None]:
    """The active party's name, the tables, and the tables of the test files if there are any."""
    if bool(options.data) == (options.dataset is not None):
        what = "is no table" if not options.data else "are two tables"
        raise InvalidParameter(
            f"there {what} to train on",
            "give one of --data FILE, --dataset NAME, or --demo-data for the built-in demo data set",
        )
    if options.dataset is not None:
        return *_load_dataset(options.dataset, options), None
    files, test_files = files_by_party(options.data, "--data"), files_by_party(options.test_data, "--test-data")
    if test_files and set(files) != set(test_files):
        raise UnsupportedCombination(
            "--data and --test-data name different parties",
            "give one test file for each data file, under the same name",
        )
    if None in files:
        active, train = _partition(files[None], options)
        columns = [column for own in train.values() for column in own.columns]
        if not test_files:
            return active, train, None
        test = _load(test_files[None], options, like=columns).sorted_by_id()
        return active, train, _assign(test, active, {party: list(own.names) for party, own in train.items()})
    active, train = _gather({party: file for party, file in files.items() if party is not None}, options)
    if not test_files:
        return active, train, None
    found = {
        party: _load(test_files[party], options, labelled=party == active, like=own.columns)
        for party, own in train.items()
    }
    return active, train, align_by_id(found)


def files_by_party(values: Sequence[str], option: str) -> dict[PartyName | None, str]:
    """Files by party; a single file without a party name has the key None."""
    files: dict[PartyName | None, str] = {}
    for value in values:
        match = None if Path(value).exists() else _NAMED.fullmatch(value)
        name, file = (None, value) if match is None else (match[1], match[2])
        if name in files or None in files or (name is None and files):
            raise InvalidParameter(
                f"{option} is given several times without a distinct party name for each",
                f"write {option} NAME=FILE for each party, or one {option} FILE",
            )
        files[name] = file
    return files


def _load_dataset(name: str, options: DataOptions) -> tuple[PartyName, Tables]:
    if options.test_data:
        raise UnsupportedCombination("--test-data goes with --data, not with a built-in data set", "use --test-size")
    loaded = load_dataset(name)
    if isinstance(loaded, Mapping):
        return _gather(loaded, replace(options, id=options.id or ID, label=options.label or LABEL))
    return _partition(loaded, replace(options, id=options.id or _DATASET_ID, label=options.label or _DATASET_LABEL))


def _load(
    source: object,
    options: DataOptions,
    *,
    labelled: bool = True,
    features: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    like: Sequence[Column] | None = None,
) -> PartyTable:
    """Load one table; `like` are the columns used in training, whatever values they have here."""
    constant: Any = options.constant
    if like is not None:
        constant, features = "keep", [column.name for column in like]
        categorical = [column.name for column in like if column.categories is not None]
    return load_table(
        source,
        id=options.id,
        label=options.label if labelled else None,
        weight=options.weight if labelled else None,
        features=features,
        categorical=categorical,
        rules=SchemaRules(constant=constant),
    )


def _active(name: str | None, parties: Iterable[PartyName]) -> PartyName:
    known = list(parties)
    if name is not None and name not in known:
        raise MissingLabel(f"there is no party {name!r} to be the active one", f"choose one of {', '.join(known)}")
    return known[0] if name is None else name


def _by_party(values: Sequence[str], option: str) -> Names:
    """`bank=a,b` and `shop=c` as lists of columns by party."""
    shares: Names = {}
    for value in values:
        match = _NAMED.fullmatch(value)
        if match is None:
            raise InvalidParameter(f"{option} {value!r} names no party", f"write {option} NAME=COLUMN,COLUMN")
        names = [name.strip() for name in match[2].split(",") if name.strip()]
        shares.setdefault(match[1], []).extend(names)
    return shares


# --- one table, whose columns are partitioned -------------------------------------------------------------


def _partition(source: object, options: DataOptions) -> tuple[PartyName, Tables]:
    shares = _by_party(options.columns, "--columns")
    if shares and options.parties not in (None, len(shares)):
        raise UnsupportedCombination(
            f"--columns names {len(shares)} parties and --parties is {options.parties}", "leave out --parties"
        )
    if sum(names.count(REST) for names in shares.values()) > 1:
        raise InvalidParameter("--columns assigns the rest (*) twice", "assign it to one party")
    named = [name for names in shares.values() for name in names if name != REST]
    check_roles(Selection(options.id, options.label, options.weight, tuple(named)))
    everything = not shares or any(REST in names for names in shares.values())
    features = None if everything else named
    table = _load(source, options, features=features, categorical=options.categorical).sorted_by_id()
    dropped = [name for name in named if name not in set(table.names)]
    if dropped:  # constant columns, or columns that do not exist, which loading them by name refuses
        _load(source, replace(options, constant="keep"), features=dropped)
    if not shares:
        shares = _blocks(table.names, DEFAULT_PARTIES if options.parties is None else options.parties)
    rest = [name for name in table.names if name not in set(named)]
    shares = {
        party: [name for given in names for name in (rest if given == REST else (given,))]
        for party, names in shares.items()
    }
    if options.constant == "drop":
        shares = {party: [name for name in names if name in set(table.names)] for party, names in shares.items()}
    active = _active(options.active, shares)
    return active, _assign(table, active, shares)


def _assign(table: PartyTable, active: PartyName, shares: Names) -> Tables:
    tables = {party: table.select(names) for party, names in shares.items()}
    return {party: own if party == active else own.without_label() for party, own in tables.items()}


def _blocks(names: Sequence[str], parties: int) -> Names:
    """Contiguous blocks of columns, the active party's first."""
    if not 1 <= parties <= len(names):
        raise InvalidParameter(
            f"--parties {parties} is outside [1, {len(names)}]", "give every party at least one column"
        )
    titles = ["active", *(f"passive{k}" for k in range(1, parties))]
    blocks = np.array_split(np.arange(len(names)), parties)
    return {title: [names[int(at)] for at in block] for title, block in zip(titles, blocks, strict=True)}


# --- one table per party ----------------------------------------------------------------------------------


def _gather(sources: Mapping[PartyName, object], options: DataOptions) -> tuple[PartyName, Tables]:
    for option, given in (("--columns", bool(options.columns)), ("--parties", options.parties is not None)):
        if given:
            raise UnsupportedCombination(
                f"{option} partitions one table, and here every party has its own", f"leave out {option}"
            )
    if options.id is None:
        raise MissingColumn("there is no id to align the parties' rows by", "name the id column with --id")
    active = _active(options.active, sources)
    categorical = _by_party(options.categorical, "--categorical")
    for party in categorical:
        if party not in sources:
            raise InvalidParameter(f"--categorical: there is no party {party!r}", f"choose one of {', '.join(sources)}")
    tables = {
        party: _load(source, options, labelled=party == active, categorical=categorical.get(party, ()))
        for party, source in sources.items()
    }
    return active, align_by_id(tables)
