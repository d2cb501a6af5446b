"""The attacks that the statements of `smm1` and `smm2` name, on what the attacker really received."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, split_among, train
from veilboost.boost.columns import ColumnBlock
from veilboost.config import TrainingConfig
from veilboost.privacy.statement import Status
from veilboost.protocols.registry import protocol_named
from veilboost.types import Role
from veilboost.wire.channel import MemoryChannel
from veilboost.wire.message import Message

pytestmark = pytest.mark.fast


def recorded(monkeypatch: pytest.MonkeyPatch, rows: int, protocol: str, features: int = 2, **parameters):
    """Messages of one tree, in order, and the tables behind them."""
    messages: list[Message] = []

    class Listening(MemoryChannel):
        def _carry(self, message, sender, receiver):
            messages.append(message)
            return super()._carry(message, sender, receiver)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    columns = make_columns(11, rows, numeric=features)
    tables = split_among(columns, make_labels(11, columns), 2)
    config = TrainingConfig.from_dict({"objective": "binary", "n_estimators": 1, "max_depth": 2} | parameters)
    # Whether an attack succeeds has no computed probability: the masks are the same in every run.
    train(tables, config, protocol, unsafe_noise_seed=0)
    return messages, tables, config


def first(messages: list[Message], kind: str) -> Message:
    return next(message for message in messages if message.type_name() == kind)


def used(kernel: np.ndarray, answer: np.ndarray) -> np.ndarray:
    """The vectors of Z among those that were sent: the answer is orthogonal to them."""
    return kernel[:, np.abs(kernel.T @ answer).max(axis=1) < 1e-6]


def between(answer: np.ndarray, mask: np.ndarray, low: float, high: float, seed: int) -> np.ndarray:
    """A point of answer + span(mask) with all entries in [low, high]: unique where the mask is small enough."""
    direction = np.random.default_rng(seed).normal(size=len(answer))
    found = linprog(
        direction @ mask,
        A_ub=np.vstack((mask, -mask)),
        b_ub=np.concatenate((high - answer, answer - low)) + 1e-7 * (high - low),
        bounds=(None, None),
        method="highs",
    )
    assert found.success
    return answer + mask @ found.x


def smm1_root(messages: list[Message], rows: int) -> tuple[np.ndarray, np.ndarray]:
    kernel = first(messages, "Smm1Request").kernel.reshape(rows, -1)
    return kernel, first(messages, "Smm1Response").masked.reshape(-1, rows)


def true_columns(tables, config: TrainingConfig) -> np.ndarray:
    table = tables["p1"]
    block = ColumnBlock.build(table.columns, table.rows, config)
    assert block.shared is not None
    return block.shared.bins[0][:, 0]


def test_smm1_with_few_vectors_is_read_by_rounding(monkeypatch):
    messages, tables, config = recorded(monkeypatch, 600, "smm1", max_bin=8)
    _, answer = smm1_root(messages, 600)
    bins = true_columns(tables, config)
    assert len(answer) == 7
    assert np.array_equal(answer > 0.5, bins == np.arange(7)[:, None])
    assert protocol_named("smm1").statement.worst_for(Role.PASSIVE) is Status.BROKEN


@pytest.mark.parametrize("rotate", [False, True])
def test_smm1_below_half_of_the_rows_falls_to_linear_programming(monkeypatch, rotate):
    """A secret rotation only means that all vectors must be taken for the mask, and these are below half too."""
    options = {"r": 200, "share": 0.4, "rotate": rotate}
    messages, tables, config = recorded(monkeypatch, 200, "smm1", max_bin=4, options=options)
    kernel, answer = smm1_root(messages, 200)
    assert kernel.shape[1] == 80
    bins = true_columns(tables, config)
    for at, column in enumerate(answer):
        mask = kernel if rotate else used(kernel, answer.T)
        found = between(column, mask, 0.0, 1.0, at)
        assert np.array_equal(found > 0.5, bins == at)


def test_smm1_labels_follow_from_the_rows_of_nodes(monkeypatch):
    """A passive party that knows twenty labels lets them vote, each for the rows that share nodes with it."""
    rows, known = 400, 20
    together = np.zeros((rows, rows))

    class Watching(MemoryChannel):
        def send(self, message):
            pending = super().send(message)
            if message.type_name() == "Smm1Request":
                fit = self._handler.__self__._round.fit  # what the receiver keeps of this request
                for begin, end in zip(fit.begin.tolist(), fit.end.tolist(), strict=True):
                    together[np.ix_(fit.rows[begin:end], fit.rows[begin:end])] += message.depth
            return pending

    monkeypatch.setattr(simulation_module, "MemoryChannel", Watching)
    columns = make_columns(8, rows, numeric=4)
    label = (columns[0].values + columns[1].values > 0).astype(np.float64)
    config = TrainingConfig(objective="binary", n_estimators=5, max_depth=5, max_bin=16)
    train(split_among(columns, label, 2), config, "smm1", unsafe_noise_seed=0)
    guess = together[known:, :known] @ (2 * label[:known] - 1) > 0
    assert np.mean(guess == label[known:]) > 0.8  # guessing gives one half
    assert protocol_named("smm1").statement.worst_for(Role.ACTIVE, "labels") is Status.BROKEN


def smm2_first(messages: list[Message], rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Kernel vectors and masked (g, h) of each block of the root."""
    kernels, masked = first(messages, "Smm2Kernels"), first(messages, "Smm2Masked").masked
    blocks = len(kernels.node)
    return list(zip(kernels.kernel.reshape(blocks, rows, -1), masked.reshape(blocks, rows, 2), strict=True))


def test_smm2_with_few_vectors_shows_labels_in_the_signs(monkeypatch):
    messages, tables, _ = recorded(monkeypatch, 600, "smm2", max_bin=8)
    ((_, masked),) = smm2_first(messages, 600)
    assert np.array_equal(masked[:, 0] < 0, tables["p0"].label > 0)
    assert protocol_named("smm2").statement.worst_for(Role.ACTIVE, "labels") is Status.BROKEN


def test_smm2_below_half_of_the_rows_falls_to_linear_programming(monkeypatch):
    messages, tables, config = recorded(
        monkeypatch, 200, "smm2", max_bin=4, options={"r": 200, "share": 0.4, "l1": 4, "l2": 4}
    )
    (kernel, masked), *_ = smm2_first(messages, 200)
    scale = 2.0**config.gradient_bits  # g is p - 1 or p times this, with p between 0 and 1
    positives = tables["p0"].label.mean()
    found = between(masked[:, 0] / scale, used(kernel, masked), positives - 1, positives, 0)
    assert np.array_equal(found < 0, tables["p0"].label > 0)


def test_smm2_answers_of_several_blocks_give_every_gradient(monkeypatch):
    """No label is assumed to have two values: any loss, any tree."""
    options = {"r": 200, "share": 0.4, "l1": 4, "l2": 4}
    messages, _, _ = recorded(monkeypatch, 200, "smm2", features=8, max_bin=32, options=options)
    blocks = smm2_first(messages, 200)
    assert len(blocks) > 1
    projectors, answers = [], []
    for kernel, masked in blocks:
        mask = used(kernel, masked)
        projectors.append(np.eye(200) - mask @ mask.T)
        answers.append(masked)
    found, *_ = np.linalg.lstsq(np.vstack(projectors), np.vstack(answers), rcond=None)
    assert np.abs(found - np.rint(found)).max() < 1e-3  # on the grid, so these are the gradients themselves
    assert np.array_equal(np.rint(found).sum(axis=0), first(messages, "Smm2Masked").totals[0])


def test_a_bound_on_the_revealed_rank_stops_these_attacks_and_proves_nothing(monkeypatch):
    options = {"r": 200, "share": 0.95, "revealed": 0.2}
    messages, tables, config = recorded(monkeypatch, 200, "smm1", max_bin=4, max_depth=2, options=options)
    _, answer = smm1_root(messages, 200)
    bins = true_columns(tables, dataclasses.replace(config, options={}))
    right = np.mean((answer > 0.5) == (bins == np.arange(3)[:, None]))
    assert right < 0.8  # three quarters of the bits are 0
