"""scikit-learn shells around a federation in one process."""

from veilboost.estimators.classifier import VerticalClassifier
from veilboost.estimators.horizontal_models import HorizontalClassifier, HorizontalRegressor
from veilboost.estimators.regressor import VerticalRegressor

__all__ = ["HorizontalClassifier", "HorizontalRegressor", "VerticalClassifier", "VerticalRegressor"]
