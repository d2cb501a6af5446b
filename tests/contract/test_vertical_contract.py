"""What every vertical protocol must keep, whatever it protects."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from scenes import VERTICAL_SCENES, vertical_scene
from support import QUIET_OPTIONS, declared, quick, sha, train
from veilboost.boost import sides
from veilboost.crypto.csprng import JobRandomness, unsafe_key
from veilboost.errors import UnsupportedCombination, VeilBoostError
from veilboost.privacy.statement import Status
from veilboost.protocols.registry import protocols_of
from veilboost.protocols.spec import ProtocolSpec
from veilboost.types import Role
from veilboost.wire.memory import MemoryChannel

PROTOCOLS = list(protocols_of("vertical").values())
pytestmark = [pytest.mark.fast, pytest.mark.parametrize("spec", PROTOCOLS, ids=lambda spec: spec.name)]


def scene(name: str, spec: ProtocolSpec, parties: int = 3):
    try:
        return vertical_scene(name, spec, parties)
    except UnsupportedCombination as refused:
        pytest.skip(str(refused))


@pytest.mark.parametrize("name", VERTICAL_SCENES)
def test_an_exact_protocol_and_one_with_its_noise_off_equal_plain(spec, name):
    if not spec.exact and spec.name not in QUIET_OPTIONS:
        pytest.skip("not exact")
    tables, config = scene(name, spec)
    held_out = np.arange(150) >= 120
    assert sha(train(tables, config, spec.name, held_out=held_out)) == sha(train(tables, config, held_out=held_out))


# Of two ways to encrypt, a run takes one; and only very many rows come in several messages.
OTHER_WAY = {
    "elxgb": {"LatticeRound", "LatticeRequest", "LatticeSums"},
    "plain": {"MoreGradients"},
    "lattice": {"LatticeMore"},
}


def test_only_declared_messages_travel_and_all_declared_ones_do(spec, monkeypatch):
    monkeypatch.setattr(sides, "SIDES_AT_ONCE", 16)
    tables, config = scene("binary", spec)
    run = train(tables, config, spec.name)
    sent = {entry.message for transcript in run.transcripts.values() for entry in transcript.entries}
    unsent = {"ResumeTraining"} | OTHER_WAY.get(spec.name, set())
    assert not sent & unsent
    assert sent | unsent == {message.type_name() for message in spec.messages}


def test_an_interrupted_job_goes_on_to_the_same_model(spec):
    """A keeper that loses the run after two rounds, and then a fresh start of all sides."""
    from veilboost.party.vertical.training import PassiveSession, TrainingJob, train_active
    from veilboost.wire.channel import Peers
    from veilboost.wire.codec import Catalogue
    from veilboost.wire.transcript import Transcript

    tables, config = scene("multiclass", spec)
    expected = sha(train(tables, config, spec.name, unsafe_noise_seed=0))

    class Interrupted(Exception):
        pass

    class Keeper:
        def __init__(self, kept=None):
            self.progress = kept

        def kept(self):
            return self.progress

        def keep(self, progress, records):
            self.progress = progress, records
            if len(progress.history) == 2 and self.stops:
                raise Interrupted

        def bring_back(self, error, begin):
            return False

    def run(keeper, records):
        # Keys are kept with the job, as a run folder does.
        keys = {name: JobRandomness(unsafe_key(0, name)) for name in tables}
        sessions = {
            name: PassiveSession(spec, name, table, randomness=keys[name])
            for name, table in tables.items()
            if name != "p0"
        }
        for name, session in sessions.items():
            if name in records:
                session.side.restore(records[name])
        here = Transcript("p0")
        catalogue = Catalogue(spec.messages)
        peers = Peers(
            {name: MemoryChannel(s.side.handle, catalogue, here, Transcript(name)) for name, s in sessions.items()}
        )
        classes = declared(tables["p0"], config, spec.name)
        job = TrainingJob(spec, quick(config, spec.name), tuple(tables), classes=classes)
        try:
            outcome = train_active(job, "p0", tables["p0"], peers, keeper=keeper, randomness=keys["p0"])
        except Interrupted:
            return {name: session.side.records() for name, session in sessions.items()}
        assert all(session.side.finished for session in sessions.values())
        assert "ResumeTraining" in {entry.message for entry in here.entries}
        return {"p0": outcome.part} | {name: session.part() for name, session in sessions.items()}

    first = Keeper()
    first.stops = True
    records = run(first, {})
    second = Keeper(first.progress)
    second.stops = False
    from veilboost.model.joined import join

    parts = run(second, records)
    assert join({name: parts[name] for name in tables}).sha256() == expected


@pytest.mark.parametrize("name", ["binary", "multiclass", "sampled"])
def test_messages_that_become_bytes_change_nothing(spec, name, monkeypatch):
    """Handed over in memory or written and read as between processes: the same model, the same bytes."""
    tables, config = scene(name, spec)
    held_out = np.arange(150) >= 120
    direct = train(tables, config, spec.name, held_out=held_out, unsafe_noise_seed=0)
    monkeypatch.setattr(simulation_module, "MemoryChannel", functools.partial(MemoryChannel, coded=True))
    coded = train(tables, config, spec.name, held_out=held_out, unsafe_noise_seed=0)
    assert sha(coded) == sha(direct)
    for party in tables:
        sizes = [
            [(entry.direction, entry.message, entry.size) for entry in run.transcripts[party].entries]
            for run in (direct, coded)
        ]
        assert sizes[0] == sizes[1]


def test_both_ends_record_the_same_bytes(spec):
    tables, config = scene("multiclass", spec)
    run = train(tables, config, spec.name)
    sent = received = 0
    for transcript in run.transcripts.values():
        sent += sum(entry.size for entry in transcript.entries if entry.direction == "sent")
        received += sum(entry.size for entry in transcript.entries if entry.direction == "received")
        peers = {entry.peer for entry in transcript.entries}
        assert peers == ({"p1", "p2"} if transcript.owner == "p0" else {"p0"}), "passive parties never talk directly"
    assert sent == received == run.bytes_sent > 0


# Where the passive side asks back before it can score, a level takes one exchange more.
EXCHANGES_OF_A_LEVEL = {"smm2": 3, "masked": 3}


def test_a_level_costs_two_exchanges(spec):
    tables, config = scene("binary", spec)
    run = train(tables, config, spec.name)
    # Opening and closing the job, opening each round, and statistics and splits of each level.
    each_level = EXCHANGES_OF_A_LEVEL.get(spec.name, 2)
    assert run.rounds <= 2 + config.n_estimators * (1 + each_level * config.max_depth)


def test_every_message_says_what_it_reveals_and_to_whom(spec):
    leakage = importlib.resources.files(f"veilboost.protocols.{spec.name}").joinpath("LEAKAGE.md").read_text()
    prose = " ".join(leakage.split())
    for message in spec.messages:
        assert "reveals" in vars(message), f"{message.type_name()} must set reveals itself"
        assert message.type_name() in prose
        for item in message.reveals:
            assert item.to in set(Role)
            assert item.what in prose, f"LEAKAGE.md does not tell: {item.what}"


def test_the_statement_covers_both_sides(spec):
    for victim in (Role.ACTIVE, Role.PASSIVE):
        assert spec.statement.worst_for(victim) in set(Status)
    for protection in spec.statement.protections:
        assert protection.why


def damaged(message):
    """Copies of a request that are wrong in a way the receiver can see."""
    for item in dataclasses.fields(message):
        value = getattr(message, item.name)
        if isinstance(value, np.ndarray) and value.size and item.name not in ("build", "columns"):
            yield dataclasses.replace(message, **{item.name: value[:-1] if value.ndim == 1 else value[:, :-1]})
        if item.name in ("build", "columns", "position", "handles", "split", "set_bins") and len(value):
            yield dataclasses.replace(message, **{item.name: value + np.int32(100_000)})
            yield dataclasses.replace(message, **{item.name: -1 - value})
        if item.name in ("depth", "number", "rows", "trees_per_round"):
            yield dataclasses.replace(message, **{item.name: value + 20_000})
            yield dataclasses.replace(message, **{item.name: -1})
        if item.name == "config":
            for text in ("", "[]", "{", '{"max_depth": "deep"}', '{"max_depth": -1}', '{"unknown": 1}'):
                yield dataclasses.replace(message, config=text)


@pytest.mark.parametrize("name", ["binary", "sampled", "multiclass"])
def test_a_damaged_request_is_refused_and_leaves_no_trace(spec, name, monkeypatch):
    refused: set[tuple[str, int]] = set()

    class Meddling(MemoryChannel):
        def send(self, message):
            for at, wrong in enumerate(damaged(message)):
                with pytest.raises(VeilBoostError) as caught:
                    self._handler(wrong)
                assert caught.value.code.startswith("VB-")
                refused.add((message.type_name(), at))
            return super().send(message)

    tables, config = scene(name, spec)
    expected = sha(train(tables, config, spec.name, unsafe_noise_seed=0))
    monkeypatch.setattr(simulation_module, "MemoryChannel", Meddling)
    assert sha(train(tables, config, spec.name, unsafe_noise_seed=0)) == expected
    assert len({kind for kind, _ in refused}) >= 3


def test_requests_out_of_turn_are_refused(spec, monkeypatch):
    seen = []

    class Listening(MemoryChannel):
        def send(self, message):
            seen.append((self._handler, message))
            return super().send(message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    tables, config = scene("binary", spec, parties=2)
    train(tables, config, spec.name)
    handler = seen[0][0]
    for _, message in seen:
        with pytest.raises(VeilBoostError):
            handler(message)  # the job has ended
    from veilboost.protocols.vertical.roles import PassiveContext

    fresh = spec.roles["passive"](PassiveContext("p1", tables["p1"].columns, tables["p1"].rows, 1))
    for _, message in seen[1:]:
        with pytest.raises(VeilBoostError):
            fresh.handle(message)  # the job has not begun
