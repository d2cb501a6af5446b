"""`elxgb`: one job key and the same content, but other parameters of the noise, never give noise that cancels out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import veilboost.protocols.elxgb.active as active_module
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.grower import Round
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.fixedpoint import Scale
from veilboost.protocols.elxgb.active import DpnsCipher, NoisyLeaves
from veilboost.protocols.vertical.roles import ActiveContext
from veilboost.wire.channel import Peers

pytestmark = pytest.mark.fast
ROWS, BITS = 4000, 20
SCALE = Scale(BITS, BITS)
# Noise of two independent draws is correlated by 1 / sqrt(4000) = 0.016 at random: by 0.1 with a chance below 1e-9.
UNRELATED = 0.1
BASE = {"epsilon": 1.0, "delta": 1e-4}
OTHERS = [{"epsilon": 1.1}, {"delta": 1e-5}, {"noise_multiplier": 5.0}, {"clip": 0.45}, {"clip_hessian": 0.24}]


def context(options):
    config = TrainingConfig.from_dict(
        {
            "objective": "binary",
            "categories": "onehot",
            "gradient_bits": BITS,
            "min_child_weight": 0.0,
            "base_score": 0.5,
            "options": {"backend": "lattice", "private_leaves": True} | BASE | options,
        }
    )
    block = ColumnBlock.build((), ROWS, config)
    return ActiveContext("bank", ("bank",), block, ROWS, Peers({}), config, 1, 1, JobRandomness(bytes(32)))


def start(number):
    """Gradients of a quarter in size, by label: within every clipping of these tests."""
    gradients = np.zeros((1, ROWS, 2), dtype=np.int32)
    gradients[0, :, 0] = np.where(np.arange(ROWS) % 2, 1, -1) << (BITS - 2)
    gradients[0, :, 1] = 1 << (BITS - 3)
    every = np.arange(ROWS, dtype=np.int32)
    return Round(number, gradients, SCALE, every, every[:0], [None])


def gradient_noise(monkeypatch, options):
    """Of gradients, in units of their spread."""
    cipher = DpnsCipher(context(options))
    shown = cipher.shown(start(1))
    noise = shown.gradients[0, :, 0] * shown.scale.g_unit - start(1).gradients[0, :, 0] * SCALE.g_unit
    return noise, cipher.context.account.events


def leaf_noise(monkeypatch, options):
    monkeypatch.setattr(active_module, "leaf_weights", lambda totals, scale, config: totals)
    leaves = NoisyLeaves(context(options))
    leaves.begin_round(start(0))
    level = SimpleNamespace(totals=np.zeros((ROWS, 2), dtype=np.int64))
    noise = leaves.weights(None, level, np.arange(ROWS), SCALE)[:, 0]
    leaves.end_round()
    return noise.astype(np.float64), leaves.context.account.events


@pytest.mark.parametrize(
    ("noise_of", "other"),
    # Leaves are not clipped: their noise has the same law whatever the clipping.
    [*((gradient_noise, other) for other in OTHERS), *((leaf_noise, other) for other in OTHERS[:3])],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value.__name__,
)
def test_noise_of_other_parameters_is_other_noise(monkeypatch, noise_of, other):
    """Otherwise two releases are two equations with one unknown: the label."""
    (first, booked), (second, also) = (noise_of(monkeypatch, options) for options in ({}, other))
    assert abs(np.corrcoef(first, second)[0, 1]) < UNRELATED
    assert booked[0].content != also[0].content  # so it is booked beside the first


@pytest.mark.parametrize("noise_of", [gradient_noise, leaf_noise])
def test_the_same_parameters_draw_the_same_noise(monkeypatch, noise_of):
    """A resumed job shows nothing new, and nothing to average."""
    (first, booked), (second, also) = (noise_of(monkeypatch, {}) for _ in range(2))
    assert np.array_equal(first, second)
    assert booked == also
