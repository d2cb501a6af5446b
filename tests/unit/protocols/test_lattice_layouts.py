"""Layouts of `lattice` and `sealed`: all give the same model, and both sides check vectors under reused masks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.crypto.lattice.masks import MaskOwner
from veilboost.engine.pool import Pool
from veilboost.engine.sharded import ShardedEngine
from veilboost.errors import MalformedMessage, UnexpectedMessage, UnsupportedCombination, VeilBoostError
from veilboost.protocols.lattice import masks_passive
from veilboost.protocols.lattice.active import LatticeCipher
from veilboost.protocols.lattice.choice import choose
from veilboost.protocols.lattice.messages import BinMasks, LatticeRequest, MasksRequest, VectorRequest, VectorSums
from veilboost.protocols.sealed.passive import SealedPassiveCipher
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast

ROWS = 150
SCENES = {
    "binary": {},
    "several trees": {"objective": "multiclass", "n_estimators": 1},
    "sampled": {"objective": "regression", "subsample": 0.6, "colsample_bytree": 0.5, "n_estimators": 3},
}


def scene(parties: int = 2, weight=None, **parameters):
    columns = make_columns(5, ROWS, numeric=4, categorical=1, missing=0.1)
    config = TrainingConfig(**{"objective": "binary", "n_estimators": 2, "max_depth": 3, "max_bin": 8} | parameters)
    return split_among(columns, make_labels(5, columns, config.objective), parties, weight), config


def with_layout(config: TrainingConfig, layout: str, **options) -> TrainingConfig:
    return dataclasses.replace(config, options={"layout": layout, **options})


def listen(monkeypatch) -> list[object]:
    """All messages of jobs from now on, whichever way they go."""
    found: list[object] = []

    class Listening(MemoryChannel):
        def _carry(self, message, sender, receiver):
            found.append(message)
            return super()._carry(message, sender, receiver)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    return found


def kinds(messages) -> set[type]:
    return {type(message) for message in messages} & {LatticeRequest, VectorRequest}


# --- the same model -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize(
    ("layout", "used"),
    [("runs", {LatticeRequest}), ("root", {LatticeRequest, VectorRequest}), ("masks", {VectorRequest})],
)
def test_every_layout_gives_the_model_of_plain(name, layout, used, monkeypatch):
    weight = np.random.default_rng(1).random(ROWS) + 0.25
    tables, config = scene(parties=3, weight=weight, **SCENES[name])
    held_out = np.arange(ROWS) % 4 == 1
    expected = sha(train(tables, config, held_out=held_out))
    sent = listen(monkeypatch)
    assert sha(train(tables, with_layout(config, layout), "lattice", held_out=held_out)) == expected
    assert kinds(sent) == used


@pytest.mark.parametrize("name", SCENES)
def test_rows_in_shards_give_the_same_model(name):
    tables, config = scene(**SCENES[name])
    config = with_layout(config, "masks")
    expected = train(tables, config, "lattice")
    run = train(tables, config, "lattice", engine=ShardedEngine(Pool(), 3, "ray"))
    assert sha(run) == sha(expected)
    assert run.bytes_sent == expected.bytes_sent


def test_masks_in_pieces_give_the_same_model(monkeypatch):
    tables, config = scene()
    expected = sha(train(tables, config))
    sent = listen(monkeypatch)
    monkeypatch.setattr(masks_passive, "BYTES_AT_ONCE", 5 << 14)
    assert sha(train(tables, with_layout(config, "masks"), "lattice")) == expected
    assert sum(isinstance(message, BinMasks) for message in sent) > 2


def test_sealed_selects_the_same_splits_in_every_layout():
    """Its noise follows from the sums, which are the same."""
    tables, config = scene()
    found = {
        sha(train(tables, with_layout(config, layout, eps=1000.0, least_rows=5), "sealed", unsafe_noise_seed=0))
        for layout in ("runs", "root", "masks")
    }
    assert len(found) == 1


def test_noise_of_sealed_is_added_under_the_mask(monkeypatch):
    """The sums that come back differ from the exact ones by the noise that was drawn, and by nothing else."""
    tables, config = scene(n_estimators=1, max_depth=1)
    drawn: list[np.ndarray] = []
    honest = SealedPassiveCipher.noise
    read: list[np.ndarray] = []
    decrypt = MaskOwner.decrypt

    def noted(self, asked, state):
        drawn.append(honest(self, asked, state))
        return drawn[-1]

    def kept(self, *about):
        read.append(decrypt(self, *about))
        return read[-1]

    monkeypatch.setattr(MaskOwner, "decrypt", kept)
    options = {"eps": 1000.0, "eps_features": 50.0, "least_rows": 5}
    monkeypatch.setattr(SealedPassiveCipher, "noise", noted)
    train(tables, with_layout(config, "root", **options), "sealed", unsafe_noise_seed=0)
    monkeypatch.setattr(SealedPassiveCipher, "noise", lambda self, asked, state: np.zeros_like(drawn[0]))
    train(tables, with_layout(config, "root", **options), "sealed", unsafe_noise_seed=0)
    noisy, exact = read
    assert np.array_equal(noisy - exact, drawn[0][0].T)
    assert np.abs(drawn[0]).max() > 0


def test_with_noise_only_roots_are_vectors(monkeypatch):
    """A vector below the root could count a row in several nodes of a level, and the noise is for one."""
    tables, config = scene()
    options = {"eps": 1000.0, "eps_features": 50.0, "least_rows": 5}
    with pytest.raises(UnsupportedCombination, match="roots"):
        train(tables, with_layout(config, "masks", **options), "sealed")
    monkeypatch.setattr(LatticeCipher, "_layout_of", lambda self, *_: self._masks)
    with pytest.raises(UnexpectedMessage, match="below the root"):
        train(tables, with_layout(config, "root", **options), "sealed")


# --- secrets --------------------------------------------------------------------------------------------------------


def test_a_job_that_is_repeated_encrypts_as_before_and_no_two_vectors_share_a_secret(monkeypatch):
    tables, config = scene()
    sent: list[list[VectorRequest]] = []
    for _ in range(2):
        with monkeypatch.context() as patch:
            heard = listen(patch)
            train(tables, with_layout(config, "masks"), "lattice", unsafe_noise_seed=0)
            sent.append([message for message in heard if isinstance(message, VectorRequest)])
    for one, other in zip(*sent, strict=True):
        assert np.array_equal(one.numbers, other.numbers)
        assert np.array_equal(one.parts, other.parts)
    nonces = np.concatenate([message.nonces for message in sent[0]])
    assert len(nonces) > 5
    assert len(np.unique(nonces, axis=0)) == len(nonces)


def test_other_values_never_meet_the_same_secret(monkeypatch):
    """A resumed job may have other gradients at the same place: the difference of two ciphertexts would show them."""
    first: list[VectorRequest] = []
    for labels in range(2):
        tables, config = scene(n_estimators=1, max_depth=1)
        label = tables["p0"].label.copy()
        label[0] = labels
        tables["p0"] = dataclasses.replace(tables["p0"], label=label)
        with monkeypatch.context() as patch:
            heard = listen(patch)
            train(tables, with_layout(config, "masks"), "lattice", unsafe_noise_seed=0)
            first.append(next(message for message in heard if isinstance(message, VectorRequest)))
    assert not np.array_equal(first[0].nonces, first[1].nonces)
    assert np.mean(first[0].numbers == first[1].numbers) < 0.02


def test_vectors_show_no_rows(monkeypatch):
    """Every node is a vector of all rows, whatever rows it has."""
    tables, config = scene(subsample=0.5)
    sent = listen(monkeypatch)
    train(tables, with_layout(config, "masks"), "lattice")
    assert {message.numbers.shape[1] for message in sent if isinstance(message, VectorRequest)} == {ROWS}


# --- what is refused ------------------------------------------------------------------------------------------------


def changed(**changes):
    """Fields replaced by a function of what they were."""

    def altered(message):
        return dataclasses.replace(
            message, **{name: change(getattr(message, name)) for name, change in changes.items()}
        )

    return altered


DECEITS = {
    MasksRequest: {
        "a short seed": changed(seed=lambda s: s[:-1]),
        "another seed": changed(seed=lambda s: s ^ np.uint8(1), first=lambda _: 1),
        "no room to flood": changed(log_flood=lambda f: f - 1),
        "a negative flood": changed(log_flood=lambda f: -f),
        "numbers that are too large": changed(sum_bits=lambda b: b + 40),
        "no room for sums": changed(sum_bits=lambda b: 0),
        "later bins first": changed(first=lambda f: f + 1),
        "bins before the first": changed(first=lambda f: f - 1),
    },
    VectorRequest: {
        "a row short": changed(numbers=lambda r: r[:, :-1].copy()),
        "a byte short": changed(numbers=lambda r: r[:, :, :-1].copy()),
        "a node more": changed(numbers=lambda r: np.concatenate((r, r[:1]))),
        "a short key part": changed(parts=lambda p: p[:, :, :-1].copy()),
        "one family": changed(parts=lambda p: p[:, :1].copy()),
        "a short nonce": changed(nonces=lambda n: n[:, :-1].copy()),
    },
}


def test_dishonest_messages_are_refused_and_the_job_goes_on(monkeypatch):
    refused: list[str] = []

    class Deceiving(MemoryChannel):
        def send(self, message):
            for name, deceit in DECEITS.get(type(message), {}).items():
                with pytest.raises((MalformedMessage, UnexpectedMessage)):
                    self._handler(deceit(message))
                refused.append(name)
            answer = super().send(message)
            if isinstance(message, MasksRequest):  # masks with another secret under the same seed are not to be had
                with pytest.raises(UnexpectedMessage):
                    self._handler(message)
            return answer

    tables, config = scene()
    expected = sha(train(tables, config))
    monkeypatch.setattr(simulation_module, "MemoryChannel", Deceiving)
    assert sha(train(tables, with_layout(config, "masks"), "lattice")) == expected
    assert set(refused) == {name for deceits in DECEITS.values() for name in deceits}


def test_masks_are_for_jobs_that_allow_them(monkeypatch):
    """With the layout `runs` columns are shuffled in every round; an active party cannot turn that off."""
    tables, config = scene()
    monkeypatch.setattr("veilboost.protocols.lattice.active.choose", lambda _, *job: choose("masks", *job))
    with pytest.raises(UnexpectedMessage):
        train(tables, with_layout(config, "runs"), "lattice")


def test_masks_of_very_many_bins_are_not_sent(monkeypatch):
    tables, config = scene()
    monkeypatch.setattr("veilboost.protocols.lattice.masks_passive.MOST_MASKS", 1000)
    with pytest.raises(MalformedMessage, match="more bins"):
        train(tables, with_layout(config, "masks"), "lattice")


@pytest.mark.parametrize("layout", ["root", "masks"])
def test_keys_for_expansion_are_for_jobs_that_allow_them(layout, monkeypatch):
    tables, config = scene()
    monkeypatch.setattr(
        "veilboost.protocols.lattice.active.choose", lambda *job: dataclasses.replace(choose(*job), keys=True)
    )
    with pytest.raises(UnexpectedMessage):
        train(tables, with_layout(config, layout), "lattice")


def test_masks_are_not_sent_after_the_first_round(monkeypatch):
    """Columns were shuffled in the rounds before: masks would show their order in these rounds."""
    refused = []

    class Late(MemoryChannel):
        def send(self, message):
            if isinstance(message, LatticeRequest):
                with pytest.raises(UnexpectedMessage, match="after the first round"):
                    self._handler(MasksRequest(np.zeros(32, dtype=np.uint8), 60, 30, 0))
                refused.append(message.depth)
            return super().send(message)

    tables, config = scene()
    monkeypatch.setattr("veilboost.protocols.lattice.active.choose", lambda _, *job: choose("runs", *job))
    monkeypatch.setattr(simulation_module, "MemoryChannel", Late)
    train(tables, with_layout(config, "auto"), "lattice")
    assert 0 in refused


ALTERED = {
    "zeros": lambda s: s * np.uint64(0),
    "other order": lambda s: np.ascontiguousarray(s[:, :, ::-1]),
    "g and h exchanged": lambda s: np.ascontiguousarray(s[:, ::-1]),
    "a bin short": lambda s: np.ascontiguousarray(s[:, :, :-1]),
    "a node more": lambda s: np.concatenate((s, s[:1])),
}


@pytest.mark.parametrize("name", ALTERED)
def test_altered_answers_are_refused(name, monkeypatch):
    class Altering(MemoryChannel):
        def _carry(self, message, sender, receiver):
            if isinstance(message, VectorSums):
                message = VectorSums(ALTERED[name](message.sums))
            return super()._carry(message, sender, receiver)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Altering)
    tables, config = scene()
    with pytest.raises(VeilBoostError) as found:
        train(tables, with_layout(config, "masks"), "lattice")
    assert isinstance(found.value, MalformedMessage)
