"""What `masked` is and claims: less than its paper."""

from __future__ import annotations

from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.masked.accounting import calibrate, plan
from veilboost.protocols.masked.active import masked_active
from veilboost.protocols.masked.messages import BestGains, MaskedLevel, Masks, NoisedVectors
from veilboost.protocols.masked.options import MaskedOptions, refuse
from veilboost.protocols.masked.passive import masked_passive
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.vertical.messages import LIFECYCLE, BeginRound, SplitAnswer
from veilboost.protocols.vertical.statements import OWN_SIDES

SPEC = ProtocolSpec(
    name="masked",
    setting="vertical",
    summary="gradients under noise that mostly cancels in sums (MaskedXGBoost); its label protection does not hold",
    source="Zhang et al., Bilateral Differentially Private Vertical Federated Boosted Decision Trees",
    exact=False,
    statement=Statement(
        (
            Protection(
                victim="active",
                data="labels",
                adversary="every passive party, which made the masks it gets an answer under",
                status=Status.BROKEN,
                why="projection and stacking off span(B): one candidate's vectors give nearly all labels, two "
                "candidates' the exact gradients; exact sums of every node are sent as well",
            ),
            OWN_SIDES,
            Protection(
                victim="passive",
                data="features",
                adversary="the active party",
                status=Status.BROKEN,
                why="Theorem 3 bounds what one mask tells about one bit; over nested candidates, levels and trees "
                "nothing bounds a record, and the likelihood of a hundred trees' masks shows who is left of a cut at "
                "the default budget; the sides of every winning cut are sent",
            ),
        )
    ),
    messages=(*LIFECYCLE, BeginRound, MaskedLevel, Masks, NoisedVectors, BestGains),
    roles={"active": masked_active, "passive": masked_passive},
    exact_messages=lambda config, first: (MaskedLevel, SplitAnswer),
    options=MaskedOptions,
    refuse=refuse,
    plan=plan,
    calibrate=calibrate,
    sets=False,
    engines=("local", "disk", "ray"),
)
