"""The spec of `mal`."""

from __future__ import annotations

from functools import partial

from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.cost import Cost, Needs, Room
from veilboost.protocols.horizontal.full_model import TrainedModel
from veilboost.protocols.mal.authority import MalAuthority
from veilboost.protocols.mal.comparer import MalComparer
from veilboost.protocols.mal.messages import MESSAGES
from veilboost.protocols.mal.parameters import FIXED, MalOptions, least_participants, plan, refuse
from veilboost.protocols.mal.participant import MalParticipant
from veilboost.protocols.mal.server import MalServer
from veilboost.protocols.spec import Evidence, ProtocolSpec
from veilboost.wire.message import Done

_of_participant = partial(Protection, victim="participant", adversary="the server")

SPEC = ProtocolSpec(
    name="mal",
    setting="horizontal",
    summary="participants send randomized buckets and masked labels once; the server trains trees of depth 1",
    source="MAL (Zha, Lin, Huang, Liu)",
    statement=Statement(
        (
            _of_participant(
                data="labels",
                status=Status.BROKEN,
                why="sums of labels per bucket are equations in the individual labels: with few rows per equation "
                "linear programming recovers all labels, and with more rows still most of them",
            ),
            _of_participant(
                data="features, many buckets",
                status=Status.HEURISTIC,
                why="the bucket of each column is epsilon-locally private, a record of d columns only at d times "
                "epsilon; with 64 buckets at epsilon 4 fewer than half of the buckets sent are the true ones",
            ),
            _of_participant(
                data="features, few buckets",
                status=Status.BROKEN,
                why="with fewer than about forty buckets at epsilon 4 most of the buckets sent are the true ones: 78 "
                "of 100 with 16 buckets",
            ),
            _of_participant(
                data="lowest and highest values",
                adversary="the comparer",
                status=Status.HEURISTIC,
                why="the comparer orders ciphertexts and learns whose extreme is larger and, with the default "
                "encryption, the first byte in which two extremes differ; if it colludes with any participant, it "
                "reads all extremes",
            ),
            _of_participant(
                data="the global lowest and highest value",
                adversary="the server and every participant",
                status=Status.UNPROTECTED,
                why="the two ends of every column are exact values of some participant, and everyone receives them",
            ),
        )
    ),
    messages=(*MESSAGES, TrainedModel, Done),
    roles={"server": MalServer, "participant": MalParticipant, "comparer": MalComparer, "authority": MalAuthority},
    driver="server",
    helpers=("comparer", "authority"),
    options=MalOptions,
    fixed=FIXED,
    refuse=refuse,
    plan=plan,
    least_participants=least_participants,
    engines=("local",),
    cost=Cost(
        here=("trees", "tree_rows", "bins"),
        there=("participants",),
        sent=("start", "participants", "extremes"),
        answered=("participants", "extremes", "rows", "table"),
        scale=4_000,
        reach=100,
        once_here=("start", "participants", "table", "bins"),
        once_there=("participants", "extremes", "rows", "table", "sorted"),
        options={"guard": "allow"},
    ),
    # The server keeps the bins of all participants, singly and in pairs, and grows the trees.
    memory=lambda job, columns: Needs(here=Room(job.rows * 4.0 * columns, job.rows * 40.0)),
    relative_cost=3,
    evidence=(
        Evidence("participant", "labels", "mal_labels", True),
        Evidence("participant", "features", "mal_buckets", True),
        Evidence("participant", "lowest and highest values", "mal_extremes", False),
        Evidence("participant", "the global lowest and highest value", "mal_ends", True),
    ),
)
