"""One table whose columns are dealt out, or one table per party: either way, aligned tables by party."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from veilboost.align.preshared import align_by_id
from veilboost.data.datasets import load_dataset
from veilboost.data.load import load_table
from veilboost.data.scenes import ID, LABEL
from veilboost.data.schema import SchemaRules, check_roles
from veilboost.data.selection import Selection
from veilboost.data.table import PartyTable
from veilboost.errors import (
    ImpossibleParameter,
    MissingColumn,
    MissingLabel,
    UnsupportedCombination,
)
from veilboost.types import PartyName

DEFAULT_PARTIES = 2
REST = "*"
_NAMED = re.compile(r"([A-Za-z][\w-]*)=(.*)", re.DOTALL)
_DATASET_ID, _DATASET_LABEL = "id", "label"

Tables = Mapping[PartyName, PartyTable]
Names = dict[PartyName, list[str]]


@dataclass(frozen=True)
class TableOptions:
    """What a person said about the tables, as said."""

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


def load_tables(options: TableOptions, test_data: Sequence[str]) -> tuple[PartyName, Tables, Tables | None]:
    """The active party's name, the tables, and the tables of the test files if there are any."""
    if bool(options.data) == (options.dataset is not None):
        what = "is no table" if not options.data else "are two tables"
        raise ImpossibleParameter(
            f"there {what} to train on",
            "give one of --data FILE, --dataset NAME, or --scene for the built-in scene",
        )
    if options.dataset is not None:
        return *_load_dataset(options.dataset, options, test_data), None
    files, test_files = _files(options.data, "--data"), _files(test_data, "--test-data")
    if test_files and set(files) != set(test_files):
        raise UnsupportedCombination(
            "--data and --test-data are not of the same parties",
            "give a test file for each file, named alike",
        )
    if None in files:
        active, train = _deal(files[None], options)
        return active, train, _test_of_one(test_files[None], options, active, train) if test_files else None
    named = {party: source for party, source in files.items() if party is not None}
    active, train = _gather(named, options)
    if not test_files:
        return active, train, None
    return active, train, _test_of_many({name: test_files[name] for name in named}, options, active, train)


def _files(values: Sequence[str], option: str) -> dict[PartyName | None, str]:
    """Files by party; a single file may come without a name, and then has the key None."""
    files: dict[PartyName | None, str] = {}
    for value in values:
        match = None if Path(value).exists() else _NAMED.fullmatch(value)
        name, file = (None, value) if match is None else (match[1], match[2])
        if name in files or None in files or (name is None and files):
            raise ImpossibleParameter(
                f"{option} is given several times without a party's name of its own each",
                f"write {option} NAME=FILE for each party, or one {option} FILE",
            )
        files[name] = file
    return files


def _load_dataset(name: str, options: TableOptions, test_data: Sequence[str]) -> tuple[PartyName, Tables]:
    if test_data:
        raise UnsupportedCombination("--test-data goes with --data, not with a built-in data set")
    loaded = load_dataset(name)
    if isinstance(loaded, Mapping):
        return _gather(loaded, replace(options, id=options.id or ID, label=options.label or LABEL))
    known = {"id": options.id or _DATASET_ID, "label": options.label or _DATASET_LABEL}
    return _deal(loaded, replace(options, **known))


# --- one table, whose columns are dealt out ---------------------------------------------------------------


def _deal(source: object, options: TableOptions) -> tuple[PartyName, Tables]:
    shares = _shares(options)
    named = [name for names in shares.values() for name in names if name != REST]
    check_roles(Selection(options.id, options.label, options.weight, tuple(named)))
    everything = not shares or any(REST in names for names in shares.values())
    table = load_table(
        source,
        **_roles(options),
        features=None if everything else named,
        categorical=options.categorical,
        rules=_rules(options.constant),
    ).sorted_by_id()
    if not shares:
        shares = _blocks(table.names, DEFAULT_PARTIES if options.parties is None else options.parties)
    elif everything:
        rest = [name for name in table.names if name not in set(named)]
        shares = {party: _filled(names, rest) for party, names in shares.items()}
    if options.constant == "drop":
        shares = {party: [name for name in names if name in set(table.names)] for party, names in shares.items()}
    active = _active(options.active, shares)
    return active, _dealt(table, active, shares)


def _dealt(table: PartyTable, active: PartyName, shares: Names) -> Tables:
    tables = {party: table.select(names) for party, names in shares.items()}
    return {party: own if party == active else own.without_label() for party, own in tables.items()}


def _test_of_one(source: str, options: TableOptions, active: PartyName, trained: Tables) -> Tables:
    columns = [column for own in trained.values() for column in own.columns]
    table = load_table(
        source,
        **_roles(options),
        features=[column.name for column in columns],
        categorical=[column.name for column in columns if column.categories is not None],
        rules=_rules("keep"),
    ).sorted_by_id()
    return _dealt(table, active, {party: list(own.names) for party, own in trained.items()})


def _shares(options: TableOptions) -> Names:
    shares = _by_party(options.columns, "--columns")
    if shares and options.parties not in (None, len(shares)):
        raise UnsupportedCombination(f"--columns names {len(shares)} parties and --parties says {options.parties}")
    if sum(names.count(REST) for names in shares.values()) > 1:
        raise ImpossibleParameter("--columns gives the rest (*) twice", "give it to one party")
    return shares


def _filled(names: Iterable[str], rest: Sequence[str]) -> list[str]:
    return [name for given in names for name in (rest if given == REST else (given,))]


def _blocks(names: Sequence[str], parties: int) -> Names:
    """Contiguous blocks of columns, the active party's first."""
    if not 1 <= parties <= len(names):
        raise ImpossibleParameter(
            f"--parties {parties} is outside [1, {len(names)}]", "give every party at least one column"
        )
    titles = ["active", *(f"passive{k}" for k in range(1, parties))]
    blocks = np.array_split(np.arange(len(names)), parties)
    return {title: [names[int(at)] for at in block] for title, block in zip(titles, blocks, strict=True)}


# --- one table per party ----------------------------------------------------------------------------------


def _gather(sources: Mapping[PartyName, object], options: TableOptions) -> tuple[PartyName, Tables]:
    for option, given in (("--columns", bool(options.columns)), ("--parties", options.parties is not None)):
        if given:
            raise UnsupportedCombination(f"{option} deals out one table, and here every party has its own")
    if options.id is None:
        raise MissingColumn("there is no id to align the parties' rows by", "name the id column with --id")
    active = _active(options.active, sources)
    categorical = _by_party(options.categorical, "--categorical")
    for party in categorical:
        if party not in sources:
            raise ImpossibleParameter(f"--categorical: there is no party {party!r}", _one_of(sources))
    tables = {
        party: load_table(
            source,
            **_roles(options, labelled=party == active),
            categorical=categorical.get(party, ()),
            rules=_rules(options.constant),
        )
        for party, source in sources.items()
    }
    return active, align_by_id(tables)


def _test_of_many(
    sources: Mapping[PartyName, object], options: TableOptions, active: PartyName, trained: Tables
) -> Tables:
    tables = {
        party: load_table(
            source,
            **_roles(options, labelled=party == active),
            features=trained[party].names,
            categorical=[column.name for column in trained[party].columns if column.categories is not None],
            rules=_rules("keep"),
        )
        for party, source in sources.items()
    }
    return align_by_id(tables)


# --- both -------------------------------------------------------------------------------------------------


def _roles(options: TableOptions, labelled: bool = True) -> dict[str, Any]:
    if not labelled:
        return {"id": options.id}
    return {"id": options.id, "label": options.label, "weight": options.weight}


def _rules(constant: Any) -> SchemaRules:
    return SchemaRules(constant=constant)


def _active(name: str | None, parties: Iterable[PartyName]) -> PartyName:
    known = list(parties)
    if name is not None and name not in known:
        raise MissingLabel(f"there is no party {name!r} to be the active one", _one_of(known))
    return known[0] if name is None else name


def _one_of(parties: Iterable[PartyName]) -> str:
    return f"choose one of {', '.join(parties)}"


def _by_party(values: Sequence[str], option: str) -> Names:
    """`bank=a,b` and `shop=c` as lists of columns by party."""
    shares: Names = {}
    for value in values:
        match = _NAMED.fullmatch(value)
        if match is None:
            raise ImpossibleParameter(f"{option} {value!r} names no party", f"write {option} NAME=COLUMN,COLUMN")
        names = [name.strip() for name in match[2].split(",") if name.strip()]
        shares.setdefault(match[1], []).extend(names)
    return shares
