"""What `elxgb` is and claims."""

from __future__ import annotations

from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.api import ProtocolSpec
from veilboost.protocols.common.lattice_messages import LatticeRequest, LatticeRound, LatticeSums
from veilboost.protocols.common.messages import (
    BeginTraining,
    ColumnsOffered,
    EndTraining,
    ResumeTraining,
    SplitAnswer,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.protocols.common.paillier_messages import PaillierRound, PaillierSums
from veilboost.protocols.elxgb.accounting import calibrate, plan
from veilboost.protocols.elxgb.active import ElxgbActive
from veilboost.protocols.elxgb.messages import LocalGains, NoisyRound
from veilboost.protocols.elxgb.options import ElxgbOptions, refuse
from veilboost.protocols.elxgb.passive import ElxgbPassive
from veilboost.wire.message import Done

SPEC = ProtocolSpec(
    name="elxgb",
    setting="vertical",
    summary="the first tree on encrypted gradients, later trees on noisy ones; leaf weights from true gradients",
    source="ELXGB (Xu et al.), Algorithms 1 to 3",
    exact=False,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="gradients of the first tree",
                adversary="every passive party",
                status=Status.SOUND,
                why="under Paillier encryption with a key of 2048 bits or more, or ring-LWE encryption at 128 bits, "
                "for parties that follow the protocol",
            ),
            Protection(
                victim="active",
                data="labels, by noisy gradients of later trees",
                adversary="every passive party",
                status=Status.BROKEN,
                why="at the published epsilon of 10 for every number the noisy gradients of four trees, added up, tell "
                "most labels; releases add up over trees, and without private_leaves leaf weights made of true "
                "gradients tell later releases more than is counted",
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
                data="features",
                adversary="the active party",
                status=Status.HEURISTIC,
                why="exact sums per bin of the first tree, one gain a node of later ones, and the sides of every "
                "winning cut are sent; no attack is known while there are more than four rows to every sum of one bin",
            ),
            Protection(
                victim="passive",
                data="features, few rows",
                adversary="the active party",
                status=Status.BROKEN,
                why="with four rows or fewer to every sum of one bin, over all nodes, linear programming recovers "
                "which rows lie in the bin",
            ),
        )
    ),
    messages=(
        BeginTraining,
        ColumnsOffered,
        PaillierRound,
        PaillierSums,
        LatticeRound,
        LatticeRequest,
        LatticeSums,
        NoisyRound,
        StatisticsRequest,
        LocalGains,
        SplitRequest,
        SplitAnswer,
        ResumeTraining,
        EndTraining,
        Done,
    ),
    active=ElxgbActive,
    passive=ElxgbPassive,
    options=ElxgbOptions,
    refuse=refuse,
    plan=plan,
    calibrate=calibrate,
)
