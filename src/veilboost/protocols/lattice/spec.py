"""What `lattice` is and claims."""

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
)
from veilboost.protocols.common.lattice_active import LatticeActive
from veilboost.protocols.common.lattice_messages import LatticeRequest, LatticeRound, LatticeSums
from veilboost.protocols.common.lattice_passive import LatticePassive
from veilboost.wire.message import Done

SPEC = ProtocolSpec(
    name="lattice",
    setting="vertical",
    summary="gradients under packed ring-LWE encryption; the passive parties sum ciphertexts, exactly",
    source="VeilBoost; packing as ELXGB section 10 asks for",
    exact=True,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="gradients on the way",
                adversary="every passive party, following the protocol",
                status=Status.SOUND,
                why="ring-LWE at 128 bits: N = 4096, log2 q = 100, ternary secrets",
            ),
            Protection(
                victim="active",
                data="labels, by which rows stand together",
                adversary="every passive party",
                status=Status.HEURISTIC,
                why="the rows of every node are told; rows of one leaf have similar labels (instance clustering)",
            ),
            Protection(
                victim="passive",
                data="features",
                adversary="the active party, following the protocol",
                status=Status.BROKEN,
                why="nothing but the exact sums is shown (masks re-randomised, noise flooded to 2^-40 a node), but the "
                "sums of many trees over few rows give the bins away by linear programming; above about four rows "
                "per equation no attack is known",
            ),
        )
    ),
    messages=(
        BeginTraining,
        ColumnsOffered,
        LatticeRound,
        LatticeRequest,
        LatticeSums,
        SplitRequest,
        SplitAnswer,
        ResumeTraining,
        EndTraining,
        Done,
    ),
    active=LatticeActive,
    passive=LatticePassive,
)
