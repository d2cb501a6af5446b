"""Shards change where rows lie and nothing else: every protocol gives the same model for any number of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import SHORT_KEY, make_columns, make_labels, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.crypto.lattice import keys
from veilboost.engine import pool as pools
from veilboost.engine.api import check_job, open_engine
from veilboost.engine.pool import Pool
from veilboost.engine.sharded import ShardedEngine
from veilboost.errors import (
    InvalidParameter,
    MalformedMessage,
    UnexpectedMessage,
    UnreadableFile,
    UnsupportedCombination,
)
from veilboost.estimators import VerticalClassifier
from veilboost.protocols.lattice.messages import LatticeRequest
from veilboost.protocols.registry import protocol_named, protocols_of
from veilboost.protocols.vertical.messages import SplitRequest

ROWS = 173
SHARDS = [1, 2, 3, 7]
CONFIG = TrainingConfig(n_estimators=2, max_depth=3, max_bin=8, categories="onehot")


def shards(count: int) -> ShardedEngine:
    return ShardedEngine(Pool(), count, "ray")


def scene(objective: str = "binary", weight: bool = False, **changes: object):
    columns = make_columns(5, ROWS, numeric=4, categorical=1, missing=0.1)
    weights = np.random.default_rng(1).random(ROWS) + 0.25 if weight else None
    tables = split_among(columns, make_labels(5, columns, objective), 3, weights)
    return tables, dataclasses.replace(CONFIG, objective=objective, **changes)


SCENES = {
    "binary": {},
    "multiclass": {"objective": "multiclass"},
    "sampled": {"objective": "regression", "subsample": 0.6, "colsample_bytree": 0.5, "weight": True},
    "weighted": {"scale_pos_weight": 3.0, "weighted_bins": True, "weight": True},
    "counts": {"objective": "poisson", "binning": "width"},
}


@pytest.mark.parametrize("protocol", ["plain", "lattice"])
@pytest.mark.parametrize("name", SCENES)
def test_the_model_is_that_of_one_machine(name, protocol):
    tables, config = scene(**SCENES[name])
    held_out = np.arange(ROWS) % 4 == 1 if name != "binary" else None
    expected = train(tables, config, protocol, held_out=held_out)
    for count in SHARDS:
        run = train(tables, config, protocol, engine=shards(count), held_out=held_out)
        assert sha(run) == sha(expected)
        assert run.bytes_sent == expected.bytes_sent
        assert [each.validation for each in run.history] == [each.validation for each in expected.history]


def test_nodes_that_are_cut_into_blocks_are_cut_alike():
    """With 30 bits no more than 1023 rows may be summed at once."""
    columns = make_columns(5, 2500, numeric=4, categorical=1, missing=0.1)
    tables = split_among(columns, make_labels(5, columns), 2)
    plain = dataclasses.replace(CONFIG, gradient_bits=30)
    config = in_runs(plain)
    expected = train(tables, config, "lattice")
    assert sha(expected) == sha(train(tables, plain))
    run = train(tables, config, "lattice", engine=shards(3))
    assert (sha(run), run.bytes_sent) == (sha(expected), expected.bytes_sent)


NOISY = {
    "sealed": {"eps_features": 4.0},
    "masked": {},
    "ldp": {"mechanism": "gaussian"},
    "paillier": SHORT_KEY,
}


@pytest.mark.parametrize("protocol", NOISY)
def test_noise_follows_the_request_and_not_the_shards(protocol):
    tables, config = scene(options=NOISY[protocol])
    expected = sha(train(tables, config, protocol, unsafe_noise_seed=0))
    for count in (2, 7):
        assert sha(train(tables, config, protocol, engine=shards(count), unsafe_noise_seed=0)) == expected


def test_ciphertexts_are_the_same_bytes_whoever_encrypts(monkeypatch):
    """Also where a level is many spans, each with a seed of its own."""
    monkeypatch.setattr(keys, "SPAN_ROWS", 50)
    tables, config = scene()

    def sent(**options):
        run = train(tables, config, "lattice", record="payload", unsafe_noise_seed=0, **options)
        sent_or_told = [message for _, _, message in run.transcripts["p0"].messages]
        messages = [message for message in sent_or_told if isinstance(message, LatticeRequest)]
        assert any(len(message.run) > 1 for message in messages)
        return [message.ciphertext.tobytes() for message in messages], sha(run)

    expected, model = sent()
    assert sent(engine=shards(3)) == (expected, model)
    monkeypatch.undo()
    assert sha(train(tables, config, "lattice")) == model


def test_every_span_has_a_seed_of_its_own():
    """Two spans under one seed would show the difference of what they hold."""
    seed = bytes(range(32))
    assert keys.span_seed(seed, 0) == seed
    assert len({keys.span_seed(seed, number) for number in range(1000)}) == 1000
    assert keys.span_seed(seed, 1) != keys.span_seed(seed[::-1], 1)


def in_runs(config):
    return dataclasses.replace(config, options={"layout": "runs"})


@pytest.mark.parametrize("engine", [None, 3])
def test_very_many_rows_come_in_several_messages(monkeypatch, engine):
    """Bounds that are small here: the model is the same, and more messages travel."""
    from veilboost.protocols.lattice import runs_active
    from veilboost.protocols.plain import active, passive

    options = {} if engine is None else {"engine": shards(engine)}
    for protocol, more in (("plain", "MoreGradients"), ("lattice", "LatticeMore")):
        tables, config = scene()
        config = in_runs(config) if protocol == "lattice" else config
        expected = sha(train(tables, config, protocol, **options))
        with monkeypatch.context() as small:
            small.setattr(keys, "SPAN_ROWS", 30)
            small.setattr(runs_active, "BYTES_AT_ONCE", 1)
            small.setattr(active, "ROWS_AT_ONCE", 50)
            small.setattr(passive, "ROWS_AT_ONCE", 50)
            run = train(tables, config, protocol, **options)
        assert sha(run) == expected
        assert more in {entry.message for entry in run.transcripts["p0"].entries}


def test_what_comes_in_several_messages_must_fit(monkeypatch):
    from veilboost.party import simulation
    from veilboost.protocols.lattice import runs_active
    from veilboost.protocols.lattice.messages import LatticeMore
    from veilboost.protocols.plain import active, passive
    from veilboost.protocols.plain.messages import MoreGradients
    from veilboost.wire.channel import MemoryChannel

    refused = []

    class Meddling(MemoryChannel):
        def send(self, message):
            wrong = []
            if isinstance(message, MoreGradients):
                wrong = [message.gradients[:, 1:], message.gradients[:, :, :1], message.gradients[:0]]
                wrong.append(np.full_like(message.gradients, 2**31 - 1))
                wrong = [MoreGradients(np.ascontiguousarray(each)) for each in wrong]
            if isinstance(message, LatticeMore):
                damaged = np.full_like(message.ciphertext, 255)
                wrong = [LatticeMore(each) for each in (message.ciphertext[1:], message.ciphertext[:0], damaged)]
            for each in wrong:
                with pytest.raises(MalformedMessage):
                    self._handler(each)
                refused.append(each.type_name())
            answer = super().send(message)
            if isinstance(message, SplitRequest):  # nothing is missing any more
                for unwanted in (MoreGradients(np.zeros((1, 50, 2), np.int32)), LatticeMore(np.zeros(1, np.uint8))):
                    with pytest.raises(UnexpectedMessage):
                        self._handler(unwanted)
            return answer

    monkeypatch.setattr(simulation, "MemoryChannel", Meddling)
    monkeypatch.setattr(keys, "SPAN_ROWS", 30)
    monkeypatch.setattr(runs_active, "BYTES_AT_ONCE", 1)
    monkeypatch.setattr(active, "ROWS_AT_ONCE", 50)
    monkeypatch.setattr(passive, "ROWS_AT_ONCE", 50)
    tables, config = scene()
    for protocol in ("plain", "lattice"):
        config = in_runs(config) if protocol == "lattice" else config
        meddled = sha(train(tables, config, protocol))
        assert meddled == sha(train(tables, config, protocol, engine=shards(2)))
    assert set(refused) == {"MoreGradients", "LatticeMore"}


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    rows=st.integers(2, 40),
    count=st.integers(1, 50),
    distinct=st.none() | st.integers(1, 6),
    held=st.booleans(),
)
def test_any_cut_of_any_rows(seed, rows, count, distinct, held):
    """Also more shards than rows, shards without a row to fit on, columns of one value."""
    columns = make_columns(seed, rows, numeric=3, missing=0.2, distinct=distinct)
    label = np.random.default_rng(seed).integers(2, size=rows).astype(np.float64)
    label[:2] = [0.0, 1.0]
    tables = split_among(columns, label, 2)
    config = dataclasses.replace(CONFIG, min_child_weight=0.0, max_bin=4, n_estimators=1)
    held_out = np.arange(rows) >= max(2, rows // 2) if held else None
    expected = sha(train(tables, config, held_out=held_out))
    assert sha(train(tables, config, engine=shards(count), held_out=held_out)) == expected


def test_a_job_goes_on_from_margins_that_were_kept():
    from veilboost.party.training import PassiveSession, Resumed, TrainingJob, train_active
    from veilboost.wire.channel import MemoryChannel, Peers
    from veilboost.wire.message import Catalogue
    from veilboost.wire.transcript import Transcript

    tables, config = scene()
    spec, kept, records = protocol_named("plain"), [], {}

    class Keeper:
        def __init__(self, start=None):
            self.start = start

        def resumed(self):
            return self.start

        def keep(self, progress, own):
            progress.margin = np.asarray(progress.margin)  # as a file gives it back
            kept.append(Resumed(progress, own, {}))

        def store(self, trees):
            pass

        def chose(self, what):
            pass

        def bring_back(self, error, begin):
            return False

    def run(keeper):
        sessions = {name: PassiveSession(spec, name, tables[name], engine=shards(3)) for name in ("p1", "p2")}
        for name, session in sessions.items():
            if name in records:
                session.side.restore(records[name])
        channels = {
            name: MemoryChannel(session.side.handle, Catalogue(spec.messages), Transcript("p0"), Transcript(name))
            for name, session in sessions.items()
        }
        outcome = train_active(
            TrainingJob(spec, config, tuple(tables)), "p0", tables["p0"], Peers(channels), keeper=keeper,
            engine=shards(3),
        )  # fmt: skip
        records.update({name: session.side.records() for name, session in sessions.items()})
        return {"p0": outcome.share} | {name: session.share() for name, session in sessions.items()}

    from veilboost.model.joined import join

    whole = join(run(Keeper())).sha256()
    assert join(run(Keeper(kept[0]))).sha256() == whole


@pytest.mark.parametrize("protocol", ["plain", "lattice", "paillier", "sealed", "masked", "ldp"])
def test_rows_on_disk(monkeypatch, tmp_path, protocol):
    """Every array that has an entry per row is a view of a file."""
    monkeypatch.setattr(pools, "LEAST_BYTES", 1)
    tables, config = scene(options=NOISY.get(protocol, {}))
    made = pools.DiskPool(tmp_path)
    block = ShardedEngine(made, 2, "disk").columns(tables["p0"].columns, ROWS, config, None, None, 1)
    assert all(isinstance(part.shared.bins[0].base, np.memmap) for part in block.parts)
    with open_engine(f"disk:{tmp_path}") as engine:
        run = train(tables, config, protocol, engine=engine, unsafe_noise_seed=0)
    assert sha(run) == sha(train(tables, config, protocol, unsafe_noise_seed=0))
    assert run.engine == "disk"
    assert not list(tmp_path.iterdir()), "files without a name go by themselves"


# --- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, spec in protocols_of("vertical").items() if "ray" not in spec.engines])
def test_a_protocol_that_cannot_run_says_so(name):
    tables, config = scene()
    with pytest.raises(UnsupportedCombination, match=f"{name} does not run on the engine ray"):
        train(tables, config, name, engine=shards(2))


@pytest.mark.parametrize("changes", [{"proposal": "local"}, {"sampling": "goss"}])
def test_what_looks_at_all_rows_at_once_is_refused(changes):
    with pytest.raises(UnsupportedCombination, match="all rows at once"):
        check_job("ray://head:10001", "plain", ("local", "ray"), dataclasses.replace(CONFIG, **changes))


def test_a_loss_of_ones_own_is_refused_before_anything_starts():
    model = VerticalClassifier(engine="ray", objective=lambda y, margin: (margin, y))
    with pytest.raises(UnsupportedCombination, match="a custom objective"):
        model.fit(np.arange(20.0).reshape(10, 2), np.arange(10) % 2)


@pytest.mark.parametrize(
    ("engine", "workers", "error"),
    [
        ("spark", None, InvalidParameter),
        ("ray", 0, InvalidParameter),
        ("local", 3, UnsupportedCombination),
        ("disk", 3, UnsupportedCombination),
        ("disk:/no/such/folder", None, UnreadableFile),
    ],
)
def test_engines_that_are_none(engine, workers, error):
    with pytest.raises(error), open_engine(engine, workers):
        pass
