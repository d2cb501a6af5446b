"""One tree's encrypted exchange, recorded from a real run, and the lattice kernel alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from veilboost._native import LatticePublic, LatticeSecret
from veilboost.config import TrainingConfig
from veilboost.crypto.lattice.keys import (
    FAMILIES,
    KEY_BYTES,
    SEED_BYTES,
    Blocks,
    EncryptedSums,
    PublicKey,
    SecretKey,
    sizes_for,
)
from veilboost.data import PartyTable
from veilboost.party.simulation import simulate_training


@dataclass
class Exchange:
    """What a tree asks of one passive party: gradients (rows, 2), its bins (rows, features), and the nodes' rows."""

    pairs: np.ndarray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int32))
    bins: np.ndarray = field(default_factory=lambda: np.empty((0, 0), dtype=np.uint8))
    levels: list[list[np.ndarray]] = field(default_factory=list)

    def save(self, path: Path) -> None:
        stored: dict[str, Any] = {
            "pairs": self.pairs,
            "bins": self.bins,
            "levels": len(self.levels),
        }
        for level, nodes in enumerate(self.levels):
            stored[f"rows{level}"] = np.concatenate(nodes)
            stored[f"counts{level}"] = np.array([len(rows) for rows in nodes])
        np.savez(path, **stored)


def recorded_exchange(tables: Mapping[str, PartyTable], active: str, config: TrainingConfig) -> Exchange:
    """The exchange of the last of three trees, with two parties and one tree a round; every level is encrypted in runs,
    which name the rows of its nodes."""
    found = Exchange()
    with _watched(found):
        simulate_training(tables, active, "lattice", replace(config, n_estimators=3, options={"layout": "runs"}))
    found.levels = found.levels[-config.max_depth :]
    return found


@contextmanager
def _watched(found: Exchange) -> Iterator[None]:
    encrypt, add = SecretKey.encrypt_with, PublicKey.sum

    def watched_encrypt(self: SecretKey, seed: bytes, noise: bytes, values: np.ndarray, *rest: Any) -> Any:
        if values.shape[1] >= len(found.pairs):
            found.pairs = values[0].copy()
        return encrypt(self, seed, noise, values, *rest)

    def watched_sum(self: PublicKey, ciphertext: Any, blocks: Blocks, bins: Any, *rest: Any) -> EncryptedSums:
        found.bins = np.asarray(bins[0])
        spans = zip(blocks.begin.tolist(), blocks.end.tolist(), strict=True)
        found.levels.append([blocks.rows[begin:end].copy() for begin, end in spans])
        return add(self, ciphertext, blocks, bins, *rest)

    SecretKey.encrypt_with, PublicKey.sum = watched_encrypt, watched_sum
    try:
        yield
    finally:
        SecretKey.encrypt_with, PublicKey.sum = encrypt, add


def kernel(pairs: np.ndarray, bins: np.ndarray, width: int, run: int, engine: str, repeats: int) -> dict[str, float]:
    """Least CPU milliseconds of each step of one node's exchange on one thread; bins are (features, rows)."""
    secret_seed, public_seed, seed, noise = (os.urandom(SEED_BYTES) for _ in range(4))
    secret = LatticeSecret(FAMILIES, secret_seed, engine)
    key = np.empty(KEY_BYTES, dtype=np.uint8)
    secret.public_key(public_seed, key)
    public = LatticePublic(FAMILIES, public_seed, key, engine)
    rows, features = len(pairs), len(bins)
    values, by_row = np.ascontiguousarray(pairs[None], dtype=np.int32), np.ascontiguousarray(bins.T)
    zero, runs = np.zeros(1, dtype=np.int32), np.array([run], dtype=np.int32)
    blocks = Blocks(np.arange(rows, dtype=np.int32), np.array([0]), np.array([rows]), runs)
    span = (blocks.rows, blocks.begin, blocks.end, blocks.run)
    slots, sizes = features * width, sizes_for(rows, features * width, features)
    starts, widths = np.arange(features, dtype=np.int32) * width, np.full(features, width, dtype=np.int32)
    ciphertext = np.empty(blocks.ciphertext_bytes(), dtype=np.uint8)
    masks = np.empty(blocks.mask_bytes(slots), dtype=np.uint8)
    encrypted = np.empty((1, FAMILIES, slots), dtype=np.uint64)
    sums = np.empty((1, slots, FAMILIES), dtype=np.int64)
    scales = sizes.log_flood, sizes.log_delta, np.empty((0, FAMILIES, 0), dtype=np.int64)
    steps: dict[str, Callable[[], Any]] = {
        "encrypt": lambda: secret.encrypt(values, zero, *span, sizes.log_delta, seed, noise, ciphertext, 1),
        "sum": lambda: public.sum(
            ciphertext, seed, [by_row], zero, *span, starts, widths, *scales, noise, encrypted, masks, 1
        ),
        "decrypt": lambda: secret.decrypt(encrypted, masks, runs, sizes.log_delta, sums, 1),
    }
    least = dict.fromkeys(steps, float("inf"))
    for _ in range(repeats):
        for name, step in steps.items():
            began = time.process_time()
            step()
            least[name] = min(least[name], (time.process_time() - began) * 1e3)
    counted = [[np.bincount(feature, pairs[:, kind], width) for kind in range(2)] for feature in bins]
    if not np.array_equal(sums[0], np.array(counted).transpose(0, 2, 1).reshape(-1, 2)):
        raise RuntimeError("the kernel's sums are not exact")
    return {**least, "all": sum(least.values())}
