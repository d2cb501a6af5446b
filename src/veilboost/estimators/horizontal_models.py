"""`HorizontalClassifier` and `HorizontalRegressor`: the same columns, rows in different hands."""

from __future__ import annotations

from veilboost.estimators.horizontal import Horizontal, HorizontalParameters
from veilboost.estimators.kinds import Classifier, Regressor


class HorizontalClassifier(Classifier, Horizontal):
    __doc__ = f"""A boosted classifier over rows in different hands.
    {HorizontalParameters.__doc__}"""

    other = "HorizontalRegressor"


class HorizontalRegressor(Regressor, Horizontal):
    __doc__ = f"""A boosted regressor over rows in different hands.
    {HorizontalParameters.__doc__}"""

    other = "HorizontalClassifier"
