"""scikit-learn shells around a federation in one process."""

from veilboost.estimators.vertical import VerticalClassifier, VerticalRegressor

__all__ = ["VerticalClassifier", "VerticalRegressor"]
