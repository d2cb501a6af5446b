"""How `ldp` scores noisy sums of gradients alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veilboost.boost.bins import BinLayout
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.fixedpoint import Scale
from veilboost.protocols.ldp.parameters import LdpOptions, first_order
from veilboost.protocols.vertical.perturb import Perturbation, Ranges
from veilboost.types import ColumnKind

pytestmark = pytest.mark.fast


def test_the_first_order_score_is_the_product_of_both_sides():
    kinds = [ColumnKind.NUMERIC, ColumnKind.ONEHOT, ColumnKind.NUMERIC]
    layout = BinLayout.of([4, 3, 2], [True, False, True], kinds)
    rng = np.random.default_rng(3)
    bins = np.stack([rng.integers(width, size=60) for width in layout.widths], axis=1)
    g = rng.integers(-1000, 1000, size=60)
    sums = np.zeros((1, layout.slots, 2), dtype=np.int64)
    for column in range(3):
        np.add.at(sums[0, :, 0], layout.offsets[column] + bins[:, column], g)
        np.add.at(sums[0, :, 1], layout.offsets[column] + bins[:, column], 16)
    config = TrainingConfig(reg_lambda=2.0, min_child_weight=8.0)
    totals = np.array([[g.sum(), 16 * 60]])
    found = first_order(sums, layout, totals, Scale(10, 4), config)[0]
    for column in range(3):
        values = int(layout.widths[column] - layout.missing[column])
        for place in range(int(layout.widths[column])):
            for direction in (0, 1):
                handle = 2 * (int(layout.offsets[column]) + place) + direction
                own = bins[:, column]
                left = own == place if kinds[column] is ColumnKind.ONEHOT else own <= place
                left = np.where(own == values, direction == 1, left)
                there = place < values and (direction == 0 or layout.missing[column])
                if not there or min(left.sum(), (~left).sum()) < 8:
                    assert found[handle] == -np.inf
                else:
                    product = -(g[left].sum() / 1024) * (g[~left].sum() / 1024) / 2.0
                    assert found[handle] == pytest.approx(product)


def test_independent_right_sums_are_unbiased_and_the_published_ones_are_not():
    """FedXGBoost appendix A against Algorithm 6, line 8: the bias is the variance of the left sum over lambda."""
    layout = BinLayout.of([2], [False], [ColumnKind.NUMERIC])
    config = TrainingConfig(reg_lambda=2.0)
    options = LdpOptions(mechanism="duchi", epsilon=1.0, score="first")
    perturbation = Perturbation(options, Ranges(1.0, None), 20)
    left, right = np.full(30, 0.5), np.full(10, -0.4)
    true = np.concatenate((left, right))
    clean = np.rint(true * 2.0 ** perturbation.scale().g_exponent).astype(np.int32)[None, :, None]
    unit, rng = perturbation.scale().g_unit, Csprng(b"bias")
    unbiased, published = [], []
    everybody = np.ones((1, 40), dtype=np.bool_)
    for _ in range(4000):
        noisy = perturbation.noisy(clean, everybody, rng)[0, :, 0].astype(np.int64)
        sums = np.array([[[noisy[:30].sum(), 30], [noisy[30:].sum(), 10]]])
        for totals, into in ((noisy.sum(), unbiased), (clean.sum(), published)):
            into.append(first_order(sums, layout, np.array([[totals, 40]]), Scale(0, 0), config)[0, 0] * unit**2)
    variance = 30 * (1 / math.tanh(0.5) ** 2 - 0.25)
    truth = -left.sum() * right.sum() / 2.0
    error = np.std(unbiased) / math.sqrt(4000)
    assert abs(np.mean(unbiased) - truth) < 5 * error
    assert abs(np.mean(published) - truth - variance / 2.0) < 5 * np.std(published) / math.sqrt(4000)
    assert variance / 2.0 > 20 * error, "the two can be told apart"
