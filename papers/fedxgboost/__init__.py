"""FedXGBoost: "Privacy-Preserving XGBoost for Federated Learning"."""

from papers.fedxgboost import overhead
from papers.fedxgboost.losses import FIGURE_4, FIGURE_5
from papers.fedxgboost.timing import TABLE_1, TABLE_2
from papers.target import Target

TARGETS: tuple[Target, ...] = (TABLE_1, TABLE_2, FIGURE_4, FIGURE_5, overhead.TARGET)
