"""MaskedXGBoost: "Bilateral Differentially Private Vertical Federated Boosted Decision Trees"."""

from papers.maskedxgboost import communication, table2, table3, theorem3, tradeoff
from papers.maskedxgboost.attacks import FIGURE_7, FIGURE_8, FIGURE_13, FIGURE_14
from papers.maskedxgboost.curves import FIGURE_4, FIGURE_5, FIGURE_9, FIGURE_11, FIGURE_12, FIGURE_15
from papers.target import Target

# fmt: off
TARGETS: tuple[Target, ...] = (
    table2.TARGET, table3.TARGET, FIGURE_4, FIGURE_5, FIGURE_7, FIGURE_8, FIGURE_9, theorem3.TARGET,
    communication.TARGET, FIGURE_11, FIGURE_12, FIGURE_13, FIGURE_14, FIGURE_15, tradeoff.TARGET,
)
# fmt: on
