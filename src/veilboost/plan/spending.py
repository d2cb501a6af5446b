"""Which units a protocol's work is made of, for each thing that is predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

COMMON_A = ("start", "trees", "levels", "rows", "row_levels", "beyond", "cells_a", "slots_a")
COMMON_P = ("start", "trees", "levels", "row_levels", "beyond")
SIDES = ("start", "trees", "levels", "row_levels")  # bytes that tell rows where they went
MASK_CHUNK = 8e6  # bytes: no message of `masked` is larger


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
    largest_message: float = float("inf")
    once_here: tuple[str, ...] = ("start", "table_a")
    once_there: tuple[str, ...] = ("start", "table_p")
    steps: tuple[str, ...] = ("start", "trees", "levels")  # what decides how often an answer is waited for


_LATTICE = ("runs", "tiles", "products")
VERTICAL: Mapping[str, Spending] = {
    "plain": Spending(
        (*COMMON_A, "slots_p"),
        (*COMMON_P, "cells_p", "slots_p"),
        (*SIDES, "rows"),
        (*SIDES, "slots_p"),
        20_000,
        reach=60,
    ),
    "paillier": Spending(
        (*COMMON_A, "slots_p"),
        (*COMMON_P, "cells_p", "slots_p"),
        (*SIDES, "rows"),
        (*SIDES, "slots_p"),
        100,
        reach=10,
        most_trees=2,
    ),
    "lattice": Spending(
        (*COMMON_A, "slots_p", "runs", "tiles"),
        (*COMMON_P, "cells_p", *_LATTICE),
        (*SIDES, "runs"),
        (*SIDES, "tiles", "slots_p"),
        4_000,
    ),
    "sealed": Spending(
        (*COMMON_A, "slots_p", "runs", "tiles"),
        (*COMMON_P, "cells_p", "slots_p", *_LATTICE),
        (*SIDES, "runs"),
        (*SIDES, "tiles", "slots_p"),
        4_000,
    ),
    "ldp": Spending(
        (*COMMON_A, "slots_p"), (*COMMON_P, "cells_p", "slots_p"), (*SIDES, "rows"), SIDES, 20_000, reach=60
    ),
    "masked": Spending(
        (*COMMON_A, "crossed"),
        (*COMMON_P, "crossed"),
        (*SIDES, "crossed"),
        (*SIDES, "crossed"),
        1_000,
        largest_message=MASK_CHUNK,
        steps=("start", "trees", "levels", "crossed"),
    ),
    "federboost": Spending(
        (*COMMON_A, "cells", "slots_p"),
        COMMON_P,
        (*SIDES, "rows"),
        (*SIDES, "table_p"),
        20_000,
        reach=60,
        once_here=("start", "table_a", "table_p"),
    ),
    "smm1": Spending(
        (*COMMON_A, "crossed", "slots_p"),
        (*COMMON_P, "crossed"),
        (*SIDES, "rows"),
        (*SIDES, "crossed"),
        2_000,
        reach=60,
    ),
    "smm2": Spending(
        (*COMMON_A, "crossed", "slots_p"), (*COMMON_P, "crossed"), (*SIDES, "rows"), (*SIDES, "slots_p"), 2_000
    ),
    "elxgb": Spending(
        (*COMMON_A, "slots_p", "first_rows", "first_slots_p"),
        (*COMMON_P, "cells_p", "slots_p", "first_cells_p", "first_slots_p"),
        (*SIDES, "rows", "first_rows"),
        (*SIDES, "first_slots_p"),
        100,
        reach=10,
    ),
}
HORIZONTAL: Mapping[str, Spending] = {
    "mal": Spending(
        ("trees", "bins"),
        (),
        ("start", "people", "extremes"),
        ("people", "extremes", "rows", "table"),
        4_000,
        once_here=("start", "people", "table", "bins"),
        once_there=("people", "extremes", "rows", "table"),
    ),
    "secagg": Spending(
        ("trees", "levels", "uploads"),
        ("levels", "tree_rows", "cells", "uploads", "masks"),
        ("people", "levels", "searches", "uploads"),
        ("people", "levels", "searches", "uploads"),
        10_000,
        once_here=("start", "people", "searches"),
        once_there=("people", "pairs", "table", "searches"),
    ),
}
ALL: Mapping[str, Spending] = {**VERTICAL, **HORIZONTAL}
