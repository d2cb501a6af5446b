"""MaskedXGBoost from end to end: examples, streams, refusals, books, and the attack that its statement names."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.errors import GradientRange, InvalidParameter, MalformedMessage, UnsupportedCombination
from veilboost.privacy.calibrate import CalibrationRequest
from veilboost.privacy.event import Adjacency, ExactRelease, Gaussian
from veilboost.privacy.statement import Status
from veilboost.protocols.masked.accounting import OUTSIDER, numbers_per_node
from veilboost.protocols.masked.messages import BestGains, Masks, NoisedVectors
from veilboost.protocols.masked.parameters import PAPER_SETTING, MaskedOptions, Noise
from veilboost.protocols.masked.passive import noisy_gains
from veilboost.protocols.masked.spec import SPEC
from veilboost.protocols.registry import all_protocols
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.types import Column, Role
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast


def config_of(options: dict | None = None, **parameters) -> TrainingConfig:
    defaults = {"objective": "binary", "n_estimators": 2, "max_depth": 3, "max_bin": 8, "categories": "ordinal"}
    return TrainingConfig.from_dict(defaults | parameters | {"options": options or {}})


def scene(rows: int = 200, objective: str = "binary", parties: int = 2, **columns):
    made = make_columns(4, rows=rows, **({"numeric": 4} | columns))
    return split_among(made, make_labels(4, made, objective), parties)


def listen(monkeypatch, wrong=None) -> list:
    """All messages in order; `wrong` may put another answer in the place of one."""
    heard = []

    class Listening(MemoryChannel):
        def send(self, message):
            heard.append(message)
            handler = self._handler

            def answering(request):
                answer = handler(request)
                answer = answer if wrong is None else wrong(answer)
                heard.append(answer)
                return answer

            self._handler = answering
            try:
                return super().send(message)
            finally:
                self._handler = handler

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    return heard


# --- the paper's examples -------------------------------------------------------------------------------------

AGES = np.array([24, 25, 20, 22, 15, 17, 18, 16], dtype=np.float32)
SPLIT = np.array([0, 0, 0, 0, 1, 1, 1, 1])


def test_example_1_the_splitting_vector():
    block = ColumnBlock.build([Column("age", AGES)], 8, TrainingConfig(max_bin=64))
    everyone = RowGroups.root(np.arange(8, dtype=np.int32), 1)
    bins = block.level_bins(everyone, RowGroups.root(np.arange(0, dtype=np.int32), 1))
    of_18 = int(bins.bins[0][6, 0])
    splits = block.splits_of(np.array([2 * of_18], dtype=np.int32))
    np.testing.assert_array_equal(block.route(bins, everyone, splits), SPLIT)


def test_example_2_the_noise_vector():
    """Algorithm 1 as printed gives the printed numbers, and its law is the one that masks are drawn from."""
    p = np.array([0.9109, -0.2397, 0.1810, 0.2442])
    v = np.array([-0.9613, 1.6737, 5.0767, -2.6467, 0, 0, 0, 0])
    r = np.array([0.0138, -0.1907, -0.0365, -0.0848, -0.0765, -0.1128, 0.0078, 0.2107])
    u = np.r_[np.zeros(4), p - np.roll(p, 1)]
    np.testing.assert_allclose(u[4:], [0.6667, -1.1506, 0.4207, 0.0632], atol=1.01e-4)
    b = u + v + r
    np.testing.assert_allclose(b, [-0.9475, 1.4830, 5.0402, -2.7315, 0.5902, -1.2634, 0.4285, 0.2739], atol=1.01e-4)
    assert SPLIT @ u == pytest.approx(0)
    assert SPLIT @ b == pytest.approx(0.0292)
    printed = np.array([[2.1, -1, 0, -1], [-1, 2.1, -1, 0], [0, -1, 2.1, -1], [-1, 0, -1, 2.1]])
    difference = np.eye(4) - np.roll(np.eye(4), 1, axis=0)  # u = difference @ p
    np.testing.assert_allclose(difference @ difference.T + 0.1 * np.eye(4), printed)
    noise = Noise.of(config_of({"sigma1": 1.0, "sigma2": math.sqrt(0.1)}), 8, 1)
    own, before, alone = noise.factors([4], 8)[0].astype(float)
    drawn = own * np.eye(4) - before * np.roll(np.eye(4), 1, axis=0)
    np.testing.assert_allclose(drawn @ drawn.T, printed, atol=1e-6)
    assert alone**2 == pytest.approx(2.1)


# --- the protocol -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [8.0, 0.01, 0.001])
@pytest.mark.parametrize("parties", [2, 3])
def test_with_noise_off_and_any_chunks_it_is_plain(chunk, parties):
    tables = scene(missing=0.1, categorical=2, parties=parties)
    quiet = config_of({"sigma1": 0.0, "sigma2": 0.0, "chunk_megabytes": chunk})
    assert sha(train(tables, quiet, "masked")) == sha(train(tables, config_of()))


def test_of_equal_scores_in_different_chunks_the_first_stays():
    made = make_columns(3, rows=120, numeric=2, distinct=3)
    twins = [Column(f"t{k}", column.values) for k, column in enumerate(made)]
    tables = split_among([Column("flat", np.arange(120, dtype=np.float32) % 2), *made, *twins], make_labels(3, made), 2)
    tables = {"p0": dataclasses.replace(tables["p0"], columns=tables["p0"].columns[:1]), "p1": tables["p1"]}
    tables["p1"] = dataclasses.replace(tables["p1"], columns=(*made, *twins))
    quiet = config_of({"sigma1": 0.0, "sigma2": 0.0, "chunk_megabytes": 0.001})
    assert sha(train(tables, quiet, "masked")) == sha(train(tables, config_of()))


def with_key(monkeypatch, key: bytes = bytes(32)):
    """Every party of a simulation draws from this key."""
    monkeypatch.setattr("veilboost.crypto.csprng.os.urandom", lambda count: key[:count].ljust(count, b"\0"))


def test_chunks_do_not_change_the_noise_of_masks(monkeypatch):
    """Masks are drawn per level, whatever the chunks; so are the scores, up to the coefficients' signs."""
    with_key(monkeypatch)
    tables, seen = scene(), []
    for chunk in (8.0, 0.002):
        heard = listen(monkeypatch)
        train(tables, config_of({"eps_ap": 8.0, "chunk_megabytes": chunk}, n_estimators=1, max_depth=1), "masked")
        seen.append([m for m in heard if isinstance(m, Masks)])
    assert len(seen[0]) == 1 < len(seen[1])
    np.testing.assert_array_equal(seen[0][0].masks, np.concatenate([m.masks for m in seen[1]]))
    most = max(m.masks.size for m in seen[1])
    assert 8 * most <= 0.002 * 2**20  # two vectors come back for each of W = 1


def test_the_same_request_draws_the_same_masks_and_coefficients(monkeypatch):
    with_key(monkeypatch)
    runs = []
    for _ in range(2):
        heard = listen(monkeypatch)
        runs.append((sha(train(scene(), config_of({"eps_ap": 8.0, "noise_vectors": 1}), "masked")), heard))
    assert runs[0][0] == runs[1][0]
    for one, other in zip(runs[0][1], runs[1][1], strict=True):
        if isinstance(one, NoisedVectors):
            np.testing.assert_array_equal(one.vectors, other.vectors)


def test_first_order_sends_no_hessians_but_weights_do(monkeypatch):
    for weight, sent in ((None, False), (np.linspace(0.5, 1.5, 200), True)):
        heard = listen(monkeypatch)
        made = make_columns(4, rows=200)
        tables = split_among(made, make_labels(4, made), 2, weight)
        quiet = config_of({"sigma1": 0.0, "sigma2": 0.0}, order="first")
        assert sha(train(tables, quiet, "masked")) == sha(train(tables, config_of(order="first")))
        assert {m.hessians for m in heard if isinstance(m, NoisedVectors)} == {sent}


def test_candidates_with_few_rows_left_are_left_out(monkeypatch):
    """With noise a candidate needs three rows on the left and one on the right; without it, one and one."""
    tables = scene(rows=12, numeric=2)
    for options, least in (({"eps_ap": 8.0}, 3), ({"sigma1": 0.0, "sigma2": 0.0}, 1)):
        heard = listen(monkeypatch)
        train(tables, config_of(options, max_bin=64, n_estimators=1, max_depth=1, min_child_weight=0.0), "masked")
        masks = next(m for m in heard if isinstance(m, Masks))
        assert len(masks.nodes) == 12 - least  # one column of 12 distinct values


@pytest.mark.parametrize("least", [0.0, 2.0])
def test_noisy_hessians_outside_of_the_nodes_are_no_candidates(least):
    left = np.array([[3.0, -5.0], [3.0, 0.0], [3.0, 4.0], [3.0, 9.9], [3.0, 10.0], [3.0, 12.0]])
    config = config_of(min_child_weight=least, reg_lambda=0.0)
    gains = noisy_gains(left, np.array([1.0, 10.0]), config)
    assert np.isfinite(gains).tolist() == [False, False, True, least == 0, False, False]
    assert gains[2] == pytest.approx(9 / 4 + 4 / 6 - 1 / 10)


def test_noisy_hessians_outside_of_the_nodes_are_scored_as_printed_or_moved_inside():
    left = np.array([[3.0, -5.0], [3.0, 4.0], [3.0, 12.0]])
    config = config_of(min_child_weight=2.0, reg_lambda=1.0)
    total = np.array([1.0, 10.0])
    literal = noisy_gains(left, total, config, "literal")
    assert literal == pytest.approx([9 / (h + 1) + 4 / (10 - h + 1) - 1 / 11 for h in (-5.0, 4.0, 12.0)])
    clamped = noisy_gains(left, total, config, "clamp")
    assert clamped == pytest.approx([9 / (h + 1) + 4 / (10 - h + 1) - 1 / 11 for h in (2.0, 4.0, 8.0)])
    no_room = noisy_gains(left, np.array([1.0, 3.0]), config, "clamp")
    assert not np.isfinite(no_room).any(), "no split of this node leaves both children enough"


@pytest.mark.parametrize("c", [0.25, 9.0])
def test_coefficients_have_the_length_that_c_says(c, monkeypatch):
    """With W = 1 a noised vector is g plus or minus sqrt(C) times the mask."""
    tables = scene(rows=60)
    heard = listen(monkeypatch)
    train(tables, config_of({"c": c}, n_estimators=1, max_depth=1), "masked")
    masks = next(m for m in heard if isinstance(m, Masks)).masks.reshape(-1, 60).astype(float)
    noised = next(m for m in heard if isinstance(m, NoisedVectors)).vectors.reshape(-1, 2, 60).astype(float)
    label = tables["p0"].label
    apart = noised[:, 0] - (label.mean() - label)
    assert np.abs(np.abs(apart) - np.sqrt(c) * np.abs(masks)).max() < 1e-3


def test_clipping_bounds_what_is_sent_and_the_sums(monkeypatch):
    tables = scene(objective="regression")
    heard = listen(monkeypatch)
    options = {"sigma1": 0.0, "sigma2": 0.0, "clip": 0.75}
    train(tables, config_of(options, objective="regression", n_estimators=1, min_child_weight=0.0), "masked")
    vectors = np.concatenate([m.vectors for m in heard if isinstance(m, NoisedVectors)])
    assert np.abs(vectors).max() == pytest.approx(0.75, abs=1e-5)
    root = next(m for m in heard if isinstance(m, NoisedVectors)).totals[0]
    assert abs(root[0]) <= 0.75 * 200
    assert root[1] == pytest.approx(0.75 * 200, rel=1e-4)


def test_weights_beyond_the_range_are_refused_before_anything_is_sent(monkeypatch):
    made = make_columns(4, rows=100)
    tables = split_among(made, make_labels(4, made), 2, np.full(100, 3.0))
    heard = listen(monkeypatch)
    with pytest.raises(GradientRange, match="clip"):
        train(tables, config_of({"eps_ap": 8.0}), "masked")
    assert not any(type(m).__name__ in ("BeginRound", "NoisedVectors", "MaskedLevel") for m in heard)
    train(tables, config_of({"eps_ap": 8.0, "clip": 1.0}), "masked")


def test_bytes_are_those_of_appendix_f(monkeypatch):
    """(l W + 2 l) n + l numbers for the root: the paper's l best scores are one here, and G and H are two more."""
    heard = listen(monkeypatch)
    options = {"sigma1": 1.0, "sigma2": 1.0, "noise_vectors": 3}
    train(scene(rows=300), config_of(options, n_estimators=1, max_depth=1), "masked")
    candidates = sum(len(m.nodes) for m in heard if isinstance(m, Masks))
    numbers = sum(m.masks.size for m in heard if isinstance(m, Masks))
    numbers += sum(m.vectors.size for m in heard if isinstance(m, NoisedVectors))
    assert numbers == numbers_per_node(300, candidates, 3) - candidates
    assert sum(m.gains.size for m in heard if isinstance(m, BestGains)) == 1
    paper = numbers_per_node(1000, 32, 3) * 8  # its own example: 1.2 MB
    assert paper / 2**20 == pytest.approx(1.2, abs=0.03)


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eps_ap": 0.0}, "eps_ap"),
        ({"eps_ap": -1.0}, "eps_ap"),
        ({"eps_ap": math.inf}, "eps_ap"),
        ({"eps_ap": math.nan}, "eps_ap"),
        ({"delta_ap": 0.0}, "delta_ap"),
        ({"delta_ap": 1.0}, "delta_ap"),
        ({"delta_pp": 2.0}, "delta_pp"),
        ({"eps_pp": -0.5}, "eps_pp"),
        ({"eps_pp": 0.5}, "above 0.6931"),
        ({"eps_pp": 1.0, "noise_vectors": 2}, "noise_vectors=1, or set eps_pp above 1.3863"),
        ({"sigma2": 0.0, "sigma1": 1.0}, "sigma2"),
        ({"noise_vectors": 0}, "noise_vectors"),
        ({"scale": "other"}, "scale"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_impossible_options_are_refused_on_input(options, says):
    with pytest.raises(InvalidParameter, match=says):
        train(scene(rows=20), config_of(options), "masked")


@pytest.mark.parametrize(
    ("options", "parameters", "says"),
    [
        ({"eps_ap": 4.0}, {"categories": "sets"}, "categories"),
        ({"sigma1": 1.0}, {}, "sigma1 and sigma2"),
        ({"eps_ap": 4.0}, {"objective": "regression"}, "clip"),
        ({"eps_ap": 4.0}, {"objective": "poisson"}, "clip"),
        ({"eps_ap": 4.0}, {"sampling": "goss"}, "goss"),
    ],
)
def test_what_does_not_fit_together_is_refused_on_input(options, parameters, says):
    with pytest.raises(UnsupportedCombination, match=says):
        train(scene(rows=20), config_of(options, **parameters), "masked")


def spoiled(kind):
    def spoil(answer):
        if not isinstance(answer, Masks):
            return answer
        masks = answer.masks.copy()
        if kind == "zero":
            masks[:] = 0
        elif kind == "small":
            masks *= np.float32(1e-4)
        elif kind == "nan":
            masks[-1] = np.nan
        elif kind == "infinite":
            masks[0] = np.inf
        elif kind == "shape":
            masks = masks[:-1]
        elif kind == "repeated":  # every second vector is the one before it, stretched
            pairs = masks.reshape(len(answer.nodes), 2, -1)
            pairs[:, 1] = 2 * pairs[:, 0]
            masks = pairs.reshape(-1)
        elif kind == "node":
            return dataclasses.replace(answer, nodes=answer.nodes + np.int32(50))
        elif kind == "number":
            return dataclasses.replace(answer, number=answer.number + 1)
        elif kind == "too many":
            return Masks(0, np.tile(answer.nodes, 9), np.tile(masks, 9))
        return dataclasses.replace(answer, masks=masks)

    return spoil


@pytest.mark.parametrize(
    "kind", ["zero", "small", "nan", "infinite", "shape", "repeated", "node", "number", "too many"]
)
def test_masks_that_would_not_hide_are_refused(kind, monkeypatch):
    """The active party sends no vector under them, and books none but the first level's sums."""
    heard = listen(monkeypatch, spoiled(kind))
    with pytest.raises(MalformedMessage):
        train(scene(), config_of({"eps_ap": 4.0, "eps_pp": 3.0, "noise_vectors": 2}, n_estimators=1), "masked")
    assert not any(isinstance(m, NoisedVectors) for m in heard)


def test_honest_masks_of_tiny_nodes_are_not_refused():
    for seed in range(5):
        made = make_columns(seed, rows=16)
        tables = split_among(made, make_labels(seed, made), 2)
        options = {"eps_ap": 2.0, "eps_pp": 4.0, "noise_vectors": 4}
        train(tables, config_of(options, min_child_weight=0.0, max_bin=16, n_estimators=4), "masked")


@pytest.mark.parametrize("gains", [np.array([np.nan]), np.array([np.inf]), np.array([1.0, 2.0])])
def test_scores_that_are_not_numbers_are_refused(gains, monkeypatch):
    listen(monkeypatch, lambda answer: BestGains(gains) if isinstance(answer, BestGains) else answer)
    with pytest.raises(MalformedMessage):
        train(scene(), config_of({"eps_ap": 4.0}), "masked")


# --- the books ----------------------------------------------------------------------------------------------------


class Book:
    def __init__(self):
        self.events = []

    def spend(self, event):
        self.events.append(event)

    def begin(self, step, trees):
        return 0


def booked(config: TrainingConfig, monkeypatch):
    """The events of the active party (with one passive one) and of the passive one."""
    books = {"active": Book(), "passive": Book()}
    roles = {
        role: lambda context, role=role: SPEC.roles[role](dataclasses.replace(context, account=books[role]))
        for role in books
    }
    spec = dataclasses.replace(SPEC, roles=roles)
    monkeypatch.setitem(all_protocols(), "masked", spec)
    train(scene(), config, "masked")
    return books["active"].events, books["passive"].events


@pytest.mark.parametrize("budget", ["release", "composed", "label"])
def test_every_level_is_booked_by_both_sides(budget, monkeypatch):
    active, passive = booked(config_of({"eps_ap": 4.0, "budget": budget}), monkeypatch)
    levels = len(passive)
    assert 4 <= levels <= 6
    sums = [e for e in active if "sums" in e.release]
    exact = [e for e in active if "vectors" in e.release and isinstance(e, ExactRelease)]
    outside = [e for e in active if isinstance(e, Gaussian)]
    assert len(sums) == len(exact) == len(outside) == levels
    assert all(isinstance(e, ExactRelease) and e.adjacency == Adjacency.LABEL for e in sums)
    assert {e.adversary for e in outside} == {OUTSIDER}
    assert {e.adjacency for e in outside} == {Adjacency.LABEL if budget == "label" else Adjacency.VECTOR}
    assert all("span(B)" in e.what for e in exact)
    claimed = {e.paper_epsilon for e in exact}
    assert claimed == {None} if budget == "label" else max(claimed) <= 4.0
    assert all(isinstance(e, ExactRelease) and e.adjacency == Adjacency.PASSIVE_RECORD for e in passive)
    assert {e.paper_epsilon for e in passive} == {1.0}


def test_the_label_budget_is_kept_over_the_whole_job(monkeypatch):
    """Against an outsider: Gaussians compose by the sum of squares, and the analytic epsilon is the budget's."""
    from veilboost.privacy.accountant import gaussian_delta

    active, _ = booked(config_of({"eps_ap": 4.0, "budget": "label"}), monkeypatch)
    total = math.sqrt(sum(e.mahalanobis**2 for e in active if isinstance(e, Gaussian)))
    assert gaussian_delta(total, 4.0) <= 1e-3 * (1 + 1e-6)


def test_noise_off_is_booked_as_exact(monkeypatch):
    active, passive = booked(config_of({"sigma1": 0.0, "sigma2": 0.0}), monkeypatch)
    assert {type(e) for e in active + passive} == {ExactRelease}
    assert {e.paper_epsilon for e in active + passive} == {None}


@pytest.mark.parametrize("role", list(Role))
def test_the_plan_names_every_kind_of_release(role):
    config = config_of({"eps_ap": 4.0})
    planned = SPEC.plan(config, 200, role)
    assert {e.count for e in planned} == {config.n_estimators * config.max_depth}
    assert any(isinstance(e, ExactRelease) for e in planned)


def test_the_statement_says_that_labels_are_not_protected():
    assert SPEC.statement.worst_for("active", "labels") == Status.BROKEN
    assert "span(B)" in SPEC.statement.protections[0].why


# --- the attack -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectors", [1, 3])
def test_projection_and_stacking_show_the_gradients_to_the_maker_of_the_masks(vectors, monkeypatch):
    """From what the passive party sends and gets at one root: labels by one candidate, g by two."""
    rows = 400
    tables = scene(rows=rows)
    heard = listen(monkeypatch)
    options = {"eps_ap": 0.5, "eps_pp": 3.0, "noise_vectors": vectors, "delta_ap": 1e-3, "budget": "release"}
    # An attack's success has no computed probability: the noise is the same in every run.
    train(tables, config_of(options, n_estimators=1, max_depth=1), "masked", unsafe_noise_seed=0)
    masks = next(m for m in heard if isinstance(m, Masks)).masks.reshape(-1, vectors, rows).astype(float)
    noised = next(m for m in heard if isinstance(m, NoisedVectors)).vectors.reshape(-1, 2, rows).astype(float)
    label = tables["p0"].label
    gradient = label.mean() - label
    assert np.abs(noised[0, 0] - gradient).mean() > 50  # the noise is large: to an outsider nothing shows

    def projector(candidate):
        basis, _ = np.linalg.qr(masks[candidate].T)
        return np.eye(rows) - basis @ basis.T

    one = projector(0) @ noised[0, 0]
    assert ((one < 0) == (label == 1)).mean() > 0.98
    both = [projector(c) for c in (0, 1)]
    stacked = np.linalg.solve(both[0] + both[1], both[0] @ noised[0, 0] + both[1] @ noised[1, 0])
    # Exact up to float32: the noise is hundreds of times larger than what it hides.
    assert np.abs(stacked - gradient).max() < 0.02


# --- calibration and the law --------------------------------------------------------------------------------------


def test_calibration_tells_parameters_and_the_expected_error():
    request = CalibrationRequest(
        rows=24_000,
        features=7,
        bins=32,
        trees=60,
        depth=6,
        epsilon_active=4.0,
        delta_active=1e-3,
        epsilon_passive=1.0,
        options={"budget": "release"},
    )
    result = SPEC.calibrate(request)
    assert result["W"] == 1
    assert result["C"] == 1.0
    assert 0 < result["sigma1"] < result["sigma2"]
    errors = result["probability_that_the_score_is_off_by_this_share"]
    # Theorem 2 asks for so much that scores are noise: it outweighs the largest sum there can be.
    assert result["kappa"] > result["largest_sum_of_gradients"]
    assert errors["0.1"] > 0.9
    with pytest.raises(InvalidParameter, match="W ln 2"):
        SPEC.calibrate(dataclasses.replace(request, epsilon_passive=0.6))
    by_hand = SPEC.calibrate(dataclasses.replace(request, options={"sigma1": 1.0, "sigma2": 0.1}))
    assert (by_hand["sigma1"], by_hand["sigma2"]) == pytest.approx((1.0, 0.1))
    assert by_hand["probability_that_the_score_is_off_by_this_share"]["0.5"] < 1e-6


def test_the_papers_setting_is_one_vector_and_the_printed_ratio():
    config = config_of(**{key: PAPER_SETTING[key] for key in ("n_estimators", "max_depth")}).to_dict()
    config = TrainingConfig.from_dict(config | {"options": dict(PAPER_SETTING["options"])})
    validate(ResolvedJob(SPEC, config))
    noise = Noise.of(config, 32_651, 32)
    assert noise.vectors == 1
    assert noise.ratio == pytest.approx(0.033, rel=0.03)
    assert noise.mu == pytest.approx(2 * math.e / (math.e + 1))
    assert MaskedOptions.from_dict(config.options).delta_ap == 1e-3


def test_keys_of_jobs_differ():
    assert JobRandomness().for_request("masks", 0, 0, b"").bytes(32) != JobRandomness().for_request(
        "masks", 0, 0, b""
    ).bytes(32)
