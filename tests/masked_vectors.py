"""Vectors to be summed under reusable masks, made from a seed, and the whole exchange with fixed seeds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

import masks_twin as twin
from lattices import seed_named
from veilboost.crypto.lattice.keys import DEGREE, FAMILIES
from veilboost.crypto.lattice.masks import MaskOwner, MaskSizes, add_rows, answer, make_masks, mask_sizes

SEED, KEY, SECRET, FLOOD = (seed_named(name) for name in ("polynomials", "vector", "masks", "flood"))


@dataclass(frozen=True)
class Case:
    """Values (rows, 2), bins (rows, features) and what is added to the sums."""

    values: np.ndarray
    bins: np.ndarray
    offsets: np.ndarray
    added: np.ndarray
    sizes: MaskSizes

    @property
    def slots(self) -> np.ndarray:
        return np.arange(self.offsets[-1], dtype=np.int32)

    def true_sums(self) -> np.ndarray:
        sums = np.zeros((len(self.slots), FAMILIES), dtype=np.int64)
        for feature, first in enumerate(self.offsets[:-1]):
            np.add.at(sums, first + self.bins[:, feature].astype(np.int64), self.values.astype(np.int64))
        return sums + self.added.T


def case(seed: int, rows: int, widths: tuple[int, ...], bits: int = 20) -> Case:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate(([0], np.cumsum(widths))).astype(np.int32)
    kind = np.uint8 if max(widths) <= 256 else np.uint16
    sizes = mask_sizes(rows, bits + 1, int(offsets[-1]), len(widths))
    assert sizes is not None
    return Case(
        rng.integers(-(1 << bits), 1 << bits, (rows, FAMILIES), endpoint=True).astype(np.int32),
        rng.integers(0, widths, (rows, len(widths))).astype(kind),
        offsets,
        rng.integers(-(1 << bits), 1 << bits, (FAMILIES, int(offsets[-1]))),
        sizes,
    )


def exchange(of: Case, threads: int = 1) -> dict[str, np.ndarray]:
    """Every array of an exchange by the chosen engine."""
    sizes, rows = of.sizes, len(of.values)
    owner = MaskOwner(SEED, rows, sizes)
    dense = np.empty((rows, FAMILIES * sizes.width), dtype=np.uint8)
    part = np.empty((FAMILIES, DEGREE, sizes.width), dtype=np.uint8)
    owner.encrypt(of.values, KEY, dense, part, threads)
    order = np.arange(rows, dtype=np.int32)
    masks, hiding = make_masks(SEED, sizes, of.offsets, 0, len(of.slots), SECRET, threads, order, of.bins)
    sums = add_rows(dense, of.bins, of.offsets)
    found = answer(sums, part, of.slots, hiding, sizes, FLOOD, threads, of.added)
    decrypted = owner.decrypt(found, of.slots, masks, KEY, threads)
    return {"dense": dense, "part": part, "masks": masks, "hiding": hiding, "answer": found, "decrypted": decrypted}


def by_twin(of: Case) -> dict[str, np.ndarray]:
    dense, part = twin.encrypt(SEED, of.values, KEY, of.sizes)
    masks, hiding = twin.make_masks(SEED, of.sizes, of.bins, of.offsets, SECRET)
    found = twin.answer(dense, part, of.bins, of.offsets, hiding, of.sizes, FLOOD, of.added)
    decrypted = twin.decrypt(found, masks, KEY, of.sizes)
    return {"dense": dense, "part": part, "masks": masks, "hiding": hiding, "answer": found, "decrypted": decrypted}


def golden_cases() -> dict[str, Case]:
    """Those whose bytes are kept in `golden/masks.json`: less than one polynomial, and more."""
    return {"few rows": case(1, 70, (3, 2)), "two polynomials": case(2, DEGREE + 5, (2,), bits=12)}


def digests(of: dict[str, np.ndarray]) -> dict[str, str]:
    return {name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for name, array in of.items()}
