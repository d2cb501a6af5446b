"""MAL: "Masked Aggregation Learning for Enhancing Distributed Gradient Boosting Decision Trees"."""

from veilboost.reproduce.mal.efficiency import TABLE_3
from veilboost.reproduce.mal.federboost import FEDERBOOST
from veilboost.reproduce.mal.utility import FIGURE_5, TABLE_2
from veilboost.reproduce.target import Target

TARGETS: tuple[Target, ...] = (FIGURE_5, TABLE_2, TABLE_3, FEDERBOOST)
