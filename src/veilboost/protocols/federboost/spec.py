"""What `federboost` is and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.privacy.calibrate import CalibrationRequest, local_epsilon
from veilboost.privacy.event import Adjacency, Event
from veilboost.privacy.mechanism import keep_probability
from veilboost.privacy.statement import Statement, Status
from veilboost.protocols.cost import BIN, COMMON_A, COMMON_P, SIDES, Cost, Needs, PlannedJob, Room
from veilboost.protocols.federboost.active import FederBoostCipher
from veilboost.protocols.federboost.messages import BucketRound, Buckets, BucketSplits, BucketsRequest
from veilboost.protocols.federboost.passive import FederBoostOptions, FederBoostPassiveCipher, bucket_event
from veilboost.protocols.spec import Evidence, ProtocolSpec, of_active, of_passive
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import JOB
from veilboost.protocols.vertical.passive import passive_by
from veilboost.types import Role


def _refuse(config: TrainingConfig) -> None:
    """What `federboost` cannot do, before anything is sent or spent."""
    if config.categories == "sets":
        raise UnsupportedCombination("federboost takes no sets of categories", "set categories to ordinal or onehot")
    if config.proposal == "local":
        raise UnsupportedCombination("federboost makes its buckets once", "set proposal to global")


def _memory(job: PlannedJob, columns: int) -> Needs:
    """All bins are at the active party; they are sent as numbers of two bytes."""
    cells = float(job.rows) * columns
    return Needs(Room(cells * BIN), Room(0.0, 2 * cells), for_each=True)


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """What a passive party releases: the buckets of each of its columns, once."""
    if role is not Role.PASSIVE:
        return ()
    options = FederBoostOptions.from_dict(config.options)
    return [bucket_event(options, config.max_bin, f"buckets of column {number}") for number in range(columns)]


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """The epsilon of each value so that all columns of a person keep to the passive party's budget."""
    if request.epsilon_passive is None:
        raise InvalidParameter("federboost protects a passive party's features", "give a passive party's epsilon")
    epsilon = local_epsilon(request.epsilon_passive, request.features, request.delta_passive)
    return {
        "options": {"mechanism": "response", "epsilon": epsilon},
        "noise": {"kept": keep_probability(max(request.bins, 2), epsilon)},
        "releases": request.features,
        "adjacency": str(Adjacency.PASSIVE_RECORD),
    }


SPEC = ProtocolSpec(
    name="federboost",
    summary="perturbed buckets leave their owner once; the active party grows all trees alone",
    source="FederBoost, vertical (Tian et al.)",
    statement=Statement(
        (
            of_active(
                data="labels",
                status=Status.HEURISTIC,
                why="no gradient, sum or side of a row is sent; which columns and cuts split best is told as it is",
                needs_secrets=False,
            ),
            of_active(
                data="features",
                status=Status.HEURISTIC,
                why="no side of a row and nothing of its own columns is sent; that a passive party's cut wins a node "
                "depends on them",
                needs_secrets=False,
            ),
            of_passive(
                data="features",
                status=Status.HEURISTIC,
                why="each value's bucket is locally private at epsilon, a person's record at the sum over its columns, "
                "given the cuts; the cuts are quantiles of all rows, and that a change of one value may move "
                "them is not counted",
            ),
        )
    ),
    messages=(*JOB, BucketsRequest, Buckets, BucketRound, BucketSplits),
    roles={"active": active_by(FederBoostCipher), "passive": passive_by(FederBoostPassiveCipher)},
    exact_messages=lambda config, first: (BucketSplits,),
    options=FederBoostOptions,
    refuse=_refuse,
    plan=plan,
    calibrate=calibrate,
    sets=False,
    engines=("local",),
    cost=Cost(
        here=(*COMMON_A, "cells", "slots_p"),
        there=COMMON_P,
        answered=(*SIDES, "table_p"),
        scale=20_000,
        reach=60,
        once_here=("start", "table_a", "sorted_a", "beyond_a", "table_p"),
    ),
    memory=_memory,
    relative_cost=0.3,
    evidence=(
        Evidence("active", "labels", "own_cuts", False),
        Evidence("active", "features", "active_order", False, applies=False),
        Evidence("passive", "features", "reported_buckets", False),
    ),
)
