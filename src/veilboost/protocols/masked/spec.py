"""The spec of `masked`. It claims less than its paper."""

from __future__ import annotations

from veilboost.privacy.statement import Statement, Status
from veilboost.protocols.cost import ALL_NODES_A, ASSIGNMENTS, COMMON_P, Cost, Needs, PlannedJob, Room
from veilboost.protocols.masked.accounting import calibrate, plan
from veilboost.protocols.masked.active import MaskedCipher
from veilboost.protocols.masked.messages import BestGains, MaskedLevel, Masks, NoisedVectors
from veilboost.protocols.masked.parameters import MaskedOptions, refuse
from veilboost.protocols.masked.passive import MaskedPassiveCipher
from veilboost.protocols.spec import OWN_ASSIGNMENTS, OWN_FEATURES, Evidence, ProtocolSpec, of_active, of_passive
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import LIFECYCLE, BeginRound, SplitAnswer
from veilboost.protocols.vertical.passive import passive_by


def _chunk(rows: int) -> float:
    """Bytes of a chunk of masks, at least one mask for g and one for h."""
    return max(MaskedOptions().chunk_megabytes * 2**20, 2 * 4.0 * rows)


def _memory(job: PlannedJob, columns: int) -> Needs:
    """A chunk of masks, or fewer if a level has fewer; its answer, and the inputs of the scores."""
    chunk = min(_chunk(job.rows), 2 * 4.0 * job.rows * columns * job.bins)
    return Needs(Room(0.0, chunk), Room(0.0, 3 * chunk))


SPEC = ProtocolSpec(
    name="masked",
    summary="masks gradients with noise that mostly cancels in sums; the protection of labels is broken",
    source="Zhang et al., Bilateral Differentially Private Vertical Federated Boosted Decision Trees",
    statement=Statement(
        (
            of_active(
                data="labels",
                adversary="every passive party, which made the masks of the answers that it receives",
                status=Status.BROKEN,
                why="projection and stacking off span(B): the vectors of one candidate give nearly all labels, those "
                "of two candidates the exact gradients; exact sums of every node are sent as well",
            ),
            OWN_ASSIGNMENTS,
            of_passive(
                data="features",
                status=Status.BROKEN,
                why="Theorem 3 bounds what one mask reveals about one bit; over nested candidates, levels and trees "
                "there is no bound for a record, and at the default budget the likelihood of the masks of a hundred "
                "trees reveals which rows are left of a split; the left/right assignments of every winning split are "
                "sent",
            ),
        )
    ),
    messages=(*LIFECYCLE, BeginRound, MaskedLevel, Masks, NoisedVectors, BestGains),
    roles={"active": active_by(MaskedCipher), "passive": passive_by(MaskedPassiveCipher)},
    exact_messages=lambda config, first: (MaskedLevel, SplitAnswer),
    options=MaskedOptions,
    refuse=refuse,
    plan=plan,
    calibrate=calibrate,
    sets=False,
    cost=Cost(
        here=(*ALL_NODES_A, "crossed"),
        there=(*COMMON_P, "crossed"),
        sent=(*ASSIGNMENTS, "crossed"),
        answered=(*ASSIGNMENTS, "crossed"),
        scale=1_000,
        most_bytes=_chunk,
        steps=("start", "trees", "levels", "crossed"),
        asks_ahead=True,
    ),
    memory=_memory,
    relative_cost=16,
    evidence=(
        Evidence("active", "labels", "masked_stacking", True),
        OWN_FEATURES,
        Evidence("passive", "features", "masked_split_likelihood", True),
    ),
)
