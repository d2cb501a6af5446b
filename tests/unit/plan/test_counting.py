"""Units of `smm1`, `smm2` and `paillier` are what these protocols do: runs send, and kernels add, as many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier import sums
from veilboost.crypto.paillier.ciphertexts import Blinder
from veilboost.crypto.paillier.halves import Halves
from veilboost.crypto.paillier.integers import big
from veilboost.crypto.paillier.keys import PublicKey
from veilboost.crypto.paillier.packing import PairPacking
from veilboost.plan import ciphertexts
from veilboost.plan.ciphertexts import ciphertext_units
from veilboost.plan.job import PlannedJob, vertical_units
from veilboost.plan.kernels import LARGE, kernel_units, level_columns
from veilboost.plan.measure import measure
from veilboost.plan.shape import tree_shape
from veilboost.types import AnyArray

pytestmark = pytest.mark.fast


# --- smm1, smm2 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns", "bins"), [(150, 3, 32), (1000, 5, 16), (6000, 3, 64)])
def test_kernel_vectors_and_masked_columns_cross_as_counted(rows: int, columns: int, bins: int) -> None:
    job = PlannedJob(rows, (1, columns), trees=1, depth=1, bins=bins)
    work, run = vertical_units(job, columns), measure("smm1", job)
    assert run.answered == pytest.approx(8 * work["masked"], rel=0.05)
    assert run.sent == pytest.approx(8 * work["kernels"] + rows / 8, rel=0.05, abs=2500)


@pytest.mark.parametrize(("rows", "columns", "bins"), [(150, 6, 32), (400, 12, 32), (3000, 4, 16)])
def test_blocks_of_small_nodes_have_kernel_vectors_of_their_own(rows: int, columns: int, bins: int) -> None:
    job = PlannedJob(rows, (1, columns), trees=1, depth=1, bins=bins)
    work, run = vertical_units(job, columns), measure("smm2", job)
    assert run.answered == pytest.approx(8 * work["block_kernels"], rel=0.1, abs=2500)
    assert run.sent == pytest.approx(16 * work["block_rows"], rel=0.1, abs=2500)
    assert work["blocks"] > 1 or rows == 3000


def test_only_large_arrays_count_as_large() -> None:
    assert kernel_units(tree_shape(2000, 5), 8, 32)["large_masked"] == 0
    work = kernel_units(tree_shape(200_000, 5), 8, 32)
    assert work["large_masked"] > LARGE
    masked, columns = level_columns(200_000, 8, 32)
    assert masked == pytest.approx(200_000 * 8 * 31)
    assert columns == pytest.approx(200_000 * (8 * 31 + 48))


# --- paillier ---------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 3000), st.integers(1, 9), st.sampled_from([4, 8, 32]), st.integers(0, 2**32))
def test_additions_are_counted_as_they_are_saved(rows: int, features: int, bins: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, bins, (rows, features))
    added = 0
    merge = sums._merge  # pyright: ignore[reportPrivateUsage]

    def counted(items: Halves, own: AnyArray, widths: list[int], square: int) -> tuple[Halves, AnyArray]:
        nonlocal added
        merged, left = merge(items, own, widths, square)
        added += len(items.x) - len(merged.x)
        return merged, left

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "_merge", counted)
        ones = Halves([big(1)] * rows, [big(0)] * rows)
        sums.sums_by_label(PublicKey(big(3 * 5)), ones, labels, [bins] * features)
    counted_on = ciphertext_units(rows, 1, tree_shape(rows, 1), features, bins, first=False)["added"]
    assert counted_on == pytest.approx(added, rel=0.1, abs=3 * bins)


@pytest.mark.parametrize("rows", [100, 10_000])
def test_packages_hold_as_many_sums_as_counted(rows: int) -> None:
    """Gradients of a first tree: half a unit and a quarter, on a grid of 2^-20."""
    pairs = np.tile(np.array([[1 << 20, 1 << 19]], dtype=np.int32), (rows, 1))
    capacity = PairPacking.for_sums(pairs, rows).capacity(2048)
    packages = ciphertext_units(rows, 1, tree_shape(rows, 1), 10, 32, first=True)["packages"]
    assert packages == pytest.approx(320 / capacity, abs=1.5)


def test_a_table_has_as_many_entries_as_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a key so short that the table costs nothing."""
    monkeypatch.setattr(ciphertexts, "_OTHER", 31 + ciphertexts.MARGIN)
    key = PublicKey(big((2**16 + 1) * 32771))
    draws = 2**3 * 64 * 50 // ciphertexts._pair(1000)[1]  # pyright: ignore[reportPrivateUsage]
    rows = Blinder(key, draws, Csprng())._masks._rows  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(ciphertexts, "_OTHER", key.bits + ciphertexts.MARGIN)
    assert ciphertexts.packing_entries(1000, 50, 4, 64) == sum(len(row.x) for row in rows)
