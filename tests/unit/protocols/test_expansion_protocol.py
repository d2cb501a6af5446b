"""Levels in dense ciphertexts, as a protocol: the model of `plain`, and each side refuses what cannot be right."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.crypto.fingerprint import content_digest
from veilboost.crypto.lattice import keys
from veilboost.crypto.lattice.expansion import LEAST_RUN, DenseSecretKey
from veilboost.engine.pool import Pool
from veilboost.engine.sharded import ShardedEngine
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.lattice import choice
from veilboost.protocols.lattice.choice import choose
from veilboost.protocols.lattice.expansion_active import ExpandedLevels
from veilboost.protocols.lattice.expansion_passive import ExpandedAnswers
from veilboost.protocols.lattice.messages import ExpandedRequest, ExpandedSums, ExpansionKeys, LatticeRequest
from veilboost.protocols.sealed.active import SealedCipher
from veilboost.protocols.sealed.passive import SealedPassiveCipher
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast


def scene(rows: int = 80, parties: int = 2, layout: str = "expansion", options=None, **parameters):
    columns = make_columns(5, rows, numeric=4, categorical=1, missing=0.1)
    usual = {"objective": "binary", "n_estimators": 2, "max_depth": 3, "max_bin": 8, "gradient_bits": 12}
    plain = TrainingConfig(**usual | parameters)
    tables = split_among(columns, make_labels(5, columns, plain.objective), parties)
    return tables, plain, dataclasses.replace(plain, options={"layout": layout} | (options or {}))


@pytest.fixture
def sent(monkeypatch) -> list[object]:
    """Every message, in order."""
    found: list[object] = []

    class Listening(MemoryChannel):
        def _carry(self, message, sender, receiver):
            found.append(message)
            return super()._carry(message, sender, receiver)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    return found


# --- exactness ------------------------------------------------------------------------------------------------------

JOBS = {
    "several trees per round": {"objective": "multiclass", "n_estimators": 1},
    "three parties": {"parties": 3, "rows": 200},
    "samples of rows and columns": {"rows": 300, "subsample": 0.6, "colsample_bytree": 0.6},
    "bins of every party's own, in every round": {"proposal": "local", "binning": "width"},
}


@pytest.mark.parametrize("name", JOBS)
def test_the_model_is_that_of_plain(name, sent):
    tables, plain, config = scene(**JOBS[name])
    expected = sha(train(tables, plain))
    sent.clear()
    assert sha(train(tables, config, "lattice", threads=2)) == expected
    kinds = Counter(type(each).__name__ for each in sent)
    assert kinds["ExpandedSums"] == kinds["ExpandedRequest"] > 0
    assert kinds["LatticeRequest"] == 0
    assert kinds["ExpansionKeys"] == len(tables) - 1, "once per job and party"
    runs = np.concatenate([each.run for each in sent if isinstance(each, ExpandedRequest)])
    rows = np.concatenate([[len(each.ciphertext) / 25] for each in sent if isinstance(each, ExpandedRequest)])
    assert (runs >= LEAST_RUN).all()
    assert (rows == rows.astype(int)).all()


def test_spans_have_seeds_of_their_own(sent, monkeypatch):
    monkeypatch.setattr(keys, "SPAN_ROWS", 30)
    tables, plain, config = scene(rows=300, max_depth=4)
    expected = sha(train(tables, plain))
    assert sha(train(tables, config, "lattice")) == expected
    assert any(len(each.run) > 2 for each in sent if isinstance(each, ExpandedRequest))


def test_rows_in_shards_give_the_same_model_and_bytes(monkeypatch):
    monkeypatch.setattr(keys, "SPAN_ROWS", 30)
    tables, plain, config = scene(rows=200)
    expected = train(tables, config, "lattice")
    run = train(tables, config, "lattice", engine=ShardedEngine(Pool(), 3, "ray"))
    assert sha(run) == sha(expected) == sha(train(tables, plain))
    assert run.bytes_sent == expected.bytes_sent


@pytest.mark.parametrize(("bits", "flood"), [(30, None), (12, 90)], ids=["no room for sums", "none for the flood"])
def test_nodes_whose_sums_do_not_fit_are_sent_in_runs(bits, flood, sent, monkeypatch):
    if flood:
        monkeypatch.setattr(choice, "log_flood", lambda *_: flood)
    tables, plain, config = scene(rows=2500, gradient_bits=bits)
    expected = sha(train(tables, plain))
    sent.clear()
    assert sha(train(tables, config, "lattice")) == expected
    assert {LatticeRequest} == {type(each) for each in sent} & {LatticeRequest, ExpandedRequest}


def test_longer_runs_leave_room_for_larger_sums(sent):
    """With 25 bits the flood of the shortest runs does not fit."""
    tables, plain, config = scene(rows=2500, gradient_bits=25, max_bin=64)
    expected = sha(train(tables, plain))
    sent.clear()
    assert sha(train(tables, config, "lattice")) == expected
    longest = max(int(each.run.max()) for each in sent if isinstance(each, ExpandedRequest))
    tables, _, config = scene(rows=2500, gradient_bits=12, max_bin=64)
    sent.clear()
    train(tables, config, "lattice")
    assert longest > max(int(each.run.max()) for each in sent if isinstance(each, ExpandedRequest))


def test_a_resumed_job_would_encrypt_the_same_bytes(sent):
    """Keys and randomness follow from the job's key and from what is encrypted."""
    tables, _, config = scene()
    found = []
    for _ in range(2):
        sent.clear()
        train(tables, config, "lattice", unsafe_noise_seed=1)
        found.append([each for each in sent if isinstance(each, ExpansionKeys | ExpandedRequest | ExpandedSums)])
    for one, same in zip(*found, strict=True):
        if isinstance(one, ExpandedSums):
            assert not np.array_equal(one.masks, same.masks), "masks and floods are fresh"
        else:
            assert all(np.array_equal(value, vars(same)[name]) for name, value in vars(one).items())


# --- sealed ---------------------------------------------------------------------------------------------------------


def test_sealed_selects_the_same_splits_in_every_layout(sent):
    tables, _, config = scene(rows=300, categories="ordinal", options={"eps": 2.0, "least_rows": 5})
    in_runs = dataclasses.replace(config, options=config.options | {"layout": "runs"})
    models = [sha(train(tables, each, "sealed", unsafe_noise_seed=0)) for each in (config, in_runs)]
    assert models[0] == models[1]
    assert any(isinstance(each, ExpandedSums) for each in sent)


def test_noise_of_sealed_is_in_the_sums(monkeypatch):
    tables, _, config = scene(
        rows=300, categories="ordinal", options={"eps": 2.0, "eps_features": 8.0, "least_rows": 5}
    )
    noise, read, found = SealedPassiveCipher.noise, ExpandedLevels.read, list[int]()

    def large(self, asked, state):
        own = noise(self, asked, state)
        assert 0 < int(np.abs(own).max()) < asked.largest_sum // 2
        return own * 0 + 2**22

    def watched(self, current, level, waiting):
        sums = read(self, current, level, waiting)
        found.extend(int(each.min()) for each in sums.values())
        return sums

    monkeypatch.setattr(SealedPassiveCipher, "noise", large)
    monkeypatch.setattr(ExpandedLevels, "read", watched)
    monkeypatch.setattr(SealedCipher, "tolerance", lambda *_: 2**40)
    train(tables, config, "sealed")
    assert found
    assert min(found) > 2**21, "300 values of 12 bits are less than that"


def test_other_keys_are_other_content_for_the_noise(monkeypatch):
    """They expand the same ciphertexts to other values: with the same noise, a difference would show exact sums."""
    contents, answer = list[tuple[object, ...]](), ExpandedAnswers.answer

    def twice(self, message, state, build):
        for key in (self._key, DenseSecretKey(Csprng())):
            half = ExpandedAnswers(self.context, lambda asked, state: contents.append(asked.content))
            half.begin_training(self.job)
            public = key.part if key is self._key else key.public_part
            seed = key.seed if key is self._key else key.public_seed
            half.other(ExpansionKeys(np.frombuffer(seed, dtype=np.uint8), public), None)
            answer(half, message, state, build)
        return answer(self, message, state, build)

    monkeypatch.setattr(ExpandedAnswers, "answer", twice)
    tables, _, config = scene()
    train(tables, config, "lattice")
    assert contents
    digests = [content_digest(JobRandomness(bytes(32)), *each) for each in contents]
    assert len(set(digests)) == len(digests)


# --- what a peer sends ----------------------------------------------------------------------------------------------


def changed(**changes):
    def altered(message):
        return dataclasses.replace(message, **{name: of(getattr(message, name)) for name, of in changes.items()})

    return altered


def put(at, value):
    def altered(array):
        array = array.copy()
        array[at] = value
        return array

    return altered


KEY_DECEITS = {
    "a short seed": changed(seed=lambda s: s[:-1]),
    "a short key": changed(keys=lambda k: k[:-1]),
    "no key": changed(keys=lambda k: k[:0]),
    "a key out of range": changed(keys=lambda k: np.concatenate((k[:-50], k[-50:] | np.uint8(255)))),
}
REQUEST_DECEITS = {
    "a short seed": changed(seed=lambda s: s[:-1]),
    "a byte short": changed(ciphertext=lambda c: c[:-1]),
    "a row more": changed(ciphertext=lambda c: np.append(c, c[:25])),
    "runs of 33 rows": changed(run=put(0, 33)),
    "runs of no rows": changed(run=put(0, 0)),
    "runs beyond the keys": changed(run=put(0, 16)),
    "runs as long as the ring": changed(run=put(0, 8192)),
    "negative runs": changed(run=put(0, -64)),
    "a run short": changed(run=lambda r: r[:-1]),
    "a run more": changed(run=lambda r: np.append(r, r[-1:])),
    "no room to flood": changed(log_delta=lambda d: 62),
    "no room to round": changed(log_delta=lambda d: 100),
    "a negative scale": changed(log_delta=lambda d: -5),
}


def test_dishonest_messages_are_refused_and_the_job_goes_on(monkeypatch):
    refused: list[str] = []

    class Deceiving(MemoryChannel):
        def send(self, message):
            deceits = {ExpansionKeys: KEY_DECEITS, ExpandedRequest: REQUEST_DECEITS}.get(type(message), {})
            for name, deceit in deceits.items():
                with pytest.raises(MalformedMessage):
                    self._handler(deceit(message))
                refused.append(name)
            return super().send(message)

    tables, plain, config = scene()
    expected = sha(train(tables, plain))
    monkeypatch.setattr(simulation_module, "MemoryChannel", Deceiving)
    assert sha(train(tables, config, "lattice")) == expected
    assert set(refused) == {*KEY_DECEITS, *REQUEST_DECEITS}


@pytest.mark.parametrize("when", ["keys twice", "no keys", "another layout"])
def test_messages_out_of_order_are_refused(when, monkeypatch):
    kept: list[object] = []

    class Deceiving(MemoryChannel):
        def send(self, message):
            if isinstance(message, ExpansionKeys):
                kept.append(message)
                return super().send(message)
            if kept and when == "keys twice":
                with pytest.raises(UnexpectedMessage):
                    self._handler(kept.pop())
            return super().send(message)

    tables, _, config = scene()
    monkeypatch.setattr(simulation_module, "MemoryChannel", Deceiving)
    if when == "keys twice":
        train(tables, config, "lattice")
        assert not kept
        return
    if when == "no keys":
        monkeypatch.setattr(ExpandedLevels, "begin_training", lambda self, layouts: None)
    else:
        monkeypatch.setattr(
            "veilboost.protocols.lattice.active.choose", lambda *job: dataclasses.replace(choose(*job), keys=True)
        )
        config = dataclasses.replace(config, options={"layout": "runs"})
    with pytest.raises(UnexpectedMessage):
        train(tables, config, "lattice")


ALTERED = {
    "a flipped bit of the sums": changed(sums=lambda s: put(4, s[4] ^ 128)(s)),
    "a flipped bit of a mask": changed(masks=lambda m: put(4, m[4] ^ 128)(m)),
    "zeros": changed(sums=lambda s: s * 0),
    "masks of zeros": changed(masks=lambda m: m * 0),
    "a byte short": changed(sums=lambda s: s[:-1]),
    "a byte more": changed(masks=lambda m: np.append(m, np.uint8(0))),
}


@pytest.mark.parametrize("name", ALTERED)
def test_altered_answers_are_refused(name, monkeypatch):
    class Altering(MemoryChannel):
        def _carry(self, message, sender, receiver):
            altered = ALTERED[name](message) if isinstance(message, ExpandedSums) else message
            return super()._carry(altered, sender, receiver)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Altering)
    tables, _, config = scene(n_estimators=1, max_depth=2)
    with pytest.raises(MalformedMessage):
        train(tables, config, "lattice")
