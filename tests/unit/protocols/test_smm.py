"""FedXGBoost-SMM, both versions: the model of `plain`, refusals, options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.rows import RowGroups
from veilboost.config import TrainingConfig
from veilboost.errors import (
    GradientRange,
    InvalidParameter,
    MalformedMessage,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.types import Column
from veilboost.wire.channel import MemoryChannel
from veilboost.wire.message import Message

pytestmark = pytest.mark.fast
BOTH = pytest.mark.parametrize("protocol", ["smm1", "smm2"])
CONFIG = TrainingConfig(objective="binary", n_estimators=2, max_depth=3, max_bin=8)


def tables(rows: int = 200, seed: int = 3, objective: str = "binary", **columns):
    made = make_columns(seed, rows, **columns)
    return split_among(made, make_labels(seed, made, objective), 2)


def meddle(monkeypatch: pytest.MonkeyPatch, change: Callable[[Message], Message]) -> None:
    """Let a change of messages happen on the way, in both directions."""

    class Meddling(MemoryChannel):
        def _carry(self, message, sender, receiver):
            return super()._carry(change(message), sender, receiver)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Meddling)


# --- the paper's example ----------------------------------------------------------------------------------


def test_example_1_the_splitting_matrix():
    values = np.array([1, 11, 9, 4, 2, 12, 17, 13, 5], dtype=np.float32)
    block = ColumnBlock.build([Column("f", values)], len(values), TrainingConfig(max_bin=64))
    everyone = RowGroups.root(np.arange(len(values), dtype=np.int32), 1)
    bins = block.level_bins(everyone, RowGroups.root(np.arange(0, dtype=np.int32), 1))
    printed = {
        11: [1, 1, 1, 1, 1, 0, 0, 0, 1],
        6: [1, 0, 0, 1, 1, 0, 0, 0, 1],
        12: [1, 1, 1, 1, 1, 1, 0, 0, 1],
    }
    for candidate, column in printed.items():
        last = int(bins.bins[0][values <= candidate, 0].max())  # the bin of the largest value that goes left
        splits = block.splits_of(np.array([2 * last], dtype=np.int32))
        np.testing.assert_array_equal(block.route(bins, everyone, splits), column)


# --- the model of plain -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("smm1", {"r": 1}),
        ("smm1", {"r": 4, "share": 1.0}),
        ("smm1", {"r": 200, "share": 0.45, "rotate": True}),
        ("smm1", {"r": 200, "share": 0.95, "revealed": 1.0}),
        ("smm2", {"r": 1}),
        ("smm2", {"r": 4, "share": 1.0}),
        ("smm2", {"r": 200, "share": 0.45, "rotate": True}),
        ("smm2", {"r": 200, "share": 0.2, "revealed": 20.0}),  # every block counts
        ("smm2", {"l1": 0, "l2": 0}),
        ("smm2", {"l1": 100, "l2": 100, "decoys": "nested"}),
    ],
    ids=str,
)
def test_options_change_the_masks_and_not_the_model(protocol, options):
    scene = tables(categorical=1, missing=0.1)
    config = dataclasses.replace(CONFIG, options=options)
    assert sha(train(scene, config, protocol)) == sha(train(scene, CONFIG))


@BOTH
@pytest.mark.parametrize("objective", ["regression", "poisson"])
def test_nodes_of_two_and_three_rows(protocol, objective):
    """Trees that end in single rows: what cannot be masked jointly is masked apart, or derived."""
    config = TrainingConfig(
        objective=objective, n_estimators=2, max_depth=6, max_bin=64, min_child_weight=0.0, reg_lambda=0.01
    )
    scene = tables(40, objective=objective, distinct=30)
    assert sha(train(scene, config, protocol)) == sha(train(scene, config))


def test_smm2_never_asks_about_a_single_row(monkeypatch):
    import veilboost.protocols.smm2.passive as side

    rows: list[int] = []
    original = side.blocks_of_node

    def counted(node, bins, most):
        rows.append(len(bins))
        return original(node, bins, most)

    monkeypatch.setattr(side, "blocks_of_node", counted)
    config = TrainingConfig(objective="regression", n_estimators=2, max_depth=6, min_child_weight=0.0)
    train(tables(40, objective="regression"), config, "smm2")
    assert min(rows) == 2


@BOTH
def test_weights_and_one_rare_label(protocol):
    columns = make_columns(5, 300, numeric=6)
    label = np.zeros(300)
    label[[7, 80]] = 1.0  # most nodes of the first tree hold one positive row, whose gradient stands apart
    weight = np.random.default_rng(0).integers(1, 50, size=300) / 7
    scene = split_among(columns, label, 3, weight)
    config = dataclasses.replace(CONFIG, max_depth=5, min_child_weight=0.01)
    assert sha(train(scene, config, protocol)) == sha(train(scene, config))


def test_smm1_says_where_a_row_stands_apart(monkeypatch):
    seen: list[int] = []

    def listen(message: Message) -> Message:
        if message.type_name() == "Smm1Request":
            seen.extend(message.halves.tolist())
        return message

    meddle(monkeypatch, listen)
    columns = make_columns(5, 300, numeric=6)
    label = np.zeros(300)
    label[7] = 1.0
    train(split_among(columns, label, 2), dataclasses.replace(CONFIG, min_child_weight=0.0), "smm1")
    assert seen[0] == 1  # one positive row among 300


def test_smm2_never_tells_which_split_is_best(monkeypatch):
    asked: list[int] = []

    def listen(message: Message) -> Message:
        if message.type_name() == "SplitRequest":
            asked.extend(message.handles.tolist())
        return message

    meddle(monkeypatch, listen)
    train(tables(), CONFIG, "smm2")
    assert asked
    assert set(asked) == {0}


def test_siblings_are_derived_by_smm1_so_half_of_the_rows_are_masked(monkeypatch):
    rows: list[int] = []

    def listen(message: Message) -> Message:
        if message.type_name() == "Smm1Request":
            rows.append(len(message.kernel))
        return message

    meddle(monkeypatch, listen)
    train(tables(1000), dataclasses.replace(CONFIG, n_estimators=1, options={"r": 1}), "smm1")
    assert rows[0] == 1000
    assert all(0 < later <= 500 for later in rows[1:])


# --- refusals: kernel vectors -----------------------------------------------------------------------------


def not_orthonormal(kernel: np.ndarray) -> np.ndarray:
    return kernel * 1.001


def not_finite(kernel: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(kernel)) == 5, np.nan, kernel)


def wrong_shape(kernel: np.ndarray) -> np.ndarray:
    return kernel[:-1]


def a_row_left_bare(kernel: np.ndarray, rows: int = 200) -> np.ndarray:
    """One row of the root's vectors is 0, and they are orthonormal again."""
    vectors = len(kernel) // rows
    matrix = kernel.reshape(rows, vectors).copy()
    matrix[3] = 0.0
    return np.linalg.qr(matrix)[0].ravel()


def a_row_by_itself(kernel: np.ndarray, rows: int = 200) -> np.ndarray:
    """A row of ZZ' that has nothing but its diagonal."""
    vectors = len(kernel) // rows
    matrix = kernel.reshape(rows, vectors).copy()
    matrix[3] = 0.0
    matrix[:, 0] = 0.0
    matrix[3, 0] = 1.0
    return np.linalg.qr(matrix)[0].ravel()


@BOTH
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (not_orthonormal, "not orthonormal"),
        (not_finite, "not finite"),
        (wrong_shape, "another shape"),
        (a_row_left_bare, "unmasked"),
        (a_row_by_itself, "unmasked"),
    ],
)
def test_kernel_vectors_that_do_not_mask_are_refused(protocol, damage, why, monkeypatch):
    def change(message: Message) -> Message:
        if message.type_name() in ("Smm1Request", "Smm2Kernels"):
            return dataclasses.replace(message, kernel=damage(message.kernel))
        return message

    config = dataclasses.replace(CONFIG, max_depth=1, options={"r": 8})
    scene = tables()
    train(scene, config, protocol)
    meddle(monkeypatch, change)
    with pytest.raises(MalformedMessage, match=why):
        train(scene, config, protocol)


@BOTH
def test_answers_that_are_not_sums_are_refused(protocol, monkeypatch):
    def change(message: Message) -> Message:
        if message.type_name() in ("Smm1Response", "Smm2Masked"):
            return dataclasses.replace(message, masked=message.masked + 0.013)
        return message

    meddle(monkeypatch, change)
    with pytest.raises(MalformedMessage, match="grid"):
        train(tables(), CONFIG, protocol)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("starts", lambda a: a[:-1]),
        ("starts", lambda a: a + 1),
        ("slots", lambda a: a[::-1]),
        ("slots", lambda a: a + 1000),
        ("slots", lambda a: a - 1000),
        ("masked", lambda a: a[:-1]),
        ("masked", lambda a: a * np.nan),
    ],
)
def test_smm1_answers_of_another_form_are_refused(field, change, monkeypatch):
    def damage(message: Message) -> Message:
        if message.type_name() == "Smm1Response":
            return dataclasses.replace(message, **{field: np.ascontiguousarray(change(getattr(message, field)))})
        return message

    meddle(monkeypatch, damage)
    with pytest.raises(MalformedMessage):
        train(tables(), CONFIG, "smm1")


@pytest.mark.parametrize(
    ("kind", "field", "change"),
    [
        ("Smm2Kernels", "node", lambda a: a + 1),
        ("Smm2Kernels", "node", lambda a: a[:0]),
        ("Smm2Gains", "gain", lambda a: a[:-1]),
        ("Smm2Gains", "gain", lambda a: a * np.nan),
        ("Smm2Round", "g_exponent", lambda e: 5000),
        ("Smm2Masked", "depth", lambda d: d + 1),
    ],
)
def test_smm2_messages_of_another_form_are_refused(kind, field, change, monkeypatch):
    def damage(message: Message) -> Message:
        if message.type_name() == kind:
            return dataclasses.replace(message, **{field: change(getattr(message, field))})
        return message

    meddle(monkeypatch, damage)
    with pytest.raises((MalformedMessage, UnexpectedMessage)):
        train(tables(), CONFIG, "smm2")


# --- refusals: parameters ---------------------------------------------------------------------------------


@BOTH
def test_a_bound_that_cannot_be_kept_is_refused_before_the_job(protocol):
    spec = protocol_named(protocol)
    with pytest.raises(UnsupportedCombination, match=r"revealed=0\.5"):
        validate(ResolvedJob(spec, dataclasses.replace(CONFIG, options={"revealed": 0.5})))
    validate(ResolvedJob(spec, dataclasses.replace(CONFIG, options={"revealed": 0.5, "share": 0.9, "r": 1000})))
    with pytest.raises(InvalidParameter, match="167 kernel vectors for 200 rows"):
        train(tables(), dataclasses.replace(CONFIG, options={"revealed": 0.5, "share": 0.9, "r": 100}), protocol)
    for wrong in ({"r": 0}, {"share": 0.0}, {"share": 1.5}, {"kernel": 3}, {"rotate": 1}):
        with pytest.raises(InvalidParameter):
            validate(ResolvedJob(spec, dataclasses.replace(CONFIG, options=wrong)))


@pytest.mark.parametrize("share", [0.75, 0.9, 1.0])
@pytest.mark.parametrize("added", [{}, {"l1": 10_000, "l2": 10_000}, {"l1": 0, "l2": 0}])
def test_many_kernel_vectors_leave_room_for_splits_and_decoys(share, added):
    config = dataclasses.replace(CONFIG, options={"share": share, "r": 1_000_000} | added)
    assert sha(train(tables(), config, "smm2")) == sha(train(tables(), dataclasses.replace(CONFIG)))


def test_a_bound_is_kept_over_blocks_and_levels():
    options = {"revealed": 0.3, "share": 0.95, "r": 1000, "l1": 0, "l2": 0}
    with pytest.raises(UnsupportedCombination, match="would reveal more"):
        train(tables(), dataclasses.replace(CONFIG, options=options), "smm2")


@BOTH
def test_a_scale_that_float64_cannot_hold_is_refused_before_anything_leaves(protocol):
    config = dataclasses.replace(CONFIG, gradient_bits=30, max_depth=1, n_estimators=1)
    scene = tables(200, numeric=2)
    assert sha(train(scene, config, protocol)) == sha(train(scene, config))
    with pytest.raises(GradientRange, match="20000 rows"):
        train(tables(20_000, numeric=2), config, protocol)


# --- requests again ---------------------------------------------------------------------------------------


@BOTH
def test_the_same_job_key_draws_the_same_masks(protocol, monkeypatch):
    """So that a level that is asked for again does not give a second mask of the same data."""
    seen: list[bytes] = []

    def listen(message: Message) -> Message:
        for name in ("kernel", "masked"):
            if hasattr(message, name):
                seen.append(getattr(message, name).tobytes())
        return message

    meddle(monkeypatch, listen)
    train(tables(), CONFIG, protocol, unsafe_noise_seed=0)
    first = list(seen)
    seen.clear()
    train(tables(), CONFIG, protocol, unsafe_noise_seed=0)
    assert seen == first
    seen.clear()
    train(tables(), CONFIG, protocol)
    assert seen[0] != first[0]  # hundreds of bytes agree by chance with probability below 2^-800
