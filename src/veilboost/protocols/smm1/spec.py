"""The spec of `smm1`."""

from __future__ import annotations

from veilboost.privacy.statement import Statement, Status
from veilboost.protocols import spec
from veilboost.protocols.cost import ASSIGNMENTS, COMMON_A, COMMON_P, Cost, Needs, PlannedJob, Room, Shape, Units
from veilboost.protocols.smm1.active import Smm1Cipher
from veilboost.protocols.smm1.messages import Smm1Request, Smm1Response
from veilboost.protocols.smm1.passive import Smm1PassiveCipher
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import LIFECYCLE, BeginRound, SplitAnswer
from veilboost.protocols.vertical.passive import passive_by
from veilboost.protocols.vertical.smm import KERNEL_BYTES, KernelOptions, cuts_with_rows, refuse

LARGE = 4_000_000  # numbers: 32 MB, more than caches hold and malloc keeps; pages are mapped again each time
_OPTIONS = KernelOptions()


def tree_units(job: PlannedJob, columns: int, shape: Shape, first: bool) -> Units:
    """Count the operations of one tree.

    For a node of m rows, c kernel vectors and w split columns (of bins that have rows): `nodes` that are summed,
    `kernels` (m c), `masked` numbers that are sent (m w), and `large_masked`, those of them in large arrays.
    """
    found: dict[str, float] = dict.fromkeys(("nodes", "kernels", "masked", "large_masked"), 0.0)
    for built, total in zip(shape.built, shape.built_rows, strict=True):
        rows = max(2, round(total / built))
        found["nodes"] += built
        found["kernels"] += built * rows * _OPTIONS.count(rows, 2)
        masked = built * rows * cuts_with_rows(rows, job.bins) * columns  # in one array for the whole level
        found["masked"] += masked
        found["large_masked"] += masked if masked > LARGE else 0.0
    return found


COST = Cost(
    here=(*COMMON_A, "nodes", "kernels", "masked", "large_masked", "slots_p"),
    there=(*COMMON_P, "nodes", "kernels", "masked", "large_masked", "cells_p"),
    sent=(*ASSIGNMENTS, "nodes", "kernels"),
    answered=(*ASSIGNMENTS, "masked", "slots_p"),
    scale=2_000,
    reach=60,
    tree_units=tree_units,
    for_each=("masked", "large_masked"),
)


def memory(job: PlannedJob, columns: int) -> Needs:
    """Kernel vectors during orthogonalisation; then the masked columns of the whole level, and the vectors in the row
    orders of the features."""
    n = float(job.rows)
    work = 8 * (job.rows * cuts_with_rows(job.rows, job.bins) * columns) + 5 * KERNEL_BYTES * n
    return Needs(Room(0.0, max(7 * KERNEL_BYTES * n, work)), Room(0.0, work))


SPEC = spec.ProtocolSpec(
    name="smm1",
    summary="secure matrix multiplication: passive parties mask their split columns with kernel vectors of gradients",
    source="FedXGBoost (Le et al.), FedXGBoost-SMM-1",
    exact=True,
    statement=Statement(
        (
            spec.of_active(
                data="gradients",
                status=Status.HEURISTIC,
                why="a passive party learns vectors orthogonal to the gradients, far fewer than rows; in nodes of some "
                "hundred rows no attack is known if there are a tenth as many vectors as rows, while at seven tenths "
                "a few known labels reveal all others",
            ),
            spec.SHARED_NODES,
            spec.OWN_ASSIGNMENTS,
            spec.of_passive(
                data="features",
                status=Status.BROKEN,
                why="with fewer vectors than half of a node's rows, linear programming removes the mask from the split "
                "columns, and with few vectors rounding does; the active party also learns exact sums per bin",
            ),
        )
    ),
    messages=(*LIFECYCLE, BeginRound, Smm1Request, Smm1Response),
    roles={"active": active_by(Smm1Cipher), "passive": passive_by(Smm1PassiveCipher)},
    exact_messages=lambda config, first: (Smm1Request, Smm1Response, SplitAnswer),
    options=KernelOptions,
    refuse=lambda config: refuse(config, KernelOptions.from_dict(config.options)),
    engines=("local",),
    cost=COST,
    memory=memory,
    relative_cost=6,
    evidence=(
        spec.LABELS_BY_NODES,
        spec.OWN_FEATURES,
        spec.Evidence("passive", "features", "smm1_columns", True),
    ),
)
