"""The spec of `smm2`."""

from __future__ import annotations

from collections.abc import Iterator

from veilboost.privacy.statement import Statement, Status
from veilboost.protocols.cost import ASSIGNMENTS, COMMON_A, COMMON_P, Cost, Needs, PlannedJob, Room, Shape, Units
from veilboost.protocols.smm2.active import Smm2Cipher
from veilboost.protocols.smm2.messages import Smm2Gains, Smm2Kernels, Smm2Masked, Smm2Options, Smm2Round
from veilboost.protocols.smm2.passive import Smm2PassiveCipher
from veilboost.protocols.spec import OWN_ASSIGNMENTS, OWN_FEATURES, Evidence, ProtocolSpec, of_active, of_passive
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer, StatisticsRequest
from veilboost.protocols.vertical.passive import passive_by
from veilboost.protocols.vertical.smm import KERNEL_BYTES, cuts_with_rows, refuse

_OPTIONS = Smm2Options()


def tree_units(job: PlannedJob, columns: int, shape: Shape, first: bool) -> Units:
    """Count the operations of one tree.

    For a node of m rows, c kernel vectors and W columns per block (including decoys): `nodes` that are summed;
    `blocks` with kernel vectors of their own, `block_rows` (m) and `block_kernels` (m c); `columns` (m W) to write,
    `grams` (m W^2) for their Gram matrix, `cubes` (W^3) to solve for their null space.
    """
    names = ("nodes", "blocks", "block_rows", "block_kernels", "columns", "grams", "cubes")
    found: dict[str, float] = dict.fromkeys(names, 0.0)
    for built, total in zip(shape.built, shape.built_rows, strict=True):
        rows = max(2, round(total / built))
        found["nodes"] += built
        for width in block_widths(rows, columns, job.bins):
            found["blocks"] += built
            found["block_rows"] += built * rows
            found["block_kernels"] += built * rows * _OPTIONS.count(rows, 2)
            found["columns"] += built * rows * width
            found["grams"] += built * rows * width**2
            found["cubes"] += built * width**3
    return found


COST = Cost(
    here=(*COMMON_A, "blocks", "block_kernels"),
    there=(*COMMON_P, "nodes", "blocks", "block_kernels", "columns", "grams", "cubes", "slots_p"),
    sent=(*ASSIGNMENTS, "nodes", "block_rows"),
    answered=(*ASSIGNMENTS, "nodes", "block_kernels"),
    scale=2_000,
    tree_units=tree_units,
    for_each=("blocks", "block_rows", "block_kernels"),
    asks_ahead=True,
)


def memory(job: PlannedJob, columns: int) -> Needs:
    """The columns of the widest block, whose buffer is reused; kernel vectors during orthogonalisation."""
    n = float(job.rows)
    widest = job.rows * max(block_widths(job.rows, columns, job.bins), default=0.0)
    return Needs(Room(0.0, 4 * KERNEL_BYTES * n), Room(8 * widest, 7 * KERNEL_BYTES * n))


def block_widths(rows: int, features: int, bins: int) -> Iterator[float]:
    """Yield the number of columns of each block of a node, including decoys, as `blocks_of_node` fills them."""
    most = _OPTIONS.columns(rows)
    added = sum(_OPTIONS.added(rows))
    left = cuts_with_rows(rows, bins)
    while left > 0:  # columns of a feature that exceed one block go into the next pass
        wide = min(left, most)
        together = max(1, int(most // wide))
        whole, rest = divmod(features, together)
        yield from [together * wide + added] * whole
        if rest:
            yield rest * wide + added
        left -= wide


SPEC = ProtocolSpec(
    name="smm2",
    summary="secure matrix multiplication: the active party masks gradients with kernel vectors of split columns",
    source="FedXGBoost (Le et al.), FedXGBoost-SMM-2",
    exact=True,
    statement=Statement(
        (
            of_active(
                data="labels",
                status=Status.BROKEN,
                why="with fewer vectors than half of a node's rows, linear programming removes the mask from the "
                "gradients of the first tree; the answers of several blocks or levels together give every gradient "
                "exactly",
            ),
            OWN_ASSIGNMENTS,
            of_passive(
                data="features",
                status=Status.HEURISTIC,
                why="the active party learns vectors orthogonal to the split columns and to decoys, far fewer than the "
                "dimension of the null space, and the left/right assignments of winning splits; no attack is known in "
                "nodes of 150 rows or more",
            ),
        )
    ),
    messages=(*LIFECYCLE, Smm2Round, StatisticsRequest, Smm2Kernels, Smm2Masked, Smm2Gains),
    roles={"active": active_by(Smm2Cipher), "passive": passive_by(Smm2PassiveCipher)},
    exact_messages=lambda config, first: (StatisticsRequest, Smm2Kernels, Smm2Masked, Smm2Gains, SplitAnswer),
    options=Smm2Options,
    refuse=lambda config: refuse(config, Smm2Options.from_dict(config.options)),
    engines=("local",),
    cost=COST,
    memory=memory,
    relative_cost=30,
    evidence=(
        Evidence("active", "labels", "smm2_stacking", True),
        OWN_FEATURES,
        Evidence("passive", "features", "smm2_columns", False),
    ),
)
