"""What several protocols have to say of themselves, in the same words."""

from __future__ import annotations

from functools import partial

from veilboost.privacy.statement import Protection, Status
from veilboost.protocols.spec import Evidence

of_active = partial(Protection, victim="active", adversary="every passive party")
of_passive = partial(Protection, victim="passive", adversary="the active party")

ROWS_TOGETHER = of_active(
    data="labels, by which rows are together",
    status=Status.BROKEN,
    why="every node's rows are told in the clear, and rows of a leaf have similar labels: a party that "
    "knows a few labels infers most others",
    needs_secrets=False,
)

OWN_SIDES = of_active(
    data="features, by the sides of its winning cuts",
    status=Status.OPEN,
    why="on which side of each winning cut of the active party's own columns a row lies is told to all who keep rows "
    "by node, but for the last level of a tree: the order of its values shows; columns, cuts and values do not",
)

EXACT_SUMS_OF_FEW_ROWS = of_passive(
    data="features, few rows",
    status=Status.BROKEN,
    why="with ten rows or fewer to every sum of one bin, over all nodes and trees, linear programming and the "
    "sides of winning cuts recover most rows' bins",
    needs_secrets=False,
)

# What these statuses rest on.
OWN_FEATURES = Evidence("active", "features", "active_order", True)
LABELS_BY_NODES = Evidence("active", "labels", "instance_clusters", True)
FEATURES_BY_SUMS = Evidence("passive", "features", "histogram_bins", True)
FEATURES_BY_CUTS = Evidence("passive", "features", "feature_order", True)
