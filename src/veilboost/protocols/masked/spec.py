"""What `masked` is and claims: less than its paper."""

from __future__ import annotations

from veilboost.privacy.statement import Statement, Status
from veilboost.protocols.cost import ALL_NODES_A, COMMON_P, SIDES, Cost, Needs, PlannedJob, Room
from veilboost.protocols.masked.accounting import calibrate, plan
from veilboost.protocols.masked.active import MaskedCipher
from veilboost.protocols.masked.messages import BestGains, MaskedLevel, Masks, NoisedVectors
from veilboost.protocols.masked.parameters import MaskedOptions, refuse
from veilboost.protocols.masked.passive import MaskedPassiveCipher
from veilboost.protocols.spec import OWN_FEATURES, OWN_SIDES, Evidence, ProtocolSpec, of_active, of_passive
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import LIFECYCLE, BeginRound, SplitAnswer
from veilboost.protocols.vertical.passive import passive_by


def _chunk(rows: int) -> float:
    """Bytes of a chunk of masks, or a mask for g and one for h if these are more."""
    return max(MaskedOptions().chunk_megabytes * 2**20, 2 * 4.0 * rows)


def _memory(job: PlannedJob, columns: int) -> Needs:
    """A chunk of masks, unless a level has fewer; the answer to it, and what scores are made of."""
    chunk = min(_chunk(job.rows), 2 * 4.0 * job.rows * columns * job.bins)
    return Needs(Room(0.0, chunk), Room(0.0, 3 * chunk))


SPEC = ProtocolSpec(
    name="masked",
    summary="gradients under noise that mostly cancels in sums (MaskedXGBoost); its label protection does not hold",
    source="Zhang et al., Bilateral Differentially Private Vertical Federated Boosted Decision Trees",
    statement=Statement(
        (
            of_active(
                data="labels",
                adversary="every passive party, which made the masks it gets an answer under",
                status=Status.BROKEN,
                why="projection and stacking off span(B): one candidate's vectors give nearly all labels, two "
                "candidates' the exact gradients; exact sums of every node are sent as well",
            ),
            OWN_SIDES,
            of_passive(
                data="features",
                status=Status.BROKEN,
                why="Theorem 3 bounds what one mask tells about one bit; over nested candidates, levels and trees "
                "nothing bounds a record, and the likelihood of a hundred trees' masks shows who is left of a cut at "
                "the default budget; the sides of every winning cut are sent",
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
        sent=(*SIDES, "crossed"),
        answered=(*SIDES, "crossed"),
        scale=1_000,
        most_bytes=_chunk,
        steps=("start", "trees", "levels", "crossed"),
    ),
    memory=_memory,
    relative_cost=16,
    evidence=(
        Evidence("active", "labels", "masked_stacking", True),
        OWN_FEATURES,
        Evidence("passive", "features", "masked_split_likelihood", True),
    ),
)
