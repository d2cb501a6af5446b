"""`VerticalClassifier`: which of several classes, from columns in different hands."""

from __future__ import annotations

from veilboost.estimators.kinds import Classifier
from veilboost.estimators.parameters import Parameters
from veilboost.estimators.vertical import Vertical


class VerticalClassifier(Classifier, Vertical):
    __doc__ = f"""A boosted classifier over columns in different hands.

    A user's own `objective` is for two classes; its margin is read as log odds.
    {Parameters.__doc__}"""

    other = "VerticalRegressor"
