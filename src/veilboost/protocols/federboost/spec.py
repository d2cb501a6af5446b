"""The spec of `federboost`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.privacy.calibrate import CalibrationRequest, local_epsilon
from veilboost.privacy.event import Adjacency, Event
from veilboost.privacy.mechanism import keep_probability
from veilboost.privacy.statement import Statement, Status
from veilboost.protocols.cost import ASSIGNMENTS, BIN, COMMON_A, COMMON_P, Cost, Needs, PlannedJob, Room
from veilboost.protocols.federboost.active import FederBoostCipher
from veilboost.protocols.federboost.messages import BucketRound, Buckets, BucketSplits, BucketsRequest
from veilboost.protocols.federboost.passive import FederBoostOptions, FederBoostPassiveCipher, bucket_event
from veilboost.protocols.spec import Evidence, ProtocolSpec, of_active, of_passive
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import JOB
from veilboost.protocols.vertical.passive import passive_by
from veilboost.types import Role


def _refuse(config: TrainingConfig) -> None:
    """Raise for unsupported parameters, before anything is sent or spent."""
    if config.categories == "sets":
        raise UnsupportedCombination(
            "federboost does not support categories='sets'", "set categories to ordinal or onehot"
        )
    if config.proposal == "local":
        raise UnsupportedCombination("federboost computes its buckets once per job", "set proposal to global")


def _memory(job: PlannedJob, columns: int) -> Needs:
    """The active party keeps all bins; they are sent as two-byte numbers."""
    cells = float(job.rows) * columns
    return Needs(Room(cells * BIN), Room(0.0, 2 * cells), for_each=True)


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """A passive party releases the buckets of each of its columns once."""
    if role is not Role.PASSIVE:
        return ()
    options = FederBoostOptions.from_dict(config.options)
    return [bucket_event(options, config.max_bin, f"buckets of column {number}") for number in range(columns)]


def calibrate(request: CalibrationRequest) -> Mapping[str, Any]:
    """Return the epsilon per value for which all columns of a record stay within the passive party's budget."""
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
    summary="passive parties send randomized buckets of their values once; the active party trains alone on them",
    source="FederBoost, vertical (Tian et al.)",
    statement=Statement(
        (
            of_active(
                data="labels",
                status=Status.HEURISTIC,
                why="no gradient, sum or left/right assignment is sent; the owner of a winning split learns its column "
                "and bucket without noise",
                needs_secrets=False,
            ),
            of_active(
                data="features",
                status=Status.HEURISTIC,
                why="no left/right assignment and nothing about its own columns is sent; whether a passive party's "
                "split wins a node depends on them",
                needs_secrets=False,
            ),
            of_passive(
                data="features",
                status=Status.HEURISTIC,
                why="given the cut points, each bucket is epsilon-locally private, and a record costs the sum over its "
                "columns; the cut points are quantiles of all rows, and the ledger does not count that a change of "
                "one value may move them",
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
        answered=(*ASSIGNMENTS, "table_p"),
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
