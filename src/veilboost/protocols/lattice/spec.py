"""What `lattice` is and claims."""

from __future__ import annotations

from functools import partial

from veilboost.crypto.lattice.keys import SECURITY_BITS
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.lattice.active import LatticeCipher
from veilboost.protocols.lattice.cost import COST, memory
from veilboost.protocols.lattice.messages import LatticeMore, LatticeRequest, LatticeRound, LatticeSums
from veilboost.protocols.lattice.passive import LatticePassiveCipher
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.vertical import statements
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import LIFECYCLE, SplitAnswer
from veilboost.protocols.vertical.passive import passive_by

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
            statements.ROWS_TOGETHER,
            statements.OWN_SIDES,
            Protection(
                victim="passive",
                data="features, many rows",
                adversary="the active party, following the protocol",
                status=Status.HEURISTIC,
                why="nothing but exact sums is shown (masks re-randomised, noise flooded to 2^-40 a block of rows) and "
                "the sides of every winning cut; with thirty rows or more to every sum of one bin our attacks left "
                "most bins open",
            ),
            statements.EXACT_SUMS_OF_FEW_ROWS,
        )
    ),
    messages=(*LIFECYCLE, LatticeRound, LatticeRequest, LatticeMore, LatticeSums),
    roles={
        "active": active_by(partial(LatticeCipher, streams=True)),
        "passive": passive_by(partial(LatticePassiveCipher, streams=True)),
    },
    exact_messages=lambda config, first: (LatticeRequest, LatticeSums, SplitAnswer),
    security_bits=lambda config: SECURITY_BITS,
    cost=COST,
    memory=memory,
    relative_cost=8,
    evidence=(statements.LABELS_BY_NODES, statements.OWN_FEATURES, statements.FEATURES_BY_SUMS),
)
