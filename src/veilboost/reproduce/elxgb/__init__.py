"""ELXGB: "An Efficient and Privacy-Preserving XGBoost for Vertical Federated Learning"."""

from veilboost.reproduce.elxgb.accuracy import FIGURE_4
from veilboost.reproduce.elxgb.alignment import TABLE_3
from veilboost.reproduce.elxgb.guesses import TABLE_5
from veilboost.reproduce.elxgb.inference import FIGURE_6
from veilboost.reproduce.elxgb.training import FIGURE_5, FIGURE_7
from veilboost.reproduce.elxgb.verdicts import TABLE_4
from veilboost.reproduce.target import Target

TARGETS: tuple[Target, ...] = (TABLE_3, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, TABLE_4, TABLE_5)
