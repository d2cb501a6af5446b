"""The spec of `secagg`."""

from __future__ import annotations

from veilboost.config import TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.cost import GRADIENTS, STATE_A, VALUE, Cost, Needs, PlannedJob, Room
from veilboost.protocols.horizontal.full_model import TrainedModel
from veilboost.protocols.secagg.accounting import delta_option, plan
from veilboost.protocols.secagg.messages import MESSAGES
from veilboost.protocols.secagg.noise import SecaggOptions, refuse_with_noise
from veilboost.protocols.secagg.participant import SecaggParticipant
from veilboost.protocols.secagg.server import SecaggServer
from veilboost.protocols.spec import Evidence, ProtocolSpec
from veilboost.wire.message import Done


def _memory(job: PlannedJob, columns: int) -> Needs:
    """Participants grow the trees, and keep their columns sorted while cut points are searched."""
    own = float(job.rows) / job.participants
    return Needs(there=Room(own * (VALUE * columns + STATE_A), own * GRADIENTS))


def refuse(config: TrainingConfig) -> None:
    refuse_with_noise(config)
    if config.weighted_bins:
        raise UnsupportedCombination(
            "secagg searches cut points by counting rows, which gives no quantiles of weights",
            "set weighted_bins to False",
        )
    if config.sampling != "uniform":
        raise UnsupportedCombination(
            "secagg draws rows by their ids, and goss needs the largest gradients of all participants",
            "set sampling to uniform, with subsample for the fraction of rows",
        )


SPEC = ProtocolSpec(
    name="secagg",
    setting="horizontal",
    summary="sums the participants' histograms under pairwise masks; the model equals that of pooled data",
    source="FederBoost, horizontal (Tian et al.); masks of Bonawitz et al., without unmasking lost participants",
    exact=True,
    limits_splits=True,
    statement=Statement(
        (
            Protection(
                victim="participant",
                data="its own sums, counts and gradients",
                adversary="the server, alone or with all but two participants",
                status=Status.SOUND,
                why="under the decisional Diffie-Hellman assumption on Curve25519, and with public keys that every "
                "participant signs with its certificate, answers are uniformly random except for the sum over the "
                "participants that do not collude with the server",
            ),
            Protection(
                victim="participant",
                data="sums of a lost participant, with dropouts, as the difference of rounds with it and without it",
                adversary="the server",
                status=Status.UNPROTECTED,
                why="a round opens only the sum over its own participants, but the sums of two rounds with other "
                "participants differ by little more than those of the one that was lost or returned",
            ),
            Protection(
                victim="participant",
                data="rows, through sums over all participants",
                adversary="the server and every participant",
                status=Status.UNPROTECTED,
                why="without epsilon, sums over all participants and the model are exact",
            ),
            Protection(
                victim="participant",
                data="rows, with epsilon, given the schema",
                adversary="the server with up to `colluding` participants, and every participant",
                status=Status.SOUND,
                why="counts and sums have distributed discrete Gaussian noise: for one record the whole job is "
                "(epsilon, delta)-differentially private, if the names and types of columns, categories and classes do "
                "not depend on a single record",
            ),
        )
    ),
    messages=(*MESSAGES, TrainedModel, Done),
    roles={"server": SecaggServer, "participant": SecaggParticipant},
    driver="server",
    fixed={"proposal": "global"},
    refuse=refuse,
    plan=plan,
    options=SecaggOptions,
    delta_option=delta_option,
    counts_rows=False,  # a count would be one more sum that the server learns
    engines=("local",),
    cost=Cost(
        here=("trees", "levels", "uploads"),
        there=("levels", "pair_levels", "tree_rows", "cells", "uploads", "masks"),
        sent=("participants", "levels", "searches", "uploads"),
        answered=("participants", "levels", "searches", "uploads"),
        scale=10_000,
        reach=100,
        once_here=("start", "participants", "searches"),
        once_there=("participants", "pairs", "table", "sorted", "beyond", "searches", "pair_searches"),
    ),
    memory=_memory,
    relative_cost=3,
    evidence=(
        Evidence("participant", "its own sums", "secagg_shares", False),
        Evidence("participant", "sums of a lost participant", "secagg_differences", True),
        Evidence("participant", "rows", "secagg_values", True),
    ),
)
