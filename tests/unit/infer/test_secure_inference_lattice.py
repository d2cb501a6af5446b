"""Secure inference under lattice encryption: the same predictions, and a CSP that sees no attribute."""

from __future__ import annotations

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.errors import MalformedMessage, UnsupportedCombination
from veilboost.infer.secure import ring
from veilboost.infer.secure.attributes import attributes_of
from veilboost.infer.secure.lattice import FLOOD, LatticePublic, LatticeSecret, generate_pair, most_factor_bits
from veilboost.infer.secure.memory import MemoryService
from veilboost.infer.secure.ordered import MISSING
from veilboost.party.simulation import simulate_prediction

SIZE = 23


@pytest.fixture(scope="module")
def pair():
    secret, public = generate_pair(Csprng())
    return LatticePublic(public, SIZE), LatticeSecret(secret)


def test_predictions_are_those_of_the_plaintext_model():
    columns = make_columns(3, rows=80, numeric=3, categorical=1, missing=0.2)
    tables = split_among(columns, make_labels(3, columns), 2)
    config = TrainingConfig(objective="binary", n_estimators=2, max_depth=2, max_bin=6, categories="onehot")
    run = train(tables, config)
    attributes = {name: attributes_of(name, table.columns, "onehot") for name, table in tables.items()}
    ready = MemoryService(run.parts, "p0", attributes, scheme="lattice")
    rows = {name: table.take(np.arange(12)) for name, table in tables.items()}
    expected = make_objective("binary").predict(simulate_prediction(run.parts, "p0", rows))
    given = {column.name: column for table in rows.values() for column in table.columns}
    assert np.array_equal(ready.user().predict(given, 12)[:, 0], expected)


def test_products_of_polynomials_are_products():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-1000, 1000, size=(2, ring.DEGREE))
    p = ring.columns()
    found = ring.joined(ring.constant(ring.forward(a) * ring.forward(b) % p))
    assert found == a[0] * b[0] - int((a[1:] * b[:0:-1]).sum())  # X^N is -1


def test_directions_are_exact_next_to_the_threshold_and_at_the_ends(pair):
    public, secret = pair
    cases = [
        (5, 5),
        (5, 6),
        (-7, -8),
        (-7, -6),
        (0, 0),
        (MISSING - 1, MISSING),
        (-MISSING, -MISSING),
        (MISSING - 1, -MISSING),
    ]
    nodes = public.encrypt_nodes([(1 + k * 3 % SIZE, threshold) for k, (threshold, _) in enumerate(cases)])
    values = np.full((len(cases), SIZE), MISSING, dtype=np.int64)
    values[::2] = -MISSING  # neighbours as large as they can be
    for k, (_, value) in enumerate(cases):
        values[k, k * 3 % SIZE] = value
    rows = public.encrypt_rows(values)
    for _ in range(3):
        blinded, turned = public.blind(nodes, rows, np.arange(len(cases)), np.arange(len(cases)))
        left = secret.directions(blinded) ^ turned
        assert left.tolist() == [value <= threshold for threshold, value in cases]


@pytest.mark.parametrize("end", [0, -1])
def test_the_most_unlikely_noise_does_not_turn_a_direction(pair, end, monkeypatch):
    public, secret = pair
    nodes = public.encrypt_nodes([(k, 0) for k in range(1, 13)])
    values = np.full((12, SIZE), MISSING, dtype=np.int64)
    values[::2] = -MISSING
    for k in range(12):
        values[k, k] = k % 2  # on the threshold, or next to it
    rows = public.encrypt_rows(values)
    public.prepare(12)
    monkeypatch.setattr(public, "_below", lambda bound: end % bound)
    blinded, turned = public.blind(nodes, rows, np.arange(12), np.arange(12))
    assert (secret.directions(blinded) ^ turned).tolist() == [True, False] * 6


def test_errors_stay_as_far_below_the_scale_as_the_sizes_say(pair):
    public, secret = pair
    p = ring.columns()
    d0, d1 = public._d0, public._d1
    for _ in range(3):
        node = public.encrypt_nodes([(3, 0)]).view("<u4").astype(np.uint64).reshape(4, ring.PRIMES_COUNT, ring.DEGREE)
        row = public.encrypt_rows(np.full((1, SIZE), MISSING))
        row = row.view("<u4").astype(np.uint64).reshape(2, ring.PRIMES_COUNT, ring.DEGREE)
        middle = (node[0] * row[1] + node[1] * row[0]) % p
        product = (node[0] * row[0] + middle * secret._s + node[1] * row[1] % p * secret._square) % p
        error = ring.joined(ring.constant(product)) - d0 * d1 * MISSING
        assert abs(error) < d0 * d1 >> FLOOD
    assert most_factor_bits(SIZE) == 72


def test_what_goes_to_the_csp_looks_fresh_each_time(pair):
    public, _ = pair
    node, row = public.encrypt_nodes([(2, 1)]), public.encrypt_rows(np.zeros((1, SIZE), dtype=np.int64))
    one = np.zeros(1, dtype=np.int64)
    first, again = (public.blind(node, row, one, one)[0].view("<u4")[0] for _ in range(2))
    assert np.mean(first == again) < 0.001


def test_refusals(pair):
    public, secret = pair
    rows = public.encrypt_rows(np.zeros((1, SIZE), dtype=np.int64))
    with pytest.raises(MalformedMessage):
        public.check_rows(rows[:, :-4])
    with pytest.raises(MalformedMessage):
        public.check_rows(np.full_like(rows, 255))
    with pytest.raises(MalformedMessage):
        public.check_nodes(rows)
    with pytest.raises(MalformedMessage):
        secret.directions(rows)
    with pytest.raises(MalformedMessage):
        secret.directions(
            np.full((1, 4 * (2 * ring.PRIMES_COUNT * ring.DEGREE + ring.PRIMES_COUNT)), 255, dtype=np.uint8)
        )
    with pytest.raises(MalformedMessage):
        LatticePublic(b"short", SIZE)
    with pytest.raises(MalformedMessage):
        LatticeSecret(bytes([2]) * ring.DEGREE)
    key = generate_pair(Csprng())[1]
    with pytest.raises(UnsupportedCombination):
        LatticePublic(key, ring.DEGREE)
