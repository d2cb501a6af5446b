"""Noise on the sums of `secagg`: who adds how much, what is booked, and what a server cannot ask for."""

import math
from dataclasses import replace

import numpy as np
import pytest

from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.data.table import PartyTable
from veilboost.errors import (
    InvalidParameter,
    MalformedMessage,
    UnexpectedMessage,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.fixedpoint import Scale
from veilboost.party.simulation import SERVER, HorizontalFederation, simulate_training
from veilboost.privacy.accountant import compose
from veilboost.privacy.discrete import TABLES
from veilboost.privacy.event import Adjacency, Gaussian
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.secagg.messages import (
    CountsRequest,
    MetricRequest,
    SecaggGroup,
    SumsRequest,
    TotalsRequest,
)
from veilboost.protocols.secagg.noise import LEAST_SIGMA, SumNoise, cuts_by_noisy_counts
from veilboost.types import Column, Role

pytestmark = pytest.mark.fast


def config_of(epsilon=2.0, **changes):
    options = {"epsilon": epsilon} | changes.pop("options", {})
    values = {"objective": "binary", "n_estimators": 3, "max_depth": 2, "max_bin": 8, "categories": "onehot"}
    return TrainingConfig(**(values | changes), options=options)


def tables_of(participants=3, rows=40):
    rng = np.random.default_rng(1)
    made = {}
    for at in range(participants):
        x, c = rng.normal(size=rows).astype(np.float32), rng.integers(0, 3, rows).astype(np.int32)
        x[::9] = np.nan
        label = (np.nan_to_num(x) + (c == 1) > 0).astype(float)
        made[f"h{at}"] = PartyTable(np.arange(rows), (Column("x", x), Column("c", c, tuple("abc"))), label)
    return made


def test_every_participant_books_the_claimed_epsilon_and_no_exact_release():
    config = config_of()
    run = simulate_training(tables_of(), SERVER, "secagg", config)
    for account in run.accounts.values():
        events = account.events
        assert all(isinstance(event, Gaussian) and event.adjacency is Adjacency.RECORD for event in events)
        assert {event.release: event.count for event in events} == {
            "counts of values": TABLES,
            "sums of gradients per node and bin": config.n_estimators * config.max_depth,
        }
        cost = compose(events, 1e-5)
        assert 2.0 * (1 - 1e-4) < cost.renyi <= 2.0 * (1 + 1e-9)
        assert cost.epsilon <= 2.0
    spec = protocol_named("secagg")
    planned = spec.plan(config, 40, Role("participant"), 2)
    assert [(event.mahalanobis, event.count) for event in planned] == [(e.mahalanobis, e.count) for e in events]
    assert spec.delta(config, Role("participant")) == 1e-5
    assert spec.delta(replace(config, options={}), Role("participant")) is None


def test_the_distance_of_every_change_of_a_record_is_within_what_is_booked():
    """The independent slow check: all pairs of extreme records, bin by bin."""
    config, columns = config_of(), 4
    noise = SumNoise.of(config, columns)
    booked = {
        event.release: event.mahalanobis for event in protocol_named("secagg").plan(config, 9, Role("participant"))
    }
    records = [(g, h, at) for g in (-1.0, 0.0, 1.0) for h in (0.0, 0.25) for at in (0, 1, None)]  # None: no such node
    largest = 0.0
    for one in records:
        for two in records:
            sums = np.zeros((2, 2))
            for sign, (g, h, at) in ((-1, one), (1, two)):
                if at is not None:
                    sums[at] += sign * np.array([g / noise.g, h / noise.h])
            largest = max(largest, math.sqrt(columns * float((sums**2).sum())))
    assert largest <= booked["sums of gradients per node and bin"]
    assert largest > 0.99 * booked["sums of gradients per node and bin"]
    assert math.sqrt(2 * columns) / noise.counts <= booked["counts of values"]


@pytest.mark.parametrize(("participants", "colluding"), [(3, 1), (20, 5), (2, 1)])
def test_the_honest_participants_alone_add_all_of_the_noise(participants, colluding):
    config = config_of(options={"colluding": colluding})
    whole = SumNoise.of(config, 2)
    part = whole.part(config, participants)
    for name in ("counts", "g", "h"):
        assert getattr(part, name) ** 2 * (participants - colluding) == pytest.approx(getattr(whole, name) ** 2)
    with pytest.raises(InvalidParameter, match="colluding"):
        whole.part(config, colluding)


def test_noise_has_the_stated_size_on_the_grid():
    """A mean of 40000 squares is within 5 % of the variance but with probability 1e-11 (its sigma is 0.7 %)."""
    noise, scale = SumNoise(counts=50.0, g=2.0, h=0.5), Scale(12, 14)
    sums = np.full((4, 10_000, 2), 7, dtype=np.int64)
    drawn = (noise.add_to_sums(Csprng(), sums, scale) - sums).astype(float)
    for place, sigma in enumerate((2.0 * 2**12, 0.5 * 2**14)):
        assert (drawn[..., place] ** 2).mean() == pytest.approx(sigma**2, rel=0.05)
    below = np.sort(np.random.default_rng(0).integers(0, 1000, (4, 10_000)), axis=1).astype(np.uint64)
    cells = noise.add_to_cells(Csprng(), below).view(np.int64) - np.diff(below.astype(np.int64), axis=1, prepend=0)
    assert (cells.astype(float) ** 2).mean() == pytest.approx(2500, rel=0.05)
    tiny = SumNoise(1e-9, 1e-9, 1e-9).add_to_sums(Csprng(), sums, scale) - sums
    assert (tiny.astype(float) ** 2).mean() == pytest.approx(LEAST_SIGMA**2, rel=0.05)


def test_cut_points_of_exact_counts_are_near_the_quantiles():
    rng = np.random.default_rng(2)
    columns = [rng.normal(size=4000).astype(np.float32), rng.exponential(size=3000).astype(np.float32)]
    keys = [np.sort(np.where(c.view(np.uint32) >> 31, ~c.view(np.uint32), c.view(np.uint32) | 2**31)) for c in columns]

    def count(values):
        below = np.stack([np.searchsorted(own, row, side="right") for own, row in zip(keys, values, strict=True)])
        return np.diff(below, axis=1, prepend=0)

    for found, column in zip(cuts_by_noisy_counts(2, 8, count), columns, strict=True):
        shares = np.searchsorted(np.sort(column), found) / len(column)
        np.testing.assert_allclose(shares, np.arange(1, 8) / 8, atol=0.005)
    assert cuts_by_noisy_counts(0, 8, count) == []


def test_a_request_is_answered_with_the_same_noise_and_another_with_other_noise():
    tables = tables_of()
    federation = HorizontalFederation("secagg", tables, config_of())
    seen = {name: [] for name in tables}
    for name, side in federation.participants.items():
        noise = side._generator
        side._generator = lambda digest, name=name, noise=noise: seen[name].append(digest) or noise(digest)
    federation.train()
    assert all(len(digests) == len(set(digests)) > TABLES for digests in seen.values())
    one, other = federation.participants["h0"], federation.participants["h1"]
    digest = seen["h0"][0]
    assert one._generator(digest).bytes(8) == one._generator(digest).bytes(8) != other._generator(digest).bytes(8)
    digests = tuple(dict.fromkeys(seen["h0"]))  # a copy: every call is added to the list
    assert len({one._generator(each).bytes(8) for each in digests}) == len(digests)  # but for 1e-16


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda m: replace(m, weight_exponent=3) if isinstance(m, SecaggGroup) else m, MalformedMessage),
        (lambda m: replace(m, values=m.values[:, ::-1].copy()) if _wide(m) else m, MalformedMessage),
        (lambda m: replace(m, step=TABLES + 1) if isinstance(m, CountsRequest) else m, UnexpectedMessage),
        (lambda m: replace(m, g_exponent=1) if isinstance(m, SumsRequest) else m, MalformedMessage),
        (lambda m: replace(m, depth=2) if isinstance(m, SumsRequest) and m.depth else m, UnexpectedMessage),
    ],
)
def test_a_server_cannot_ask_for_sums_with_too_little_noise(change, error):
    federation = HorizontalFederation("secagg", tables_of(), config_of(100.0))
    side = federation.participants["h1"]
    handle = side.handle
    side.handle = lambda message: handle(change(message))
    with pytest.raises(error):
        federation.train()


def _wide(message):
    return isinstance(message, CountsRequest) and message.values.shape[1] > 1


def test_a_job_with_noise_has_no_level_more_than_booked_and_no_metric():
    config = config_of(max_depth=1)
    federation = HorizontalFederation("secagg", tables_of(), config)
    federation.train()
    side, none, floats = federation.participants["h0"], np.empty(0, np.int32), np.empty(0, np.float32)
    result = (none, floats, none, none, np.zeros(1, np.int32), none, floats)
    side._round, side._depth, side._ended = 0, 0, False
    with pytest.raises(UnexpectedMessage, match="levels"):
        side.handle(SumsRequest(*result, number=0, depth=1, g_exponent=12, h_exponent=14, columns=none, build=none))
    with pytest.raises(UnexpectedMessage, match="metric"):
        side.handle(MetricRequest(*result, number=0))


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "auto"},
        {"objective": "regression"},
        {"binning": "width"},
        {"scale_pos_weight": 2.0},
        {"early_stopping_rounds": 2},
        {"options": {"colluding": 0}},
        {"options": {"delta": 0.0}},
        {"options": {"colluding": 3}},
    ],
)
def test_what_would_release_something_without_noise_is_refused(changes):
    with pytest.raises((UnsupportedCombination, InvalidParameter)):
        simulate_training(tables_of(), SERVER, "secagg", config_of(**changes))


def test_weights_and_validation_rows_are_refused_with_noise():
    tables = tables_of()
    weighted = {name: replace(table, weight=np.ones(table.rows)) for name, table in tables.items()}
    with pytest.raises(UnsupportedCombination, match="weights"):
        simulate_training(weighted, SERVER, "secagg", config_of())
    held_out = {name: np.arange(table.rows) < 5 for name, table in tables.items()}
    with pytest.raises(UnsupportedCombination, match="validation"):
        simulate_training(tables, SERVER, "secagg", config_of(), held_out=held_out)


def test_one_record_does_not_change_what_a_participant_says_of_its_table():
    tables = tables_of()
    federation = HorizontalFederation("secagg", tables, config_of())
    table = tables["h0"]
    plain = replace(table, columns=(Column("x", np.nan_to_num(table.columns[0].values)), table.columns[1]))
    other = HorizontalFederation("secagg", tables | {"h0": replace(plain, label=np.zeros(40))}, config_of())
    one, two = (each.participants["h0"].introduce() for each in (federation, other))
    assert one.schema == two.schema


def test_a_group_that_was_refused_changes_nothing():
    """Neither a group with a schema that cannot be read nor a second start gets answers, or divides the noise again."""
    federation, groups = HorizontalFederation("secagg", tables_of(), config_of()), []
    for each in federation.participants.values():

        def refused_first(message, handle=each.handle):
            if isinstance(message, SecaggGroup):
                groups.append(message)
                for _ in range(3):
                    with pytest.raises(VeilBoostError):
                        handle(replace(message, schema="{}"))
            return handle(message)

        each.handle = refused_first
    federation.train()
    side = federation.participants["h1"]
    assert side._part == SumNoise.of(config_of(), 2).part(config_of(), 3)

    again = type(side)(replace(side._context, attempt=b"again"))  # the account has counted the first start
    mine = np.frombuffer(again._masks.public, np.uint8)
    publics = np.stack([mine if at == 1 else row for at, row in enumerate(groups[0].publics)])
    with pytest.raises(UnsupportedCombination, match="cannot be resumed"):
        again.handle(replace(groups[0], publics=publics))
    with pytest.raises(UnexpectedMessage):
        again.handle(TotalsRequest())
