"""What `paillier` is and claims."""

from __future__ import annotations

from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.api import ProtocolSpec
from veilboost.protocols.common.messages import (
    BeginTraining,
    ColumnsOffered,
    EndTraining,
    ResumeTraining,
    SplitAnswer,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.protocols.common.paillier_active import PaillierActive
from veilboost.protocols.common.paillier_messages import PaillierRound, PaillierSums
from veilboost.protocols.common.paillier_options import PaillierOptions, security_bits
from veilboost.protocols.common.paillier_passive import PaillierPassive
from veilboost.wire.message import Done

SPEC = ProtocolSpec(
    name="paillier",
    setting="vertical",
    summary="gradients under additive encryption, summed by the passive parties; exact",
    source="SecureBoost (Cheng et al.), SecureBoost+ (Chen et al.), the papers' HE-XGBoost",
    exact=True,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="gradients",
                adversary="every passive party",
                status=Status.SOUND,
                why="under Paillier encryption with a key of 2048 bits or more, if nobody can decide composite "
                "residuosity; for parties that follow the protocol",
            ),
            Protection(
                victim="active",
                data="labels, by which rows are together",
                adversary="every passive party",
                status=Status.BROKEN,
                why="every node's rows are told in the clear, and rows of a leaf have similar labels: a party that "
                "knows a few labels infers most others",
            ),
            Protection(
                victim="passive",
                data="features, many rows",
                adversary="the active party",
                status=Status.HEURISTIC,
                why="exact sums per bin and the sides of every winning cut are sent; no attack is known on a column's "
                "bins while there are more than four rows to every sum of one bin",
            ),
            Protection(
                victim="passive",
                data="features, few rows",
                adversary="the active party",
                status=Status.BROKEN,
                why="with four rows or fewer to every sum of one bin, over all nodes and trees, linear programming "
                "recovers which rows lie in the bin",
            ),
        )
    ),
    messages=(
        BeginTraining,
        ColumnsOffered,
        PaillierRound,
        StatisticsRequest,
        PaillierSums,
        SplitRequest,
        SplitAnswer,
        ResumeTraining,
        EndTraining,
        Done,
    ),
    active=PaillierActive,
    passive=PaillierPassive,
    options=PaillierOptions,
    security_bits=security_bits,
)
