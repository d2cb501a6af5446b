"""The tree that a job is taken to grow."""

from __future__ import annotations

from dataclasses import dataclass

# The smaller child's share of its parent's rows: what is summed below the root, siblings being derived. The first tree
# finds splits that halve the rows; what is left to later ones sets fewer rows apart.
FIRST_SHARE, LATER_SHARE = 0.42, 0.33
FEWEST_ROWS = 16  # a node with fewer is hardly ever split

Units = dict[str, float]


@dataclass(frozen=True)
class Shape:
    """A typical tree: for each level, how many nodes it has, how many are summed, and how many rows stand in these."""

    nodes: tuple[int, ...]
    built: tuple[int, ...]
    built_rows: tuple[float, ...]


def tree_shape(rows: int, depth: int, share: float = LATER_SHARE) -> Shape:
    """Every node splits while it has rows enough; below the root the smaller child of two is summed."""
    nodes = [min(1 << level, max(1, rows // FEWEST_ROWS)) for level in range(depth)]
    built = [1, *(max(1, count // 2) for count in nodes[1:])]
    return Shape(tuple(nodes), tuple(built), (float(rows), *(share * rows for _ in nodes[1:])))
