"""The lower bound of one record in `secagg`: its claim, its twins, and that real participants answer as it assumes."""

import numpy as np
import pytest

from secagg_twins import divided_by_participants, wrong_unit
from veilboost.audit.record_bound import (
    BINS,
    CATEGORIES,
    COLUMNS,
    FAR,
    LABELS,
    PARTICIPANTS,
    canary_config,
    distances,
    grid,
    record_lower_bound,
    sampled_columns,
)
from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter
from veilboost.party.simulation import HorizontalFederation
from veilboost.protocols.secagg.messages import SumsRequest
from veilboost.protocols.secagg.noise import SumNoise
from veilboost.types import Column

pytestmark = pytest.mark.fast
TREES, DEPTH = 4, 2


def test_the_honest_protocol_is_bounded_away_from_zero_and_below_its_claim():
    """30 repetitions: 0.86 with a deviation of 0.20. So 0 and the claim are four and five deviations away."""
    found = record_lower_bound(2.0, 4000)
    assert found.holds
    assert found.epsilon > 0


@pytest.mark.parametrize("twin", [divided_by_participants, wrong_unit])
def test_a_twin_with_too_little_noise_is_caught(monkeypatch, twin):
    """Noise divided by n, 30 repetitions: 3.2 with a deviation of 0.3, and never below 2.8."""
    twin(monkeypatch)
    assert not record_lower_bound(2.0, 4000).holds


@pytest.mark.parametrize(("eps", "repeats", "trees"), [(0.0, 20, 10), (1.0, 19, 10), (1.0, 20, 1)])
def test_what_cannot_be_measured_is_refused(eps, repeats, trees):
    with pytest.raises(InvalidParameter):
        record_lower_bound(eps, repeats, trees=trees)


def requests(config):
    """What the server of the bound asks for: the root of the first tree, and two levels of each other tree."""
    scale, split, both = grid(config), result(position=[0]), np.arange(2, dtype=np.int32)
    for number, column in enumerate(sampled_columns(config)):
        common = {"number": number, "g_exponent": scale.g_exponent, "h_exponent": scale.h_exponent}
        before = [result(), result(position=[0], ends=[-FAR, FAR]), result(leaves=[0, 1])][min(number, 2)]
        at_root = {"depth": 0, "columns": np.array([column], dtype=np.int32), "build": both[:1]}
        yield SumsRequest(**before, **common, **at_root)
        if number > 0:
            yield SumsRequest(**split, **common, depth=1, columns=both[:0], build=both)


def result(leaves=(), position=(), ends=()):
    """The result of a level: leaves of weight 0, and splits that send the first category to the left."""
    return {
        "leaves": np.array(leaves, dtype=np.int32),
        "weights": np.zeros(len(leaves), dtype=np.float32),
        "position": np.array(position, dtype=np.int32),
        "handles": np.zeros(len(position), dtype=np.int32),
        "set_starts": np.zeros(len(position) + 1, dtype=np.int32),
        "set_bins": np.empty(0, dtype=np.int32),
        "ends": np.array(ends, dtype=np.float32),
    }


def answers(config, second):
    """The sums over all participants, one array (nodes, bins, 2) for each request, if the second record is there."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 2, (PARTICIPANTS * 5, COLUMNS)).astype(np.int32)
    labels = rng.integers(0, 2, len(codes)).astype(float)
    codes[0], labels[0] = 0, LABELS[second]
    codes[0, sampled_columns(config)[0]] = second
    parts = np.array_split(np.arange(len(codes)), PARTICIPANTS)
    tables = {
        f"h{at}": PartyTable(
            np.arange(len(rows)),
            tuple(Column(f"c{f}", codes[rows, f].copy(), CATEGORIES) for f in range(COLUMNS)),
            labels[rows],
        )
        for at, rows in enumerate(parts)
    }
    federation = HorizontalFederation("secagg", tables, config)
    found = []

    class Asked(Exception):
        pass

    # The honest server opens the job; then this one asks.
    first = federation.participants["h0"]
    handle = first.handle

    def stop(message):
        if isinstance(message, SumsRequest):
            raise Asked
        return handle(message)

    first.handle = stop
    with pytest.raises(Asked):
        federation.train()
    first.handle = handle
    for message in requests(config):
        masked = [side.handle(message).sums for side in federation.participants.values()]
        found.append(np.add.reduce(masked).view(np.int64))
    return found


def test_real_participants_answer_with_the_assumed_distances(monkeypatch):
    monkeypatch.setattr(SumNoise, "add_to_sums", lambda self, generator, sums, scale: sums)
    config = canary_config(1.0, 0.01, 5, TREES, DEPTH)
    one, two = answers(config, 0), answers(config, 1)
    moves = distances(config)
    expected = [moves[0], *(move for move in moves[1:] for _ in range(DEPTH))]
    assert len(one) == len(expected)
    for here, there, move in zip(one, two, expected, strict=True):
        changed = (there - here).sum(axis=0)  # the record is in one of the nodes
        np.testing.assert_array_equal(changed, move)
    assert one[0].shape[1] == BINS


def test_real_participants_add_the_noise_that_the_bound_draws(monkeypatch):
    config = canary_config(1.0, 0.01, 5, 12, DEPTH)
    noisy = answers(config, 0)
    with monkeypatch.context() as patch:
        patch.setattr(SumNoise, "add_to_sums", lambda self, generator, sums, scale: sums)
        exact = answers(config, 0)
    scale, noise = grid(config), SumNoise.of(config, COLUMNS)
    rest = np.concatenate([(a - b).reshape(-1, 2) for a, b in zip(noisy, exact, strict=True)])
    units = rest / np.array([noise.g / scale.g_unit, noise.h / scale.h_unit])
    # All participants' noise, also of the one whose noise does not count. The mean of 2 x 207 squares has a deviation
    # of 7 %: it is within 45 % but with probability 1e-9.
    assert len(units) == BINS * (1 + 11 * 3)
    assert (units**2).mean() == pytest.approx(PARTICIPANTS / (PARTICIPANTS - 1), rel=0.45)
