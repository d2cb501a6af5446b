"""Requirements of every protocol: test classes that a protocol's own tests derive from.

    class TestCoarse(VerticalContract):
        spec = SPEC

The protocol must be registered, as a built-in one or through its package's entry point.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from veilboost.audit.attacks import all_attacks
from veilboost.boost import rows as row_groups
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness, unsafe_key
from veilboost.data.table import PartyTable
from veilboost.engine.api import open_engine
from veilboost.errors import (
    EmptyTable,
    InvalidParameter,
    MissingColumn,
    MixedTypes,
    UnexpectedMessage,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.model.joined import join
from veilboost.party.simulation import SERVER, HorizontalFederation, Simulation, simulate_training
from veilboost.party.training import PassiveSession, Resumed, TrainingJob, train_active
from veilboost.privacy.statement import Status
from veilboost.protocols.registry import protocol_named, protocols_of
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.protocols.vertical.roles import PassiveContext
from veilboost.testing.tables import make_columns, make_labels, split_among
from veilboost.types import Column, PartyName, Role
from veilboost.wire.channel import Channel, Handler, MemoryChannel, Peers
from veilboost.wire.message import Catalogue, Message
from veilboost.wire.transcript import Transcript

VERTICAL_CASES: Mapping[str, Mapping[str, Any]] = {
    "binary": {"objective": "binary"},
    "multiclass": {"objective": "multiclass"},
    "regression": {"objective": "regression"},
    "poisson": {"objective": "poisson"},
    "sampled": {"objective": "binary", "subsample": 0.6, "colsample_bytree": 0.6},
    "goss": {"objective": "binary", "sampling": "goss", "top_rate": 0.3, "other_rate": 0.1},
    "local": {"objective": "binary", "proposal": "local"},
    "onehot": {"objective": "binary", "categories": "onehot"},
    "ordinal": {"objective": "binary", "categories": "ordinal"},
    "first order": {"objective": "binary", "order": "first"},
}
# Jobs that limit splits, for protocols whose spec says `limits_splits`.
LIMITED_CASES: Mapping[str, Mapping[str, Any]] = {
    "by level": {"objective": "multiclass", "colsample_bytree": 0.9, "colsample_bylevel": 0.6},
    "monotone": {"objective": "binary", "monotone_constraints": {"n0": 1, "n2": -1, "n3": 1}},
    "interaction": {
        "objective": "multiclass",
        "interaction_constraints": [["n0", "n2", "c0"], ["n1", "n3"], ["c0", "c1"]],
    },
    "limited": {
        "objective": "regression",
        "colsample_bylevel": 0.8,
        "monotone_constraints": {"n0": 1, "n2": -1},
        "interaction_constraints": [["n0", "n1", "c0"], ["n1", "n2", "n3"]],
    },
}
HORIZONTAL_CASES = ("binary", "multiclass", "regression")
_JOBS = {**VERTICAL_CASES, **LIMITED_CASES}
HELD_OUT = np.arange(150) >= 120

Tables = dict[PartyName, PartyTable]


def vertical_problem(
    name: str, spec: ProtocolSpec, options: Mapping[str, Any], parties: int = 3
) -> tuple[Tables, TrainingConfig]:
    """Tables and parameters, with categories in the form that the protocol supports.

    Raises
    ------
    UnsupportedCombination
        If the protocol does not train such a job.
    """
    config = spec.settled(TrainingConfig(n_estimators=3, max_depth=3, max_bin=8, options=dict(options), **_JOBS[name]))
    validate(ResolvedJob(spec, config))
    columns = make_columns(21, rows=150, numeric=4, categorical=2, missing=0.1)
    return split_among(columns, make_labels(21, columns, config.objective), parties), config


def declared_classes(table: PartyTable, config: TrainingConfig, spec: ProtocolSpec) -> tuple[str, ...] | None:
    """The classes of integer labels, if the protocol needs them declared."""
    if config.objective != "multiclass" or not spec.declared_classes or table.label is None:
        return None
    return tuple(str(code) for code in range(int(table.label.max()) + 1))


def horizontal_tables(name: str = "binary", rows: int = 240, participants: int = 3) -> Tables:
    columns = make_columns(5, rows=rows, numeric=3, categorical=1, missing=0.1)
    pooled = PartyTable(np.arange(rows), tuple(columns), make_labels(5, columns, name))
    parts = np.array_split(np.arange(rows), participants)
    return {f"p{at}": pooled.take(part) for at, part in enumerate(parts)}


def horizontal_config(
    spec: ProtocolSpec, name: str = "binary", options: Mapping[str, Any] | None = None
) -> TrainingConfig:
    config = TrainingConfig(objective=name, n_estimators=4, max_depth=3, max_bin=6, options=dict(options or {}))
    return replace(config, **spec.fixed)


def leakage_of(spec: ProtocolSpec) -> str:
    """The page LEAKAGE.md beside the code of the protocol's roles."""
    role = spec.roles[spec.driver]
    module: str = getattr(role, "func", role).__module__
    return importlib.resources.files(module.rpartition(".")[0]).joinpath("LEAKAGE.md").read_text(encoding="utf-8")


def sha(run: Simulation) -> str:
    return join(run.shares).sha256()


class _Contract:
    """Requirements of protocols of any setting."""

    spec: ClassVar[ProtocolSpec]

    def test_statuses_match_existing_attacks(self) -> None:
        statement = self.spec.statement
        for each in self.spec.evidence:
            assert (each.victim, each.subject) in statement.directions
            assert (
                statement.worst_for(each.victim, each.subject) in (Status.BROKEN, Status.UNPROTECTED)
            ) == each.succeeds
            if each.attack is not None:
                assert all_attacks()[each.attack].victim == each.victim


class VerticalContract(_Contract):
    """Requirements of every vertical protocol.

    `options` make a small job fast. `quiet`: they turn noise off, and the model must be that of `plain`. `unsent` are
    declared messages that a small run does not send; `exchanges` is how often a level waits for answers,
    `exchanges_of_two` is the same for a job of two parties, and `exchanges_once` is how often a job waits before its
    first tree, apart from opening.
    """

    options: ClassVar[Mapping[str, Any]] = {}
    quiet: ClassVar[bool] = False
    unsent: ClassVar[frozenset[str]] = frozenset()
    exchanges: ClassVar[int] = 2
    exchanges_of_two: ClassVar[int | None] = None
    exchanges_once: ClassVar[int] = 0

    def problem(self, name: str, parties: int = 3) -> tuple[Tables, TrainingConfig]:
        try:
            return vertical_problem(name, self.spec, self.options, parties)
        except UnsupportedCombination as refused:
            pytest.skip(str(refused))

    def train(self, tables: Tables, config: TrainingConfig, **options: Any) -> Simulation:
        options.setdefault("classes", declared_classes(tables["p0"], config, self.spec))
        return simulate_training(tables, "p0", self.spec.name, config, **options)

    @pytest.mark.parametrize("name", _JOBS)
    def test_an_exact_protocol_and_one_with_its_noise_off_equal_plain(self, name: str) -> None:
        if not self.spec.exact and not self.quiet:
            pytest.skip("not exact")
        tables, config = self.problem(name)
        plain = simulate_training(tables, "p0", "plain", replace(config, options={}), held_out=HELD_OUT)
        assert sha(self.train(tables, config, held_out=HELD_OUT)) == sha(plain)

    def test_rows_on_disk_give_the_same_model(self, tmp_path: Path) -> None:
        if "disk" not in self.spec.engines:
            pytest.skip("it runs only on the local engine")
        tables, config = self.problem("binary")
        with open_engine(f"disk:{tmp_path}") as engine:
            run = self.train(tables, config, engine=engine, unsafe_noise_seed=0)
        assert sha(run) == sha(self.train(tables, config, unsafe_noise_seed=0))

    def test_all_declared_messages_and_no_others_are_sent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(row_groups, "ASSIGNMENTS_AT_ONCE", 16)
        tables, config = self.problem("binary")
        run = self.train(tables, config)
        sent = {entry.message for transcript in run.transcripts.values() for entry in transcript.entries}
        unsent = {"ResumeTraining", *self.unsent}
        assert not sent & unsent
        assert sent | unsent == {message.type_name() for message in self.spec.messages}

    def test_a_resumed_job_gives_the_same_model(self) -> None:
        """Interrupt the run after two rounds, then restart all parties."""
        tables, config = self.problem("multiclass")
        expected = sha(self.train(tables, config, unsafe_noise_seed=0))
        first = _Keeper(None, stops=True)
        records = self._resumed(tables, config, first, {})
        shares = self._resumed(tables, config, _Keeper(first.state), records)
        assert join({name: shares[name] for name in tables}).sha256() == expected

    def _resumed(self, tables: Tables, config: TrainingConfig, keeper: _Keeper, records: Mapping[str, Any]) -> Any:
        """Train from the saved progress; returns the model shares, or the passive parties' records if interrupted."""
        keys = {name: JobRandomness(unsafe_key(0, name)) for name in tables}  # stored with the job, as in a run folder
        sessions = {
            name: PassiveSession(self.spec, name, table, randomness=keys[name])
            for name, table in tables.items()
            if name != "p0"
        }
        for name, session in sessions.items():
            if name in records:
                session.side.restore(records[name])
        here, catalogue = Transcript("p0"), Catalogue(self.spec.messages)
        channels: dict[PartyName, Channel] = {
            name: MemoryChannel(each.side.handle, catalogue, here, Transcript(name)) for name, each in sessions.items()
        }
        classes = declared_classes(tables["p0"], config, self.spec)
        job = TrainingJob(self.spec, config, tuple(tables), classes=classes)
        keeper.peers = Peers(channels)
        try:
            outcome = train_active(job, "p0", tables["p0"], keeper.peers, keeper=keeper, randomness=keys["p0"])
        except _Interrupted:
            return {name: session.side.records() for name, session in sessions.items()}
        assert all(session.side.finished for session in sessions.values())
        assert "ResumeTraining" in {entry.message for entry in here.entries}
        return {"p0": outcome.share} | {name: session.share() for name, session in sessions.items()}

    @pytest.mark.parametrize("name", ["binary", "multiclass", "sampled"])
    def test_encoding_messages_changes_nothing(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Passed in memory, or encoded and decoded as between processes: the same model, the same bytes."""
        tables, config = self.problem(name)
        direct = self.train(tables, config, held_out=HELD_OUT, unsafe_noise_seed=0)
        monkeypatch.setattr(simulation_module, "MemoryChannel", functools.partial(MemoryChannel, coded=True))
        coded = self.train(tables, config, held_out=HELD_OUT, unsafe_noise_seed=0)
        assert sha(coded) == sha(direct)
        for party in tables:
            sizes = [
                [(entry.direction, entry.message, entry.size) for entry in run.transcripts[party].entries]
                for run in (direct, coded)
            ]
            assert sizes[0] == sizes[1]

    def test_both_ends_record_the_same_bytes(self) -> None:
        tables, config = self.problem("multiclass")
        run = self.train(tables, config)
        sent = received = 0
        for transcript in run.transcripts.values():
            sent += sum(entry.size for entry in transcript.entries if entry.direction == "sent")
            received += sum(entry.size for entry in transcript.entries if entry.direction == "received")
            peers = {entry.peer for entry in transcript.entries}
            assert peers == ({"p1", "p2"} if transcript.owner == "p0" else {"p0"}), (
                "passive parties never exchange messages"
            )
        assert sent == received == run.bytes_sent > 0

    def test_a_level_costs_the_declared_number_of_exchanges(self) -> None:
        for parties, exchanges in ((3, self.exchanges), (2, self.exchanges_of_two or self.exchanges)):
            ahead = parties == 2 and self.exchanges_of_two is not None  # the last split has an exchange of its own
            tables, config = self.problem("binary", parties=parties)
            run = self.train(tables, config)
            # Opening and closing the job, statistics and splits of each level, and the last split if it stands alone.
            job = 2 + self.exchanges_once
            assert run.rounds <= job + config.n_estimators * (exchanges * config.max_depth + ahead)

    def test_every_message_declares_what_it_reveals_and_to_whom(self) -> None:
        prose = " ".join(leakage_of(self.spec).split())
        for message in self.spec.messages:
            assert "reveals" in vars(message), f"{message.type_name()} must set reveals itself"
            assert message.type_name() in prose
            for item in message.reveals:
                assert item.to in set(Role)
                assert item.what in prose, f"LEAKAGE.md does not state: {item.what}"

    def test_the_statement_covers_both_roles(self) -> None:
        for victim in (Role.ACTIVE, Role.PASSIVE):
            assert self.spec.statement.worst_for(victim) in set(Status)
        for protection in self.spec.statement.protections:
            assert protection.why

    @pytest.mark.parametrize("name", ["binary", "sampled", "multiclass"])
    def test_a_damaged_request_is_refused_and_leaves_no_trace(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        refused: set[tuple[str, int]] = set()

        class TamperingChannel(MemoryChannel):
            def send(self, message: Message) -> Any:
                for at, wrong in enumerate(_damaged(message)):
                    with pytest.raises(VeilBoostError) as caught:
                        self._handler(wrong)
                    assert caught.value.code.startswith("VB-")
                    refused.add((message.type_name(), at))
                return super().send(message)

        tables, config = self.problem(name)
        expected = sha(self.train(tables, config, unsafe_noise_seed=0))
        monkeypatch.setattr(simulation_module, "MemoryChannel", TamperingChannel)
        assert sha(self.train(tables, config, unsafe_noise_seed=0)) == expected
        assert len({kind for kind, _ in refused}) >= 3

    def test_requests_out_of_turn_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[tuple[Handler, Message]] = []

        class RecordingChannel(MemoryChannel):
            def send(self, message: Message) -> Any:
                seen.append((self._handler, message))
                return super().send(message)

        monkeypatch.setattr(simulation_module, "MemoryChannel", RecordingChannel)
        tables, config = self.problem("binary", parties=2)
        self.train(tables, config)
        handler = seen[0][0]
        for _, message in seen:
            with pytest.raises(VeilBoostError):
                handler(message)  # the job has ended
        fresh = self.spec.roles["passive"](PassiveContext("p1", tables["p1"].columns, tables["p1"].rows, 1))
        for _, message in seen[1:]:
            with pytest.raises(VeilBoostError):
                fresh.handle(message)  # the job has not begun


class _Interrupted(Exception):
    pass


class _Keeper:
    """Saves a run's progress, and interrupts it after two rounds if `stops` is True."""

    def __init__(self, kept: Resumed | None, stops: bool = False) -> None:
        self.state, self._stops = kept, stops
        self.digests: Mapping[PartyName, str] = {}
        self.peers = Peers({})

    def resumed(self) -> Resumed | None:
        return self.state

    def store(self, trees: int) -> None:
        pass

    def chose(self, what: str) -> None:
        pass

    def keep(self, progress: Any, records: Any) -> None:
        self.peers.flush()  # a checkpoint is a request, with which everything that is held is sent
        self.state = Resumed(progress, records, {})
        if len(progress.history) == 2 and self._stops:
            raise _Interrupted

    def bring_back(self, error: Exception, begin: Any) -> bool:
        return False


def _damaged(message: Any) -> Iterator[Any]:
    """Copies of a request with errors that the receiver can detect."""
    for item in dataclasses.fields(message):
        value: Any = getattr(message, item.name)
        if hasattr(value, "ndim") and value.size and item.name not in ("build", "columns"):
            yield replace(message, **{item.name: value[:-1] if value.ndim == 1 else value[:, :-1]})
        if item.name in ("build", "columns", "position", "handles", "split", "set_bins") and len(value):
            yield replace(message, **{item.name: value + np.int32(100_000)})
            yield replace(message, **{item.name: -1 - value})
        if item.name in ("depth", "number", "rows", "trees_per_round"):
            yield replace(message, **{item.name: value + 20_000})
            yield replace(message, **{item.name: -1})
        if item.name == "config":
            for text in ("", "[]", "{", '{"max_depth": "deep"}', '{"max_depth": -1}', '{"unknown": 1}'):
                yield replace(message, config=text)


class HorizontalContract(_Contract):
    """Requirements of every horizontal protocol; `unsent` are declared messages that a small run does not send."""

    options: ClassVar[Mapping[str, Any]] = {}
    unsent: ClassVar[frozenset[str]] = frozenset()

    def config(self, name: str = "binary") -> TrainingConfig:
        return horizontal_config(self.spec, name, self.options)

    @pytest.mark.parametrize("name", HORIZONTAL_CASES)
    def test_every_participant_ends_with_the_servers_model(self, name: str) -> None:
        run = HorizontalFederation(self.spec.name, horizontal_tables(name), self.config(name), coded=True).train()
        assert len(run.model.trees) == 4 * run.model.skeleton.trees_per_round
        own = run.outcome.share
        assert own.skeleton is not None
        for share in run.shares.values():
            assert share is not None
            assert share.skeleton is not None
            assert np.array_equal(share.records.threshold, own.records.threshold)
            assert share.skeleton.config == own.skeleton.config

    def test_all_declared_messages_and_no_others_are_sent(self) -> None:
        run = simulate_training(horizontal_tables(), SERVER, self.spec.name, self.config())
        sent = {entry.message for transcript in run.transcripts.values() for entry in transcript.entries}
        assert sent | self.unsent == {message.type_name() for message in self.spec.messages}

    def test_messages_reach_the_declared_receivers(self) -> None:
        run = simulate_training(horizontal_tables(), SERVER, self.spec.name, self.config())
        reveals = {message.type_name(): {item.to for item in message.reveals} for message in self.spec.messages}
        roles = {name: name if name in self.spec.roles else "participant" for name in run.transcripts}
        for name, transcript in run.transcripts.items():
            for entry in transcript.entries:
                if entry.direction == "received":
                    assert reveals[entry.message] <= {roles[name]}, entry.message

    def test_the_ledger_books_what_was_sent(self) -> None:
        run = simulate_training(horizontal_tables(), SERVER, self.spec.name, self.config())
        assert all(account.events for account in run.accounts.values())
        assert all(event.protocol == self.spec.name for account in run.accounts.values() for event in account.events)

    def test_it_declares_only_engines_of_horizontal_jobs(self) -> None:
        assert self.spec.engines == ("local",)

    def test_a_seed_repeats_a_run(self) -> None:
        runs = [
            simulate_training(horizontal_tables(), SERVER, self.spec.name, self.config(), unsafe_noise_seed=1)
            for _ in range(2)
        ]
        assert runs[0].model.sha256() == runs[1].model.sha256()
        assert runs[0].bytes_sent == runs[1].bytes_sent

    def test_impossible_federations_are_refused(self) -> None:
        tables, config = horizontal_tables(), self.config()
        with pytest.raises(EmptyTable):
            simulate_training({}, SERVER, self.spec.name, config)
        with pytest.raises(InvalidParameter, match="role"):
            simulate_training({"server": tables["p0"]}, SERVER, self.spec.name, config)
        with pytest.raises(InvalidParameter):
            simulate_training(tables, SERVER, self.spec.name, replace(config, options={"no_such": 1}))

    def test_different_columns_and_kinds_are_refused_before_any_row_is_sent(self) -> None:
        tables = horizontal_tables()
        first, *rest = tables["p1"].columns
        other = Column(first.name, np.zeros(tables["p1"].rows, dtype=np.int32), ("x",))
        for column, error in [(replace(first, name="other"), MissingColumn), (other, MixedTypes)]:
            changed = {**tables, "p1": replace(tables["p1"], columns=(column, *rest))}
            federation = HorizontalFederation(self.spec.name, changed, self.config())
            with pytest.raises(error, match=r"p1|numbers"):
                federation.train()
            assert federation.peers.rounds == 0
            assert not federation.accounts["p0"].events

    def test_an_introduction_of_another_protocol_is_refused(self) -> None:
        other = next(name for name in protocols_of("horizontal") if name != self.spec.name)
        config = horizontal_config(protocol_named(other))
        stranger = HorizontalFederation(other, horizontal_tables(), config).participants["p1"].introduce()
        federation = HorizontalFederation(self.spec.name, horizontal_tables(), self.config())
        federation.server._context.introductions["p1"] = stranger  # pyright: ignore
        with pytest.raises(UnexpectedMessage, match="p1 introduced itself"):
            federation.train()

    def test_the_statement_covers_participants_and_the_page_repeats_it(self) -> None:
        assert self.spec.statement.worst_for("participant") in tuple(Status)
        text = leakage_of(self.spec)
        for message in self.spec.messages:
            assert f"`{message.type_name()}`" in text, f"{message.type_name()} is not named"
            for item in message.reveals:
                assert f'"{item.what}"' in text, f"not quoted: {item.what}"
        for protection in self.spec.statement.protections:
            assert f"**{protection.status}**" in text
            assert protection.why in text
