"""MAL: "Masked Aggregation Learning for Enhancing Distributed Gradient Boosting Decision Trees"."""

from papers.mal.efficiency import TABLE_3
from papers.mal.federboost import FEDERBOOST
from papers.mal.utility import FIGURE_5, TABLE_2
from papers.target import Target

TARGETS: tuple[Target, ...] = (FIGURE_5, TABLE_2, TABLE_3, FEDERBOOST)
