"""The work of FedXGBoost-SMM counted: kernel vectors of every summed node, and what they mask."""

from __future__ import annotations

from collections.abc import Iterator

from veilboost.plan.shape import Shape, Units
from veilboost.protocols.smm2.options import Smm2Options
from veilboost.protocols.vertical.kernels import KernelOptions

LARGE = 4_000_000  # numbers: 32 MB, beyond what caches hold and malloc keeps; its pages are fetched anew each time
_SMM1, _SMM2 = KernelOptions(), Smm2Options()
_NAMES: tuple[str, ...] = (
    "nodes", "kernels", "masked", "large_masked", "blocks", "block_rows", "block_kernels", "columns", "grams", "cubes",
)  # fmt: skip


def kernel_units(shape: Shape, features: int, bins: int) -> Units:
    """Of one tree, with m rows in a node, c kernel vectors, and w split columns: those of bins that have rows.

    nodes, kernels, masked
        Nodes that are summed; m c: what their kernel vectors hold; m w: what `smm1` masks and sends.
    blocks, block_rows, block_kernels
        `smm2` deals the columns of small nodes out to blocks with kernel vectors of their own: how many there are, and
        m and m c of each.
    columns, grams, cubes
        m W, m W^2 and W^3 of a block with W columns, decoys among them: to write them down, to multiply them with one
        another, to solve for their null space.
    large_masked
        Those of `masked` that stand in large arrays.
    """
    found = dict.fromkeys(_NAMES, 0.0)
    for built, total in zip(shape.built, shape.built_rows, strict=True):
        rows = max(2, round(total / built))
        cuts = _cuts(rows, bins)
        found["nodes"] += built
        found["kernels"] += built * rows * _SMM1.count(rows, 2)
        masked = built * rows * cuts * features  # in one array for the whole level
        found["masked"] += masked
        found["large_masked"] += masked if masked > LARGE else 0.0
        for width in _blocks(rows, cuts, features):
            found["blocks"] += built
            found["block_rows"] += built * rows
            found["block_kernels"] += built * rows * _SMM2.count(rows, 2)
            found["columns"] += built * rows * width
            found["grams"] += built * rows * width**2
            found["cubes"] += built * width**3
    return found


def level_columns(rows: int, features: int, bins: int) -> tuple[float, float]:
    """Numbers in the largest arrays: what `smm1` masks of a root, and the columns of its widest block in `smm2`."""
    cuts = _cuts(rows, bins)
    return rows * cuts * features, rows * max(_blocks(rows, cuts, features), default=0.0)


def _cuts(rows: int, bins: int) -> float:
    """Of a feature, between bins that have rows."""
    return max(0.0, bins * (1 - (1 - 1 / bins) ** rows) - 1)


def _blocks(rows: int, cuts: float, features: int) -> Iterator[float]:
    """Columns of each block of a node, decoys among them, as `blocks_of_node` fills them: feature by feature."""
    most = _SMM2.columns(rows)
    added = sum(_SMM2.added(rows))
    left = cuts
    while left > 0:  # what is too much for one block of a feature waits for the next turn
        wide = min(left, most)
        together = max(1, int(most // wide))
        whole, rest = divmod(features, together)
        yield from [together * wide + added] * whole
        if rest:
            yield rest * wide + added
        left -= wide
