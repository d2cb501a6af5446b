"""The spec of `ldp`."""

from __future__ import annotations

from veilboost.privacy.statement import Statement, Status
from veilboost.protocols import spec
from veilboost.protocols.cost import ALL_NODES_A, ASSIGNMENTS, COMMON_P, GRADIENTS, Cost, Needs, PlannedJob, Room
from veilboost.protocols.ldp.active import ldp_active
from veilboost.protocols.ldp.messages import LdpRequest, LdpRound, LdpScores
from veilboost.protocols.ldp.parameters import LdpOptions, calibrate, plan, refuse
from veilboost.protocols.ldp.passive import LdpPassiveCipher
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer
from veilboost.protocols.vertical.passive import passive_by

_NOISE = 40  # bytes while integer noise is added: noise, values on the grid, sums, clipped sums


def memory(job: PlannedJob, columns: int) -> Needs:
    return Needs(here=Room(0.0, float(job.rows) * (GRADIENTS + _NOISE)))


SPEC = spec.ProtocolSpec(
    name="ldp",
    summary="adds local differential privacy noise to every gradient; passive parties score splits on noisy sums",
    source="XGBoost-LDP (a baseline of MaskedXGBoost), FedXGBoost-LDP (Algorithm 6)",
    statement=Statement(
        (
            spec.of_active(
                data="labels",
                status=Status.HEURISTIC,
                why="each release is differentially private with respect to one label, and releases compose over "
                "trees; but without private_leaves leaf weights are computed from true gradients, so later releases "
                "reveal more about labels than the ledger counts; with paper_form exact sums are sent and nothing is "
                "claimed",
            ),
            spec.OWN_ASSIGNMENTS,
            spec.of_passive(
                data="features",
                status=Status.UNPROTECTED,
                why="the best candidate of every node, its score and the left/right assignments of winning splits are "
                "sent without noise",
            ),
        )
    ),
    messages=(*LIFECYCLE, LdpRound, LdpRequest, LdpScores),
    roles={"active": ldp_active, "passive": passive_by(LdpPassiveCipher)},
    exact_messages=lambda config, first: (LdpRequest, LdpScores, SplitAnswer),
    options=LdpOptions,
    refuse=refuse,
    plan=plan,
    calibrate=calibrate,
    sets=False,
    cost=Cost(
        here=ALL_NODES_A,
        there=(*COMMON_P, "all_cells_p", "all_slots_p"),
        answered=ASSIGNMENTS,
        scale=20_000,
        reach=60,
        asks_ahead=True,
    ),
    memory=memory,
    relative_cost=1.2,
    evidence=(spec.Evidence("active", "labels", "noisy_gradients", False), spec.OWN_FEATURES, spec.FEATURES_BY_CUTS),
)
