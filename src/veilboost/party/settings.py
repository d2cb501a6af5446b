"""The settings of a party (`bank.toml`), and loading the table that they name."""

# `param` makes a dataclass field, which the linter cannot know:
# ruff: noqa: RUF009

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any, cast

from veilboost import at_rest, logs
from veilboost.data.categories import MAX_CATEGORIES, MIN_CATEGORY_ROWS
from veilboost.data.constraints import Constraints
from veilboost.data.load import FORMATS, check_table, load_table
from veilboost.data.report import TableReport
from veilboost.data.schema import SchemaRules
from veilboost.data.table import PartyTable
from veilboost.engine.api import check_engine, lasting_engine
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.tables import table_in_memory, table_in_place, with_frequent_categories
from veilboost.errors import AgainstPolicy, ImpossibleSetting, ParameterError, UnexpectedMessage, VeilBoostError
from veilboost.fields import param
from veilboost.party.policy import EVERY, Policy
from veilboost.party.sections import Section, read_section, read_toml
from veilboost.protocols.constraints import check_names
from veilboost.types import PartyName

_LOG = logs.EventLogger(__name__)
CONNECTS = ("in", "out")


@dataclass(frozen=True)
class DataSettings(Section):
    """The party's table and the roles of its columns."""

    path: Path | None = param(
        None,
        "a parquet, csv, arrow or libsvm file, a folder of parquet files, or a duckdb database",
        example='"bank.parquet"',
    )
    sql: str | None = param(
        None,
        "one SELECT statement for duckdb, on the database in path, or on files with absolute paths",
        example='"SELECT * FROM customers"',
    )
    uri: str | None = param(
        None,
        "a parquet file, or a folder of them, on a file system that pyarrow supports; instead of path",
        example='"s3://bank/customers"',
    )
    format: str | None = param(
        None, "format of path; unset: by its file extension", choices=("parquet", "csv", "arrow", "libsvm")
    )
    table: str = param("main", "name of this table in policies")
    id: str | None = param(None, "record-id column", example='"customer_id"')
    label: str | None = param(None, "label column, at the active party and at every participant", example='"default"')
    weight: str | None = param(None, "sample-weight column", example='"weight"')
    features: tuple[str, ...] | None = param(
        None, "feature columns; unset: all other columns", example='["income", "age"]'
    )
    categorical: tuple[str, ...] = param((), "numeric columns that hold categories; text columns always do")
    missing_values: tuple[str, ...] = param(
        (), "values that stand for missing ones, in all columns, as text", example='["unknown", "-999"]'
    )
    max_categories: int = param(
        MAX_CATEGORIES,
        "maximum number of categories of a column; of a column with more, training uses the most frequent that have "
        f"at least {MIN_CATEGORY_ROWS} rows, and treats the others as missing",
        low=1,
        high=65_535,
    )
    monotone_constraints: Mapping[str, int] = param(
        dict,
        "columns in which predictions may only rise (1) or only fall (-1), in every vertical job on the table",
        low=-1,
        high=1,
        example="visits = 1",
    )
    interaction_constraints: Mapping[str, tuple[str, ...]] = param(
        dict,
        "sets of columns that may interact, by the name of the set, in every vertical job on the table: sets of the "
        "same name at several parties are one set",
        keys="party",
        example='spending = ["visits", "basket"]',
    )
    constant: str = param(
        "error",
        "constant and empty columns: refuse the table (error), drop them, or keep them",
        choices=("error", "drop", "keep"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path is None and self.sql is None and self.uri is None:
            raise ImpossibleSetting("the table has no path, uri or sql", "add one of these keys under [data]")
        if self.uri is not None and (self.path, self.sql, self.format) != (None, None, None):
            raise ImpossibleSetting("uri is given together with path, sql or format", "remove path, sql and format")

    @property
    def parquet(self) -> str | None:
        """The location of the table if it consists of parquet files, which can be read in shards."""
        if self.uri is not None or self.path is None or self.sql is not None:
            return self.uri
        folder = self.format is None and self.path.is_dir()
        named = FORMATS.get(self.path.suffix.lower()) if self.format is None else self.format
        return str(self.path) if folder or named == "parquet" else None

    @property
    def selected(self) -> dict[str, Any]:
        """The roles of the columns, as arguments of the readers."""
        return {
            "id": self.id,
            "label": self.label,
            "weight": self.weight,
            "features": self.features,
            "categorical": self.categorical,
            "missing_values": self.missing_values,
            "rules": SchemaRules(cast(Any, self.constant)),
        }

    def load(self) -> PartyTable:
        """Read and validate the whole table."""
        if self.uri is not None:
            return self.constrained(table_in_memory(self.uri, **self.selected))
        return self.constrained(load_table(self.path, format=self.format, query=self.sql, **self.selected))

    def constrained(self, table: PartyTable) -> PartyTable:
        """The table with the constraints of its columns."""
        constraints = Constraints(self.monotone_constraints, self.interaction_constraints or None)
        check_names(constraints, table.names)
        return replace(table, constraints=constraints)

    def check(self) -> TableReport:
        """Everything that is wrong or unusual in the table; for a uri, only the first error."""
        if self.uri is None:
            more: Any = {"max_categories": self.max_categories, **self.selected}
            return self._with_constraints(check_table(self.path, format=self.format, query=self.sql, **more))
        try:
            table = self.load()
        except VeilBoostError as error:
            return TableReport(errors=(error,))
        return TableReport(table.rows, table=table)

    def _with_constraints(self, report: TableReport) -> TableReport:
        """The report, with an error if a constraint names a column that does not exist."""
        if report.table is None:
            return report
        try:
            return replace(report, table=self.constrained(report.table))
        except VeilBoostError as error:
            return replace(report, errors=(*report.errors, error), table=None)


@dataclass(frozen=True)
class CertificateSettings(Section):
    """The certificate of this party, and the authority that it trusts."""

    cert: Path = param(MISSING, "this party's certificate (veilboost certs issue)")
    key: Path = param(MISSING, "its private key; no other user may have read access")
    ca: Path = param(MISSING, "the certificate of the authority that issued the certificates of all parties")
    revoked: Path | None = param(None, "the revocation list of the authority", example='"certs/revoked.crl"')
    passphrase_file: Path | None = param(
        None,
        "a private file with the passphrase of the key; unset: the file that VEILBOOST_KEY_PASSPHRASE_FILE names",
        example='"${CREDENTIALS_DIRECTORY}/passphrase"',
    )


@dataclass(frozen=True)
class StorageSettings(Section):
    """Encryption of files in the runs folder."""

    key_file: Path | None = param(
        None,
        "a private file with at least 32 random bytes: payloads of transcripts, model shares, checkpoints and keys of "
        "jobs are encrypted with it; unset: they are not encrypted",
        example='"storage.key"',
    )


@dataclass(frozen=True)
class RetentionSettings(Section):
    """How long files are kept after their last use. The daemon deletes older ones every hour."""

    runs_days: float | None = param(
        None,
        "days to keep the run folder of a job that does not run, with the model share, and decided proposals; unset: "
        "forever",
        low=0,
        example="730",
    )
    transcripts_days: float | None = param(
        None,
        "days to keep the transcripts of a job that does not run; unset: as long as its run folder",
        low=0,
        example="30",
    )
    keys_days: float | None = param(
        None,
        "days to keep the key of a job that stopped, which it needs to resume, and prepared results; unset: forever",
        low=0,
        example="14",
    )


@dataclass(frozen=True)
class PeerSettings(Section):
    """The connection to one other party."""

    address: str | None = param(
        None,
        "address that the peer listens on; required with connect = out",
        form="address",
        example='"shop.example:7400"',
    )
    connect: str = param(
        "out",
        "who opens the connection: out: this party; in: the peer, which may be behind a firewall",
        choices=CONNECTS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.connect == "out" and self.address is None:
            raise ImpossibleSetting('connect = "out" needs an address', 'add address, or set connect = "in"')


@dataclass(frozen=True)
class Limits(Section):
    """Limits on the requests of peers, and timeouts for their answers."""

    max_message_mb: int = param(
        1024,
        "maximum size of a received message, in megabytes; the messages of one peer that are in transit or in work "
        "may have twice this size together",
        low=1,
        high=65_536,
    )
    max_links: int = param(16, "maximum number of open connections of one peer", low=1, high=1024)
    max_sessions: int = param(
        32, "maximum number of jobs, predictions and other sessions of one peer at a time", low=1, high=100_000
    )
    max_jobs: int = param(
        4, "maximum number of training jobs on the table at a time; each needs memory of its own", low=1, high=10_000
    )
    max_deployments: int = param(
        16, "maximum number of live deployments; each keeps its columns of the table in memory", low=1, high=10_000
    )
    max_proposals: int = param(
        16, "maximum number of proposals of one peer that wait for a decision (approval = ask)", low=1, high=1000
    )
    connect_seconds: float = param(
        10.0, "timeout of one connection attempt, and of the handshake of a peer that connects", low=0.1, high=3600
    )
    request_seconds: float = param(
        3600.0,
        "timeout of a request to a connected peer, and of a message that a peer sends or reads",
        low=0.1,
        high=604_800,
    )
    wait_seconds: float = param(
        300.0, "how long to wait for a peer that has disconnected; then its jobs are parked", low=0, high=604_800
    )
    keepalive_seconds: float = param(20.0, "interval of health checks of an idle connection", low=1, high=3600)


@dataclass(frozen=True)
class LoggingSettings(Section):
    """What this party logs on stderr, and in which format."""

    level: str | None = param(
        None,
        "least severe records to log; unset: info for party serve and serve, warning for train and predict, which show "
        "their progress",
        choices=logs.LEVELS,
        example='"info"',
    )
    format: str = param("text", "text, or one JSON object per line", choices=logs.FORMATS)

    def to_stderr(self, default: str = "info") -> AbstractContextManager[None]:
        """Log to stderr within a block, at the level of the settings or else this one."""
        return logs.logging_to_stderr(self.level or default, self.format)


@dataclass(frozen=True)
class PartySettings(Section):
    """The settings of a party and its daemon."""

    name: PartyName = param(MISSING, "name of this party, as in its certificate", form="party")
    certificates: CertificateSettings = param(
        MISSING, "The certificate of this party, and the authority that it trusts."
    )
    data: DataSettings | None = param(
        None, "The table of this party. It stays on this machine. Servers and helpers have no table."
    )
    listen: str = param(
        "127.0.0.1:7400", "address to listen on; 0.0.0.0:7400: all interfaces; port 0: any free port", form="address"
    )
    runs: Path = param(Path("runs"), "folder for models, checkpoints and transcripts, with a subfolder for each job")
    ledger: Path | None = param(
        None,
        "file of the privacy ledger, shared by all jobs on this table; unset: ledger.sqlite in the runs folder",
        example='"ledger.sqlite"',
    )
    metrics: str | None = param(
        None,
        "address of Prometheus metrics and health checks, without TLS: let only your own network reach it; unset: none",
        form="address",
        example='"127.0.0.1:9464"',
    )
    n_jobs: int = param(0, "number of threads; 0: one per core", low=0, high=1024)
    engine: str = param(
        "local",
        "where this party computes: local, disk or disk:FOLDER (rows in files), ray (workers on this machine) or "
        "ray://HOST:PORT (this party's cluster)",
    )
    workers: int | None = param(None, "number of workers of the engine ray; unset: one per core", low=1, high=100_000)
    storage: StorageSettings = param(StorageSettings, "Encryption of files in the runs folder.")
    retention: RetentionSettings = param(
        RetentionSettings, "How long files are kept after their last use. The daemon deletes older ones every hour."
    )
    peers: Mapping[PartyName, PeerSettings] = param(dict, "Connections to the other parties.", keys="party")
    limits: Limits = param(Limits, "Limits on the requests of peers, and timeouts for their answers.")
    logging: LoggingSettings = param(LoggingSettings, "What this party logs on stderr, and in which format.")
    policy: Policy = param(Policy, "What the owner allows. Any other job is refused before data are read.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name in self.peers:
            raise ImpossibleSetting(f"{self.name} is one of its own peers", f"remove [peers.{self.name}]")
        try:
            check_engine(self.engine, self.workers)
        except ParameterError as error:
            raise ImpossibleSetting(f"engine: {error.what}", error.remedy) from None

    @property
    def ledger_file(self) -> Path:
        return self.ledger or self.runs / "ledger.sqlite"

    @property
    def cores(self) -> int:
        """The number of threads."""
        return self.n_jobs or os.cpu_count() or 1

    @property
    def own_data(self) -> DataSettings:
        if self.data is None:
            raise UnexpectedMessage("this party has no table", "add a [data] section to its settings")
        return self.data


def load_party(file: str | Path) -> PartySettings:
    """Read the settings of a party. Relative paths start at the folder of the file.

    From then on this process encrypts and decrypts files in the runs folder with the storage key, if there is one.

    Raises
    ------
    UnreadableSettings
        The file does not exist or is not TOML.
    ImpossibleSetting
        A key is unknown, missing, of the wrong type or out of range; the message names the file and the key.
    """
    path = Path(file)
    settings = read_section(PartySettings, read_toml(path), path)
    at_rest.protect(settings.runs, settings.storage.key_file)
    return settings


def open_table(settings: PartySettings) -> PartyTable:
    """The party's table. With a sharded engine and parquet files it stays in shards."""
    data, engine = settings.own_data, lasting_engine(settings.engine, settings.workers)
    if data.parquet is None or not isinstance(engine, ShardedEngine):
        return data.load()
    return data.constrained(table_in_place(engine, data.parquet, **data.selected))


def load_allowed(settings: PartySettings, in_place: bool = False) -> PartyTable:
    """The party's table, in memory or as `open_table` reads it, if the policy allows its columns."""
    table = open_table(settings) if in_place else settings.own_data.load()
    if EVERY not in settings.policy.columns:
        forbidden = sum(name not in settings.policy.columns for name in table.names)
        if forbidden:
            raise AgainstPolicy(
                f"the policy does not allow {forbidden} of the columns",
                "add them to columns under [policy], or remove them from features under [data]",
            )
    return table


def training_table(settings: PartySettings, table: PartyTable) -> PartyTable:
    """The rows of a job with the categories that it trains on. The log tells the owner if that drops any."""
    grouped = with_frequent_categories(table, settings.own_data.max_categories)
    columns = sum(before is not after for before, after in zip(table.columns, grouped.columns, strict=True))
    if columns:
        _LOG.warning(
            "categories_dropped",
            f"{columns} columns have more than max_categories values, and training uses only the frequent ones "
            "(veilboost data check names them)",
            columns=columns,
        )
    return grouped
