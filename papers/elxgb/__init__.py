"""ELXGB: "An Efficient and Privacy-Preserving XGBoost for Vertical Federated Learning"."""

from papers.elxgb.accuracy import FIGURE_4
from papers.elxgb.alignment import TABLE_3
from papers.elxgb.guesses import TABLE_5
from papers.elxgb.inference import FIGURE_6
from papers.elxgb.training import FIGURE_5, FIGURE_7
from papers.elxgb.verdicts import TABLE_4
from papers.target import Target

TARGETS: tuple[Target, ...] = (TABLE_3, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, TABLE_4, TABLE_5)
