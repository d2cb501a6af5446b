"""Secure inference under lattice encryption: the same predictions, and a CSP that sees no attribute."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import service_twin as twin
from support import make_columns, make_labels, split_among, train
from veilboost._native import ServicePublic, ServiceSecret, lattice_engines
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.keys import ERROR_SIGMA
from veilboost.errors import MalformedMessage, UnsupportedCombination
from veilboost.party.simulation import simulate_prediction
from veilboost.secure_inference import lattice
from veilboost.secure_inference.attributes import MISSING, attributes_of
from veilboost.secure_inference.lattice import (
    BLINDED_BYTES,
    FLOOD,
    ROW_BYTES,
    LatticePublic,
    LatticeSecret,
    generate_pair,
    most_factor_bits,
)
from veilboost.secure_inference.roles import MemoryService

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
    ready = MemoryService(run.shares, "p0", attributes, scheme="lattice")
    rows = {name: table.take(np.arange(12)) for name, table in tables.items()}
    expected = make_objective("binary").predict(simulate_prediction(run.shares, "p0", rows))
    given = {column.name: column for table in rows.values() for column in table.columns}
    assert np.array_equal(ready.user().predict(given, 12)[:, 0], expected)


def test_the_roots_are_roots_and_the_twin_multiplies_polynomials():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-1000, 1000, size=(2, lattice.DEGREE))
    for at, prime in enumerate(lattice.PRIMES):
        assert pow(twin.ROOTS[at], lattice.DEGREE, prime) == prime - 1
    product = twin.times(twin.forward(a, 0), twin.forward(b, 0), lattice.PRIMES[0])
    expected = a[0] * b[0] - int((a[1:] * b[:0:-1]).sum())  # X^N is -1
    assert twin.constant(product, 0) == expected % lattice.PRIMES[0]
    numbers = [0, 1, -1, lattice.MODULUS // 2, -(lattice.MODULUS // 2), 12345 << 90]
    assert lattice.joined(lattice.residues(numbers)) == numbers


@pytest.mark.parametrize("engine", lattice_engines())
def test_every_engine_equals_its_twin_byte_by_byte(engine):
    rng = np.random.default_rng(1)
    secret = rng.integers(-1, 2, lattice.DEGREE).astype(np.int8)
    seed, noise = (bytes([k]) * 32 for k in (1, 2))
    packed = np.empty(lattice.POLYNOMIAL_BYTES, dtype=np.uint8)
    owner = ServiceSecret(secret, engine)
    owner.public_key(seed, noise, packed)
    a, (b,) = twin.uniform(seed), twin.unpack(packed)
    error = twin.Stream(noise, 0).errors()
    for at, prime in enumerate(lattice.PRIMES):
        whole = (twin.times(a[at], twin.forward(secret, at), prime) + b[at]) % np.uint64(prime)
        assert np.array_equal(whole, twin.forward(error, at))

    public = ServicePublic(seed, packed, engine)
    values, place = np.array([[5, -(2**31)], [7, 1 - 2**31]]), np.array([[1, 8191], [0, 4096]], dtype=np.int32)
    scale = lattice.residues([3 << 100])[0]
    rows = np.empty((2, ROW_BYTES), dtype=np.uint8)
    public.encrypt(values, place, scale, noise, rows, 2)
    assert public.fits(rows, 1)
    message = np.zeros((len(lattice.PRIMES), lattice.DEGREE), dtype=np.uint64)
    for value, power in zip(values[1].tolist(), place[1].tolist(), strict=True):
        message[:, power] = lattice.residues([value * (3 << 100)])[0]
    assert np.array_equal(twin.pack(twin.encrypted(b, a, message, noise, 1)), rows[1])

    factors, offsets = lattice.residues([-(77 << 60), 5]), lattice.residues([1 << 150, -9])
    nodes = np.concatenate((rows, rows[::-1]), axis=1)
    found = np.empty((2, BLINDED_BYTES), dtype=np.uint8)
    public.blind(nodes, rows, np.array([0, 1]), np.array([1, 0]), factors, offsets, noise, found, 2)
    expected = twin.blinded(
        b, a, twin.unpack(nodes[1]), twin.unpack(rows[0]), factors[1].tolist(), offsets[1].tolist(), noise, 1
    )
    assert np.array_equal(found[1], expected)
    constants = np.empty((2, len(lattice.PRIMES)), dtype=np.uint64)
    assert owner.decrypt(found, constants, 2)
    assert constants[1].tolist() == twin.decrypted(secret, expected)


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
    monkeypatch.setattr(public, "_below", lambda bound: end % bound)
    blinded, turned = public.blind(nodes, rows, np.arange(12), np.arange(12))
    assert (secret.directions(blinded) ^ turned).tolist() == [True, False] * 6


def test_errors_stay_as_far_below_the_scale_as_the_sizes_say():
    secret, public_key = generate_pair(Csprng())
    public = LatticePublic(public_key, SIZE)
    d0, d1 = public._d0, public._d1
    node = twin.unpack(public.encrypt_nodes([(3, 0)]))
    row = twin.unpack(public.encrypt_rows(np.full((1, SIZE), MISSING)))
    residues = []
    for at, prime in enumerate(lattice.PRIMES):
        s = twin.forward(np.frombuffer(secret, dtype=np.int8), at)
        left, right = ((part[0, at] + twin.times(part[1, at], s, prime)) % np.uint64(prime) for part in (node, row))
        residues.append(twin.constant(twin.times(left, right, prime), at))
    error = lattice.joined(np.array([residues], dtype=np.uint64))[0] - d0 * d1 * MISSING
    assert 0 < abs(error) < d0 * d1 >> FLOOD
    assert most_factor_bits(SIZE) == 70


def test_what_goes_to_the_csp_looks_fresh_each_time(pair):
    public, _ = pair
    node, row = public.encrypt_nodes([(2, 1)]), public.encrypt_rows(np.zeros((1, SIZE), dtype=np.int64))
    one = np.zeros(1, dtype=np.int64)
    first, again = (public.blind(node, row, one, one)[0][0] for _ in range(2))
    assert np.mean(first == again) < 0.01


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
        secret.directions(np.full((1, BLINDED_BYTES), 255, dtype=np.uint8))
    with pytest.raises(MalformedMessage):
        LatticePublic(b"short", SIZE)
    with pytest.raises(MalformedMessage):
        LatticeSecret(bytes([2]) * lattice.DEGREE)
    key = generate_pair(Csprng())[1]
    with pytest.raises(UnsupportedCombination):
        LatticePublic(key, lattice.DEGREE)


def test_the_modulus_stays_below_the_bound_of_the_guidelines():
    """Guidelines of 2024: N = 8192, ternary secret, 128 bits (classical), errors of 3.19 and more, log2 q up to 214."""
    assert lattice.DEGREE == 8192
    assert lattice.MODULUS.bit_length() <= 214
    assert ERROR_SIGMA >= 3.19


def comparison_distance(size: int) -> float:
    """How far the CSP's view of one comparison is from one without errors: statistical distance, expected over errors.

    The errors are those of a node and of a row of `size` values, which the CSP could tell apart by; n2 covers them.
    A uniform number below D0 D1 n1, moved by n1 times x, is at a distance of |x| / (D0 D1) from itself. Here x is D0
    times an error of the row, plus D1 times the sum of the row's values times errors of the node. A fresh ciphertext's
    error is e r + e' + e'' s with ternary r and s; what is expected of |x| is at most its deviation. The distances of
    several comparisons add up.
    """
    d0, d1 = lattice._scales(size)
    deviation = ERROR_SIGMA * math.sqrt(1 + 2 * lattice.DEGREE * 2 / 3)
    return deviation / d1 + deviation * 2.0**31 * math.sqrt(size) / d0


def test_the_page_states_what_errors_can_tell():
    """Its numbers are those of the code: a change of sizes changes the page."""
    distance, comparisons = comparison_distance(SIZE), 600
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "secure-inference.md").read_text(encoding="utf-8")

    def power(value: float) -> str:
        return f"2^-{math.floor(-math.log2(value) * 10) / 10}"

    def rows(bound: float) -> str:
        return (
            f"{math.floor(bound / (comparisons * distance) / 10 ** (digits := 2 if bound < 1 else 4)) * 10**digits:,}"
        )

    assert f"within {power(distance)} (statistical distance" in page
    assert page.count(power(comparisons * distance)) == 2
    assert f"0.01 after {rows(0.01)} rows and 1 after {rows(1)} rows" in page
    assert f"after {rows(1)} such rows" in page
    lengths = most_factor_bits(SIZE) - 32
    assert f"| 1,938 | {lengths} |" in page
    assert f"about b / {lengths} |" in page


def test_errors_move_an_answer_as_little_as_is_stated():
    """The mean size of real errors, for values as large as they can be, beside the bound on what is expected of it."""
    secret, public_key = generate_pair(Csprng())
    public, count = LatticePublic(public_key, SIZE), 6
    unit = public._d0 * public._d1
    nodes = twin.unpack(public.encrypt_nodes([(3, 0)] * count)).reshape(count, 4, len(lattice.PRIMES), lattice.DEGREE)
    rows = twin.unpack(public.encrypt_rows(np.full((count, SIZE), MISSING))).reshape(
        count, 2, len(lattice.PRIMES), lattice.DEGREE
    )
    residues = np.empty((count, count, len(lattice.PRIMES)), dtype=np.uint64)
    for at, prime in enumerate(lattice.PRIMES):
        s, p = twin.forward(np.frombuffer(secret, dtype=np.int8), at), np.uint64(prime)
        left, right = (
            [(part[0, at] + twin.times(part[1, at], s, prime)) % p for part in parts] for parts in (nodes, rows)
        )
        for i, node in enumerate(left):
            for k, row in enumerate(right):
                residues[i, k, at] = twin.constant(twin.times(node, row, prime), at)
    errors = [abs(each - unit * MISSING) / unit for each in lattice.joined(residues.reshape(-1, len(lattice.PRIMES)))]
    # Errors of six rows decide the mean. It is above 3 deviations only where their squares add up to 54 or more (chi
    # square with six degrees: 1e-9), and below 0.02 only where six sizes add up to less than 0.14 (3e-9).
    assert 0.02 < np.mean(errors) / comparison_distance(SIZE) < 3
