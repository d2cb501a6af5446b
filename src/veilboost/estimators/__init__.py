"""scikit-learn estimators that train a federation in one process."""

from veilboost.estimators.horizontal import HorizontalClassifier, HorizontalRegressor
from veilboost.estimators.vertical import VerticalClassifier, VerticalRegressor

__all__ = ["HorizontalClassifier", "HorizontalRegressor", "VerticalClassifier", "VerticalRegressor"]
