"""`VerticalRegressor`: how much, from columns in different hands."""

from __future__ import annotations

from veilboost.estimators.kinds import Regressor
from veilboost.estimators.parameters import Parameters
from veilboost.estimators.vertical import Vertical


class VerticalRegressor(Regressor, Vertical):
    __doc__ = f"""A boosted regressor over columns in different hands.

    With a user's own `objective`, predictions are margins.
    {Parameters.__doc__}"""

    other = "VerticalClassifier"
