"""Noise stripping: whoever gets a model of `sealed` tries every key that follows from it, or lies in a run folder.

This is no attack from a party's view, but from a model or a folder: `strip_noise` is called by itself.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from pathlib import Path

import numpy as np

from veilboost.audit.attack import Outcome
from veilboost.crypto.csprng import KEY_BYTES, JobRandomness, unsafe_key
from veilboost.crypto.fingerprint import content_digest
from veilboost.fixedpoint import Scale, choose_scale
from veilboost.model.part import Part, Skeleton
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.protocols.sealed import parameters
from veilboost.types import Float64Array, Int64Array

MOST_GUESSES = 20_000  # of the counts of a level's leaves: some ten seconds
WINDOW = 5.5  # deviations of the noise; both leaves of a stump lie within it but for 8e-8


def strip_noise(part: Part, folder: Path | None = None) -> Outcome | None:
    """Take the noise off the leaves of the first tree: it succeeds where all counts of positives come out whole.

    Keys are those that a seed in the model gives, in the way of release 0.1.0 and in that of `unsafe_noise_seed`, and
    every file beneath `folder` that has a key's size. A key may have drawn noise by place, as in release 0.1.0, or by
    content: then counts are guessed, and right ones give the noise that is there. By chance two leaves come out whole
    with a probability below 1e-6. More than `MOST_GUESSES` are not tried. None where the model has no such leaves.
    """
    skeleton = part.skeleton
    if skeleton is None or skeleton.protocol != "sealed" or skeleton.trees_per_round != 1 or not skeleton.trees:
        return None
    seed = skeleton.config.seed
    keys = {
        "the seed, as in release 0.1.0": hashlib.sha256(f"simulation {seed} {part.party}".encode()).digest(),
        "the seed, by unsafe_key": unsafe_key(seed, part.party),
    }
    files = sorted(folder.rglob("*")) if folder is not None else []
    keys |= {each.name: each.read_bytes() for each in files if each.is_file() and each.stat().st_size == KEY_BYTES}
    leaves = _Leaves(skeleton)
    if len(leaves.rows) < 2:
        return None
    few = leaves.guesses <= MOST_GUESSES
    for name, key in keys.items():
        found = leaves.by_place(JobRandomness(key))
        if found is None and few:
            found = leaves.by_content(JobRandomness(key))
        if found is not None:
            told = ", ".join(f"{k} of {n}" for k, n in zip(found.tolist(), leaves.rows.tolist(), strict=True))
            return Outcome("leaves stripped", 1.0, 0.0, 1.0, 1.0, f"{name} gives the positives of all leaves: {told}")
    left = "" if few else f"; noise by content was not tried, there are {leaves.guesses:.0e} counts to guess"
    return Outcome("leaves stripped", 0.0, 0.0, 0.0, 0.0, f"none of {len(keys)} keys takes the noise off{left}")


class _Leaves:
    """The leaves of the first tree, where every g is 1/2 or -1/2 and every h 1/4."""

    def __init__(self, skeleton: Skeleton) -> None:
        tree, config = skeleton.trees[0], skeleton.config
        depth = np.zeros(tree.nodes, dtype=np.int64)
        for node in np.flatnonzero(tree.left >= 0):
            depth[tree.left[node] : tree.left[node] + 2] = depth[node] + 1
        leaves = np.flatnonzero(tree.left < 0)
        by_level = [np.flatnonzero(depth[leaves] == level) for level in np.unique(depth[leaves])]
        self._levels, cover = by_level, tree.cover[leaves]
        self._scale: Scale = choose_scale(
            *skeleton.loss.bounds(1.0, np.zeros(1), np.zeros(1)), 1.0, config.gradient_bits
        )
        self.rows = np.rint(4.0 * cover).astype(np.int64)
        # The sums of g with their noise, and how far a weight of single precision leaves them open.
        self._sums: Float64Array = (
            -tree.weight[leaves].astype(np.float64) / config.learning_rate * (cover + config.reg_lambda)
        )
        self._open = np.abs(self._sums) * 2.0**-23 + 4.0 * self._scale.g_unit
        noise = parameters.label_noise(parameters.options_of(config), config.n_estimators, config.max_depth)
        self._sigma, self._event = noise.leaf_sigma, repr(parameters.leaf_event(noise, 0, 2))
        centre, reach = self.rows / 2.0 - self._sums, WINDOW * self._sigma
        self._low = np.maximum(np.ceil(centre - reach), 0).astype(np.int64)
        self._high = np.minimum(np.floor(centre + reach), self.rows).astype(np.int64)

    @property
    def guesses(self) -> int:
        widths = np.maximum(self._high - self._low + 1, 1)
        return sum(math.prod(widths[level].tolist()) for level in self._levels)

    def by_place(self, key: JobRandomness) -> Int64Array | None:
        """The positives of all leaves, if noise was drawn for the round and the place of the level."""
        noise = np.empty(len(self.rows))
        for number, level in enumerate(self._levels):
            noise[level] = self._drawn(key, ("leaves", 0, number), len(level))
        exact = self.rows / 2.0 - (self._sums - noise)
        found = np.rint(exact)
        fits = (np.abs(exact - found) <= self._open) & (found >= 0) & (found <= self.rows)
        return found.astype(np.int64) if fits.all() else None

    def by_content(self, key: JobRandomness) -> Int64Array | None:
        """The positives of all leaves, if noise was drawn for the sums that it hides."""
        found, closed = np.empty(len(self.rows), dtype=np.int64), b""
        for level in self._levels:
            for guess in itertools.product(*(range(self._low[leaf], self._high[leaf] + 1) for leaf in level)):
                g, rows = self.rows[level] / 2.0 - np.array(guess), self.rows[level]
                exact = np.stack((g / self._scale.g_unit, rows / 4.0 / self._scale.h_unit), axis=1).astype(np.int64)
                digest = content_digest(key, self._event, closed, exact)
                noise = self._drawn(key, ("leaves", digest), len(level))
                if (np.abs(g + noise - self._sums[level]) <= self._open[level]).all():
                    found[level], closed = guess, digest
                    break
            else:
                return None
        return found

    def _drawn(self, key: JobRandomness, name: tuple[str | int | bytes, ...], count: int) -> Float64Array:
        unit = self._scale.g_unit
        return discrete_gaussian(key.for_request(*name), self._sigma / unit, count).astype(np.float64) * unit
