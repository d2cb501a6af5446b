"""Which units a protocol's work is made of, for each thing that is predicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from veilboost.crypto.lattice.keys import SPAN_ROWS
from veilboost.protocols.lattice.active import BYTES_AT_ONCE

COMMON_A = ("start", "trees", "levels", "rows", "row_levels", "beyond", "cells_a", "slots_a")
ALL_NODES_A = ("start", "trees", "levels", "rows", "row_levels", "beyond", "all_cells_a", "all_slots_a")
COMMON_P = ("start", "trees", "levels", "row_levels", "beyond")
SIDES = ("start", "trees", "levels", "row_levels")  # bytes that tell rows where they went
ONCE = ("start", "table_a", "table_p", "sorted_a", "sorted_p", "beyond_a", "beyond_p", "entries")


def any_size(rows: int) -> float:
    return float("inf")


def mask_chunk(rows: int) -> float:
    """Bytes of a chunk of masks: `MaskedOptions.chunk_megabytes`, or a mask for g and one for h if these are more."""
    return max(8.0 * 2**20, 2 * 4.0 * rows)


def streamed(rows: int) -> float:
    """Bytes of a message of streamed ciphertexts: the last span is whole, and a row takes up to 100."""
    return BYTES_AT_ONCE + 100.0 * SPAN_ROWS


@dataclass(frozen=True)
class Spending:
    """Units that decide the seconds in rounds of the driving side (`here`) and of the other (`there`), the bytes that
    each sends, and the seconds before the first round (`once_...`).

    `scale`: rows of the smallest run that is measured; the largest has `reach` times as many. Rows beyond the
    processor's caches cost more than those within, so cheap protocols reach far.
    """

    here: tuple[str, ...]
    there: tuple[str, ...]
    sent: tuple[str, ...]
    answered: tuple[str, ...]
    scale: int
    reach: int = 30
    most_trees: int = 6  # of a run that is measured
    far: tuple[int, int, int, int, int] = (5, 7, 5, 32, 1)  # its columns, depth, bins and trees
    most_bytes: Callable[[int], float] = any_size  # of a message, with so many rows
    once_here: tuple[str, ...] = ("start", "table_a", "sorted_a", "beyond_a")
    once_there: tuple[str, ...] = ("start", "table_p", "sorted_p", "beyond_p")
    steps: tuple[str, ...] = ("start", "trees", "levels")  # what decides how often an answer is waited for


_LATTICE = ("runs", "tiles", "products")
_VERTICAL: dict[str, Spending] = {
    "plain": Spending(
        (*COMMON_A, "slots_p"),
        (*COMMON_P, "cells_p", "slots_p"),
        (*SIDES, "rows"),
        (*SIDES, "slots_p"),
        20_000,
        reach=60,
    ),
    # Beside what is done with ciphertexts nothing else counts.
    "paillier": Spending(
        ("rows", "factors", "packages"),
        ("rows", "added", "multiplied"),
        (*SIDES, "rows"),
        (*SIDES, "packages"),
        100,
        reach=40,
        most_trees=2,
        far=(2, 6, 2, 8, 1),
        once_here=("start", "entries"),
        once_there=("start",),
    ),
    "lattice": Spending(
        (*COMMON_A, "slots_p", "runs", "tiles"),
        (*COMMON_P, "cells_p", *_LATTICE),
        (*SIDES, "runs"),
        (*SIDES, "tiles", "slots_p"),
        4_000,
        most_bytes=streamed,
    ),
    "sealed": Spending(
        (*COMMON_A, "slots_p", "runs", "tiles"),
        (*COMMON_P, "cells_p", "slots_p", *_LATTICE),
        (*SIDES, "runs"),
        (*SIDES, "tiles", "slots_p"),
        4_000,
    ),
    "ldp": Spending(ALL_NODES_A, (*COMMON_P, "all_cells_p", "all_slots_p"), (*SIDES, "rows"), SIDES, 20_000, reach=60),
    "masked": Spending(
        (*ALL_NODES_A, "crossed"),
        (*COMMON_P, "crossed"),
        (*SIDES, "crossed"),
        (*SIDES, "crossed"),
        1_000,
        most_bytes=mask_chunk,
        steps=("start", "trees", "levels", "crossed"),
    ),
    "federboost": Spending(
        (*COMMON_A, "cells", "slots_p"),
        COMMON_P,
        (*SIDES, "rows"),
        (*SIDES, "table_p"),
        20_000,
        reach=60,
        once_here=("start", "table_a", "sorted_a", "beyond_a", "table_p"),
    ),
    "smm1": Spending(
        (*COMMON_A, "nodes", "kernels", "masked", "large_masked", "slots_p"),
        (*COMMON_P, "nodes", "kernels", "masked", "large_masked", "cells_p"),
        (*SIDES, "nodes", "kernels"),
        (*SIDES, "masked", "slots_p"),
        2_000,
        reach=60,
    ),
    "smm2": Spending(
        (*COMMON_A, "blocks", "block_kernels"),
        (*COMMON_P, "nodes", "blocks", "block_kernels", "columns", "grams", "cubes", "slots_p"),
        (*SIDES, "nodes", "block_rows"),
        (*SIDES, "nodes", "block_kernels"),
        2_000,
    ),
}
HORIZONTAL: Mapping[str, Spending] = {
    "mal": Spending(
        ("trees", "tree_rows", "bins"),
        ("people",),
        ("start", "people", "extremes"),
        ("people", "extremes", "rows", "table"),
        4_000,
        reach=100,
        once_here=("start", "people", "table", "bins"),
        once_there=("people", "extremes", "rows", "table", "sorted"),
    ),
    "secagg": Spending(
        ("trees", "levels", "uploads"),
        ("levels", "pair_levels", "tree_rows", "cells", "uploads", "masks"),
        ("people", "levels", "searches", "uploads"),
        ("people", "levels", "searches", "uploads"),
        10_000,
        reach=100,
        once_here=("start", "people", "searches"),
        once_there=("people", "pairs", "table", "sorted", "beyond", "searches", "pair_searches"),
    ),
}

# The first tree by one protocol, all others by another: units of either stand apart, and so do their costs.
IN_TURN: Mapping[str, tuple[str, str]] = {"elxgb": ("paillier", "ldp")}


def of_first(unit: str) -> str:
    """What is done once is done by the protocol of the first tree."""
    return unit if unit in ONCE else f"first_{unit}"


def of_later(unit: str) -> str:
    return f"later_{unit}"


def _in_turn(first: Spending, later: Spending) -> Spending:
    def joined(name: str) -> tuple[str, ...]:
        own, other = getattr(first, name), getattr(later, name)
        return (*map(of_first, own), *(of_later(unit) for unit in other if unit not in ONCE))

    return replace(
        first,
        here=joined("here"),
        there=joined("there"),
        sent=joined("sent"),
        answered=joined("answered"),
        steps=joined("steps"),
    )


VERTICAL: Mapping[str, Spending] = _VERTICAL | {
    name: _in_turn(_VERTICAL[first], _VERTICAL[later]) for name, (first, later) in IN_TURN.items()
}
ALL: Mapping[str, Spending] = {**VERTICAL, **HORIZONTAL}
