"""Units of `smm1`, `smm2` and `paillier` are what these protocols do: runs send, and kernels add, as many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier import ciphertexts
from veilboost.crypto.paillier.ciphertexts import Blinder, PairPacking
from veilboost.crypto.paillier.integers import Halves, big
from veilboost.crypto.paillier.keys import PublicKey
from veilboost.plan.calibrate import measure
from veilboost.plan.predict import cost_of, vertical_units
from veilboost.protocols.cost import PlannedJob, tree_shape
from veilboost.protocols.paillier import spec as paillier
from veilboost.protocols.smm1 import spec as smm1
from veilboost.protocols.smm2.spec import block_widths
from veilboost.protocols.vertical.smm import cuts_with_rows
from veilboost.types import AnyArray

pytestmark = pytest.mark.fast


# --- smm1, smm2 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns", "bins"), [(150, 3, 32), (1000, 5, 16), (6000, 3, 64)])
def test_kernel_vectors_and_masked_columns_cross_as_counted(rows: int, columns: int, bins: int) -> None:
    job = PlannedJob(rows, (1, columns), trees=1, depth=1, bins=bins)
    work, run = vertical_units(cost_of("smm1"), job, columns), measure("smm1", job)
    assert run.answered == pytest.approx(8 * work["masked"], rel=0.05)
    assert run.sent == pytest.approx(8 * work["kernels"] + rows / 8, rel=0.05, abs=2500)


@pytest.mark.parametrize(("rows", "columns", "bins"), [(150, 6, 32), (400, 12, 32), (3000, 4, 16)])
def test_blocks_of_small_nodes_have_kernel_vectors_of_their_own(rows: int, columns: int, bins: int) -> None:
    job = PlannedJob(rows, (1, columns), trees=1, depth=1, bins=bins)
    work, run = vertical_units(cost_of("smm2"), job, columns), measure("smm2", job)
    assert run.answered == pytest.approx(8 * work["block_kernels"], rel=0.1, abs=2500)
    assert run.sent == pytest.approx(16 * work["block_rows"], rel=0.1, abs=2500)
    assert work["blocks"] > 1 or rows == 3000


def test_only_large_arrays_count_as_large() -> None:
    few, many = (PlannedJob(rows, (1, 8), depth=5, bins=32) for rows in (2000, 200_000))
    assert smm1.tree_units(few, 8, tree_shape(2000, 5), False)["large_masked"] == 0
    assert smm1.tree_units(many, 8, tree_shape(200_000, 5), False)["large_masked"] > smm1.LARGE
    assert cuts_with_rows(200_000, 32) == pytest.approx(31)
    assert max(block_widths(200_000, 8, 32)) == pytest.approx(8 * 31 + 48)


# --- paillier ---------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 3000), st.integers(1, 9), st.sampled_from([4, 8, 32]), st.integers(0, 2**32))
def test_additions_are_counted_as_they_are_saved(rows: int, features: int, bins: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, bins, (rows, features))
    added = 0
    merge = ciphertexts._merge  # pyright: ignore[reportPrivateUsage]

    def counted(items: Halves, own: AnyArray, widths: list[int], square: int) -> tuple[Halves, AnyArray]:
        nonlocal added
        merged, left = merge(items, own, widths, square)
        added += len(items.x) - len(merged.x)
        return merged, left

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ciphertexts, "_merge", counted)
        ones = Halves([big(1)] * rows, [big(0)] * rows)
        ciphertexts.sums_by_label(PublicKey(big(3 * 5)), ones, labels, [bins] * features)
    job = PlannedJob(rows, (1, features), trees=1, depth=1, bins=bins)
    counted_on = paillier.tree_units(job, features, tree_shape(rows, 1), False)["added"]
    assert counted_on == pytest.approx(added, rel=0.1, abs=3 * bins)


@pytest.mark.parametrize("rows", [100, 10_000])
def test_packages_hold_as_many_sums_as_counted(rows: int) -> None:
    """Gradients of a first tree: half a unit and a quarter, on a grid of 2^-20."""
    pairs = np.tile(np.array([[1 << 20, 1 << 19]], dtype=np.int32), (rows, 1))
    capacity = PairPacking.for_sums(pairs, rows).capacity(2048)
    job = PlannedJob(rows, (1, 10), trees=1, depth=1, bins=32)
    packages = paillier.tree_units(job, 10, tree_shape(rows, 1), True)["packages"]
    assert packages == pytest.approx(320 / capacity, abs=1.5)


def test_a_table_has_as_many_entries_as_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a key so short that the table costs nothing."""
    monkeypatch.setattr(paillier, "_OTHER", 31 + paillier.MARGIN)
    key = PublicKey(big((2**16 + 1) * 32771))
    draws = 2**3 * 64 * 50 // paillier._pair(1000)[1]  # pyright: ignore[reportPrivateUsage]
    rows = Blinder(key, draws, Csprng())._masks._rows  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(paillier, "_OTHER", key.bits + paillier.MARGIN)
    assert paillier._packing_table(1000, 50, 4, 64)[1] == sum(len(row.x) for row in rows)
