"""FedXGBoost: "Privacy-Preserving XGBoost for Federated Learning"."""

from veilboost.reproduce.fedxgboost import overhead
from veilboost.reproduce.fedxgboost.losses import FIGURE_4, FIGURE_5
from veilboost.reproduce.fedxgboost.timing import TABLE_1, TABLE_2
from veilboost.reproduce.target import Target

TARGETS: tuple[Target, ...] = (TABLE_1, TABLE_2, FIGURE_4, FIGURE_5, overhead.TARGET)
