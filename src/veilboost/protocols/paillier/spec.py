"""What `paillier` is and claims."""

from __future__ import annotations

from veilboost.privacy.statement import Statement, Status
from veilboost.protocols.paillier.active import PaillierCipher
from veilboost.protocols.paillier.cost import COST, memory
from veilboost.protocols.paillier.messages import PaillierRound, PaillierSums
from veilboost.protocols.paillier.options import PRECOMPUTATION, PaillierOptions, security_bits
from veilboost.protocols.paillier.passive import PaillierPassiveCipher
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.vertical import statements
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer, StatisticsRequest
from veilboost.protocols.vertical.passive import passive_by

SPEC = ProtocolSpec(
    name="paillier",
    setting="vertical",
    summary="gradients under additive encryption, summed by the passive parties; exact",
    source="SecureBoost (Cheng et al.), SecureBoost+ (Chen et al.), the papers' HE-XGBoost",
    exact=True,
    statement=Statement(
        (
            statements.of_active(
                data="gradients",
                status=Status.SOUND,
                why="under Paillier encryption with a key of 2048 bits or more, if nobody can decide composite "
                "residuosity; for parties that follow the protocol",
            ),
            statements.ROWS_TOGETHER,
            statements.OWN_SIDES,
            statements.of_passive(
                data="features, many rows",
                status=Status.HEURISTIC,
                why="exact sums per bin and the sides of every winning cut are sent; with thirty rows or more to every "
                "sum of one bin our attacks left most bins open",
                needs_secrets=False,
            ),
            statements.EXACT_SUMS_OF_FEW_ROWS,
        )
    ),
    messages=(*LIFECYCLE, PaillierRound, StatisticsRequest, PaillierSums),
    roles={"active": active_by(PaillierCipher), "passive": passive_by(PaillierPassiveCipher)},
    exact_messages=lambda config, first: (StatisticsRequest, PaillierSums, SplitAnswer),
    options=PaillierOptions,
    security_bits=security_bits,
    cost=COST,
    memory=memory,
    relative_cost=1000,
    evidence=(statements.LABELS_BY_NODES, statements.OWN_FEATURES, statements.FEATURES_BY_SUMS),
    precompute=PRECOMPUTATION,
)
