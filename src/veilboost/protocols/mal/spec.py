"""What `mal` is and claims."""

from __future__ import annotations

from functools import partial

from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.cost import Cost, Needs, Room
from veilboost.protocols.horizontal.full_model import TrainedModel
from veilboost.protocols.mal.authority import MalAuthority
from veilboost.protocols.mal.comparer import MalComparer
from veilboost.protocols.mal.messages import MESSAGES
from veilboost.protocols.mal.parameters import FIXED, MalOptions, plan, refuse
from veilboost.protocols.mal.participant import MalParticipant
from veilboost.protocols.mal.server import MalServer
from veilboost.protocols.spec import Evidence, ProtocolSpec
from veilboost.wire.message import Done

_of_participant = partial(Protection, victim="participant", adversary="the server")

SPEC = ProtocolSpec(
    name="mal",
    setting="horizontal",
    summary="rows by bucket under randomized response, labels under masks that cancel, trees of depth 1, two rounds",
    source="MAL (Zha, Lin, Huang, Liu)",
    statement=Statement(
        (
            _of_participant(
                data="labels",
                status=Status.BROKEN,
                why="sums of labels per bucket are equations about single labels: with few rows for each equation "
                "linear programming finds all labels, and with more rows still most of them",
            ),
            _of_participant(
                data="features, many buckets",
                status=Status.HEURISTIC,
                why="each column's bucket has epsilon-local privacy, a record of d columns only d times epsilon; of "
                "64 buckets at epsilon 4 fewer than half of those sent are the true ones",
            ),
            _of_participant(
                data="features, few buckets",
                status=Status.BROKEN,
                why="of fewer than some forty buckets at epsilon 4 most of those sent are the true ones: 78 of 100 "
                "where there are 16",
            ),
            _of_participant(
                data="lowest and highest values",
                adversary="the comparer",
                status=Status.HEURISTIC,
                why="the comparer orders ciphertexts and learns whose extreme is larger, and by the default encryption "
                "the first byte in which two differ; with any one participant's help it reads them all",
            ),
            _of_participant(
                data="the lowest and highest value of all",
                adversary="the server and every participant",
                status=Status.UNPROTECTED,
                why="the two ends of every column are somebody's exact values, and everybody is told them",
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
    # The server has everyone's bins, one by one and in pairs, and grows the trees.
    memory=lambda job, columns: Needs(here=Room(job.rows * 4.0 * columns, job.rows * 40.0)),
    relative_cost=3,
    evidence=(
        Evidence("participant", "labels", "mal_labels", True),
        Evidence("participant", "features", "mal_buckets", True),
        Evidence("participant", "lowest and highest values", "mal_extremes", False),
        Evidence("participant", "the lowest and highest value of all", "mal_ends", True),
    ),
)
