"""`paillier` as a protocol: options, what each side refuses from the other, and what it does not protect."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from scipy.optimize import linprog

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.crypto.paillier.integers import to_bytes
from veilboost.errors import InvalidParameter, MalformedMessage
from veilboost.protocols.paillier.active import PaillierCipher
from veilboost.protocols.paillier.messages import PaillierRound, PaillierSums
from veilboost.protocols.vertical.messages import StatisticsRequest
from veilboost.types import Column
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast


def scene(rows: int = 80, parties: int = 2, weight=None, **parameters):
    columns = make_columns(5, rows, numeric=4, categorical=1, missing=0.1)
    config = TrainingConfig(**{"objective": "binary", "n_estimators": 2, "max_depth": 3, "max_bin": 8} | parameters)
    return split_among(columns, make_labels(5, columns, config.objective), parties, weight), config


# --- options and exactness ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{"key_bits": 512}, {"key_bits": 1024}, {"key_bits": 2000}, {"key_bits": "large"}, {"bits": 2048}],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_before_any_work(options, monkeypatch):
    monkeypatch.setattr(simulation_module, "PassiveSession", None)  # never reached
    tables, config = scene()
    with pytest.raises(InvalidParameter):
        train(tables, dataclasses.replace(config, options=options), "paillier")


def test_a_full_size_key_gives_the_model_of_plain():
    tables, config = scene(rows=40, n_estimators=1, max_depth=2)
    assert sha(train(tables, dataclasses.replace(config, options={"key_bits": 2048}), "paillier")) == sha(
        train(tables, config)
    )


@pytest.mark.parametrize("objective", ["binary", "regression"])
def test_weights_of_very_different_size_do_not_spill_from_field_to_field(objective):
    weight = np.where(np.arange(80) % 7 == 0, 900.0, 0.01)
    weight[3] = 0
    tables, config = scene(weight=weight, objective=objective, gradient_bits=30)
    assert sha(train(tables, config, "paillier")) == sha(train(tables, config))


def test_threads_change_nothing():
    tables, config = scene(parties=3)
    assert sha(train(tables, config, "paillier", threads=2)) == sha(train(tables, config))


# --- a dishonest active party ---------------------------------------------------------------------------------------


def with_modulus(change):
    def altered(message: PaillierRound) -> PaillierRound:
        n = int.from_bytes(message.modulus.tobytes(), "little")
        return dataclasses.replace(message, modulus=to_bytes([change(n)], 64)[0])

    return altered


def with_first_ciphertext(value):
    def altered(message: PaillierRound) -> PaillierRound:
        ciphertexts = message.ciphertexts.copy()
        n = int.from_bytes(message.modulus.tobytes(), "little")
        ciphertexts[0, 0] = to_bytes([value(n)], 128)[0]
        return dataclasses.replace(message, ciphertexts=ciphertexts)

    return altered


def resized(cut):
    def altered(message: PaillierRound) -> PaillierRound:
        return dataclasses.replace(message, ciphertexts=cut(message.ciphertexts))

    return altered


DECEITS = {
    "even modulus": with_modulus(lambda n: n - 1),
    "small modulus": with_modulus(lambda n: 15),
    "square modulus": with_modulus(lambda n: (2**256 - 189) ** 2),
    "modulus with a small factor": with_modulus(lambda n: (n // 6 * 6 + 3) % 2**512),
    "longer modulus": lambda m: dataclasses.replace(m, modulus=np.append(m.modulus, np.uint8(0))),
    "zero": with_first_ciphertext(lambda n: 0),
    "square of the modulus": with_first_ciphertext(lambda n: n * n),
    "not a unit": with_first_ciphertext(lambda n: n),
    "a row short": resized(lambda c: c[:, :-1]),
    "a row more": resized(lambda c: np.concatenate([c, c[:, :1]], axis=1)),
    "a tree more": resized(lambda c: np.concatenate([c, c])),
    "a byte short": resized(lambda c: c[:, :, :-1]),
    "no field for g": lambda m: dataclasses.replace(m, g_bits=0),
    "no field for h": lambda m: dataclasses.replace(m, h_bits=-1),
    "fields beyond int64": lambda m: dataclasses.replace(m, g_bits=65),
    "fields beyond the key": lambda m: dataclasses.replace(m, g_bits=10**9),
}


def test_a_dishonest_round_is_refused_and_the_job_goes_on(monkeypatch):
    refused: list[str] = []

    class Deceiving(MemoryChannel):
        def send(self, message):
            if isinstance(message, PaillierRound):
                for name, deceit in DECEITS.items():
                    with pytest.raises(MalformedMessage):
                        self._handler(deceit(message))
                    refused.append(name)
            return super().send(message)

    tables, config = scene()
    expected = sha(train(tables, config))
    monkeypatch.setattr(simulation_module, "MemoryChannel", Deceiving)
    assert sha(train(tables, config, "paillier")) == expected
    assert refused == list(DECEITS) * config.n_estimators


# --- a dishonest passive party --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda p, n: p[:-1],
        lambda p, n: np.concatenate([p, p[:1]]),
        lambda p, n: p[:, :-1],
        lambda p, n: np.zeros_like(p),
        lambda p, n: np.full_like(p, 255),
        lambda p, n: np.repeat(to_bytes([n], 128), len(p), axis=0),
        lambda p, n: p[::-1],
        lambda p, n: to_bytes([int.from_bytes(row.tobytes(), "little") * (1 + n) % n**2 for row in p], 128),
    ],
    ids=["fewer", "more", "narrow", "zero", "too large", "no units", "other order", "one added"],
)
def test_sums_that_cannot_be_right_are_refused(change, monkeypatch):
    honest = PaillierCipher.decrypt

    def decrypt(self, name, answer: PaillierSums, *shape):
        altered = change(answer.packages, int(self._owner.public.n))
        return honest(self, name, PaillierSums(np.ascontiguousarray(altered)), *shape)

    monkeypatch.setattr(PaillierCipher, "decrypt", decrypt)
    tables, config = scene()
    with pytest.raises(MalformedMessage):
        train(tables, config, "paillier")


# --- what is not protected ------------------------------------------------------------------------------------------


def test_rows_that_are_together_tell_labels_to_whoever_knows_a_few(monkeypatch):
    """The `broken` of labels: the passive party compares rows by how many nodes they share with rows it knows."""
    rows, known = 400, 20
    together = np.zeros((rows, rows))

    class Watching(MemoryChannel):
        def send(self, message):
            pending = super().send(message)
            if isinstance(message, StatisticsRequest):  # afterwards the receiver has the level's nodes
                fit = self._handler.__self__._round.fit
                for begin, end in zip(fit.begin, fit.end, strict=True):
                    members = fit.rows[begin:end]
                    together[np.ix_(members, members)] += message.depth
            return pending

    columns = make_columns(8, rows, numeric=4)
    label = (columns[0].values + columns[1].values > 0).astype(np.float64)
    tables = split_among(columns, label, 2)  # the passive party's own columns know nothing of the label
    monkeypatch.setattr(simulation_module, "MemoryChannel", Watching)
    train(tables, TrainingConfig(objective="binary", n_estimators=5, max_depth=5, max_bin=16), "paillier")
    votes = together[:, :known] @ (2 * label[:known] - 1)
    guess = (votes > 0)[known:]
    assert np.mean(guess == label[known:]) > 0.8, "labels are balanced: guessing gives one half"


def test_few_rows_for_each_sum_tell_who_is_in_a_bin(monkeypatch):
    """The `broken` of features: the active party knows all gradients, so sums are equations about a bin's rows."""
    rows, width = 120, 4
    equations: list[np.ndarray] = []
    sums: list[np.ndarray] = []
    honest = PaillierCipher.read

    def read(self, current, level, waiting):
        (found,) = (answers := honest(self, current, level, waiting)).values()
        nodes = level.fit.of(level.build)
        for node, (begin, end) in enumerate(zip(nodes.begin, nodes.end, strict=True)):
            members = nodes.rows[begin:end]
            for k in range(2):
                row = np.zeros(rows)
                row[members] = current.start.gradients[0, members, k]
                equations.append(row / 2**20)
                sums.append(found[node, :, k] / 2**20)
        return answers

    columns = make_columns(9, rows, numeric=4)
    values = np.random.default_rng(9).integers(width, size=rows).astype(np.float32)
    tables = split_among([*columns, Column("theirs", values)], make_labels(9, columns), 5)
    tables["p0"] = dataclasses.replace(tables["p0"], columns=tuple(columns))
    tables = {name: tables[name] for name in ("p0", "p4")}
    monkeypatch.setattr(PaillierCipher, "read", read)
    train(tables, TrainingConfig(objective="binary", n_estimators=20, max_depth=4, max_bin=16), "paillier")
    a, b = np.array(equations), np.array(sums)
    assert rows / 4 < np.linalg.matrix_rank(a) < rows, "enough, and too few to simply solve"
    found = linprog(np.zeros(rows), A_eq=a, b_eq=b[:, 0], bounds=(0, 1), method="highs")
    assert found.status == 0
    assert np.mean((found.x > 0.5) == (values == 0)) > 0.95, "three quarters are outside"


def test_answers_are_masked_anew_each_time(monkeypatch):
    """The same request answered twice: other bytes, the same sums."""
    seen: list[tuple[bytes, bytes]] = []
    from veilboost.protocols.paillier.passive import PaillierPassiveCipher

    honest = PaillierPassiveCipher.answer

    @functools.wraps(honest)
    def twice(self, message, state, build):
        first, second = honest(self, message, state, build), honest(self, message, state, build)
        seen.append((first.packages.tobytes(), second.packages.tobytes()))
        return second

    monkeypatch.setattr(PaillierPassiveCipher, "answer", twice)
    tables, config = scene()
    expected = sha(train(tables, config))
    assert sha(train(tables, config, "paillier")) == expected
    assert seen
    assert all(first != second for first, second in seen)
