"""A party's file (`bank.toml`): every key once, with default, range and help; and the table that it names."""

# `param` makes a dataclass field, which the linter cannot know:
# ruff: noqa: RUF009

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, cast

from veilboost.data.load import FORMATS, load_table
from veilboost.data.schema import SchemaRules
from veilboost.data.table import PartyTable
from veilboost.engine.api import check_engine, lasting_engine
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.tables import table_in_place
from veilboost.errors import AgainstPolicy, ImpossibleSetting, ParameterError, UnexpectedMessage
from veilboost.fields import param
from veilboost.party.policy import EVERY, Policy
from veilboost.party.sections import Section, read_section, read_toml
from veilboost.types import PartyName

CONNECTS = ("in", "out")


@dataclass(frozen=True)
class DataSettings(Section):
    """The party's own table, and what its columns are."""

    path: Path | None = param(
        None,
        "parquet, csv, arrow or libsvm file, folder of parquet files, or duckdb database",
        example='"bank.parquet"',
    )
    sql: str | None = param(
        None,
        "one SELECT that duckdb runs, on the database in path or on files that it names by full path",
        example='"SELECT * FROM customers"',
    )
    uri: str | None = param(
        None,
        "folder of parquet files, or one, on a filesystem that pyarrow knows, in place of path",
        example='"s3://bank/customers"',
    )
    format: str | None = param(
        None, "format of path where its ending does not say", choices=("parquet", "csv", "arrow", "libsvm")
    )
    table: str = param("main", "what policies call this table")
    id: str | None = param(None, "column that says whose row it is", example='"customer_id"')
    label: str | None = param(None, "column to predict; the active party has one", example='"default"')
    weight: str | None = param(None, "column that says what a row counts", example='"weight"')
    features: tuple[str, ...] | None = param(
        None, "columns to train on; unset: every other column", example='["income", "age"]'
    )
    categorical: tuple[str, ...] = param((), "columns of numbers that are categories; text always is")
    constant: str = param("error", "what to do with columns of one value", choices=("error", "drop", "keep"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path is None and self.sql is None and self.uri is None:
            raise ImpossibleSetting("neither path nor uri nor sql is given", "say where the table is")
        if self.uri is not None and (self.path, self.sql, self.format) != (None, None, None):
            raise ImpossibleSetting("uri names the table, and so does another key", "leave out path, sql and format")

    @property
    def parquet(self) -> str | None:
        """Where the table is, if it is parquet files, which can be read by shard."""
        if self.uri is not None or self.path is None or self.sql is not None:
            return self.uri
        folder = self.format is None and self.path.is_dir()
        named = FORMATS.get(self.path.suffix.lower()) if self.format is None else self.format
        return str(self.path) if folder or named == "parquet" else None

    @property
    def selected(self) -> dict[str, Any]:
        """What the columns are, as all readers take it."""
        return {
            "id": self.id,
            "label": self.label,
            "weight": self.weight,
            "features": self.features,
            "categorical": self.categorical,
            "rules": SchemaRules(cast(Any, self.constant)),
        }

    def load(self) -> PartyTable:
        """Read and check the table, all of it."""
        if self.uri is not None:
            from veilboost.engine.tables import table_in_memory

            return table_in_memory(self.uri, **self.selected)
        return load_table(self.path, format=self.format, query=self.sql, **self.selected)


@dataclass(frozen=True)
class CertificateSettings(Section):
    """Who this party is to others, and whom it believes."""

    cert: Path = param(MISSING, "this party's certificate (veilboost certs issue)")
    key: Path = param(MISSING, "its private key; no other user may read it")
    ca: Path = param(MISSING, "the certificate of the authority that issued those of all parties")
    revoked: Path | None = param(
        None, "the authority's list of certificates that no longer count", example='"certs/revoked.crl"'
    )


@dataclass(frozen=True)
class PeerSettings(Section):
    """The way to one other party."""

    address: str | None = param(
        None, "where it listens; needed with connect = out", form="address", example='"shop.example:7400"'
    )
    connect: str = param(
        "out", "who dials: out is this party, in is the other one (which may be behind a firewall)", choices=CONNECTS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.connect == "out" and self.address is None:
            raise ImpossibleSetting('connect = "out" needs an address', 'give address, or say connect = "in"')


@dataclass(frozen=True)
class Limits(Section):
    """What a peer may ask of this machine, and how long this machine waits for a peer."""

    max_message_mb: int = param(1024, "largest message to accept, in megabytes", low=1, high=65_536)
    connect_seconds: float = param(10.0, "how long one attempt to connect may take", low=0.1, high=3600)
    request_seconds: float = param(
        3600.0, "how long a peer that is connected may take to answer a request", low=0.1, high=604_800
    )
    wait_seconds: float = param(300.0, "how long to wait for a peer that is gone", low=0, high=604_800)
    keepalive_seconds: float = param(20.0, "how often to ask a silent peer whether it lives", low=1, high=3600)


@dataclass(frozen=True)
class PartySettings(Section):
    """All that a party's daemon is told."""

    name: PartyName = param(MISSING, "this party, as its certificate names it", form="party")
    certificates: CertificateSettings = param(MISSING, "Who this party is, and whom it believes.")
    data: DataSettings | None = param(
        None, "This party's table. It stays on this machine. An authority or a computing service has none."
    )
    listen: str = param(
        "127.0.0.1:7400", "address to listen on; 0.0.0.0:7400 is every interface, port 0 any free one", form="address"
    )
    runs: Path = param(Path("runs"), "folder for models, checkpoints and transcripts, one folder per job")
    ledger: Path | None = param(
        None,
        "file of the privacy ledger, which all jobs on this table share; unset: ledger.sqlite in the runs folder",
        example='"ledger.sqlite"',
    )
    n_jobs: int = param(0, "threads to compute with; 0: one per core", low=0, high=1024)
    engine: str = param(
        "local",
        "where to compute: local, disk or disk:FOLDER (rows in files), ray (workers on this machine) or "
        "ray://HOST:PORT (a cluster of this party's)",
    )
    workers: int | None = param(None, "workers of the engine ray; unset: one per core", low=1, high=100_000)
    peers: Mapping[PartyName, PeerSettings] = param(dict, "The ways to the other parties.", keys="party")
    limits: Limits = param(Limits, "What peers may ask of this machine, and how long it waits for them.")
    policy: Policy = param(Policy, "What this owner allows. A job outside of it is refused before anything is read.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name in self.peers:
            raise ImpossibleSetting(f"{self.name} is named among its own peers", "leave it out of [peers]")
        try:
            check_engine(self.engine, self.workers)
        except ParameterError as error:
            raise ImpossibleSetting(f"engine: {error.what}", error.remedy) from None

    @property
    def ledger_file(self) -> Path:
        return self.ledger or self.runs / "ledger.sqlite"

    @property
    def cores(self) -> int:
        """How many threads compute."""
        return self.n_jobs or os.cpu_count() or 1

    @property
    def own_data(self) -> DataSettings:
        if self.data is None:
            raise UnexpectedMessage("this party has no table")
        return self.data


def load_party(file: str | Path) -> PartySettings:
    """Read a party's file. Relative paths in it start where the file is.

    Raises
    ------
    UnreadableSettings
        There is no such file, or it is not TOML.
    ImpossibleSetting
        A key is unknown, missing, of the wrong type or out of range; the text names file and key.
    """
    path = Path(file)
    return read_section(PartySettings, read_toml(path), path)


def open_table(settings: PartySettings) -> PartyTable:
    """The party's table; it stays in shards where the engine has shards and the table is parquet files."""
    data, engine = settings.own_data, lasting_engine(settings.engine, settings.workers)
    if data.parquet is None or not isinstance(engine, ShardedEngine):
        return data.load()
    return table_in_place(engine, data.parquet, **data.selected)


def load_allowed(settings: PartySettings, in_place: bool = False) -> PartyTable:
    """The party's table in memory, or as `open_table` reads it, if the policy allows its columns."""
    table = open_table(settings) if in_place else settings.own_data.load()
    if EVERY not in settings.policy.columns:
        forbidden = sum(name not in settings.policy.columns for name in table.names)
        if forbidden:
            raise AgainstPolicy(f"the policy forbids {forbidden} of the columns", "list them, or leave them out")
    return table
