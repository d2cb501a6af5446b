"""The law of masked's noisy sums, drawn directly: equal to that of the protocol, and to `plain` without noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from papers.law import LAW, noisy_sums
from support import make_columns, make_labels, sha, split_among, train
from veilboost import _native
from veilboost.config import TrainingConfig
from veilboost.protocols.masked.parameters import Noise
from veilboost.protocols.registry import all_protocols

pytestmark = pytest.mark.fast


def config_of(options: dict | None = None, **parameters) -> TrainingConfig:
    defaults = {"objective": "binary", "n_estimators": 2, "max_depth": 3, "max_bin": 8, "categories": "ordinal"}
    return TrainingConfig.from_dict(defaults | parameters | {"options": options or {}})


@pytest.mark.parametrize("vectors", [1, 2, 3])
def test_the_law_of_noisy_sums_is_that_of_the_protocol(vectors):
    """Mask, noise and sum by the kernels against direct draws: variances, correlation and its spread."""
    draws, rows, active = 6000, 40, 15
    member = np.zeros(rows, dtype=np.uint8)
    member[::2][:active] = 1
    noise = Noise.of(config_of({"sigma1": 2.0, "sigma2": 0.5, "noise_vectors": vectors}), rows, 1)
    masks = np.empty((draws, vectors, rows), dtype=np.float32)
    column, left = np.zeros(draws, dtype=np.int32), np.tile(np.array([0, 1], dtype=np.uint8), (draws, 1))
    bins, order = np.ascontiguousarray(member[:, None]), np.arange(rows, dtype=np.int32)
    key = np.arange(32, dtype=np.uint8)
    _native.make_masks_u8(bins, order, column, left, noise.factors(np.full(draws, active), rows), key, 0, masks, 1)
    rng = np.random.default_rng(0)
    by = rng.normal(size=(draws, 2, vectors))
    by /= np.linalg.norm(by, axis=2, keepdims=True)
    noised, grams, full = (
        np.empty((draws, 2, rows), np.float32),
        np.empty((draws, vectors, vectors)),
        np.empty((draws, 2)),
    )
    _native.add_masks(masks, np.zeros((2, rows)), by, noised, grams, 1)
    _native.left_sums_u8(bins, order, column, left, noised, full, 1)
    kappa = math.sqrt(active) * 0.5
    fast = noisy_sums(np.zeros((draws, 2)), np.full(draws, kappa), vectors, bytes(range(1, 33)))
    for sums in (full, fast):
        assert sums.var(axis=0) == pytest.approx([kappa**2] * 2, rel=5 * math.sqrt(2 / draws))
        assert abs((sums[:, 0] * sums[:, 1]).mean()) < 5 * kappa**2 * math.sqrt(3 / draws)
    for function in (lambda s: s[:, 0] * s[:, 1], lambda s: s[:, 0] ** 2 / (5 + s[:, 1] ** 2), lambda s: s.max(axis=1)):
        one, other = np.sort(function(full)), np.sort(function(fast))
        # Two-sample Kolmogorov-Smirnov: passed with probability 1 - 2 exp(-2 * 2.3^2) if the laws are equal.
        grid = np.concatenate((one, other))
        distance = np.abs(np.searchsorted(one, grid) - np.searchsorted(other, grid)).max() / draws
        assert distance < 2.3 * math.sqrt(2 / draws)


def test_the_law_trains_and_is_plain_without_noise(monkeypatch):
    assert "masked-law" not in all_protocols()
    monkeypatch.setitem(all_protocols(), "masked-law", LAW)
    made = make_columns(4, rows=200, numeric=4, missing=0.1, categorical=2)
    tables = split_among(made, make_labels(4, made, "binary"), 2)
    quiet = {"sigma1": 0.0, "sigma2": 0.0}
    to_single_rows = {"max_depth": 8, "max_bin": 64, "min_child_weight": 0.0}  # nodes that a request ahead leaves out
    for parameters in ({}, {"categories": "onehot"}, {"order": "first"}, {"proposal": "local"}, to_single_rows):
        assert sha(train(tables, config_of(quiet, **parameters), "masked-law")) == sha(
            train(tables, config_of(**parameters))
        )
    train(tables, config_of({"eps_ap": 4.0}), "masked-law")
