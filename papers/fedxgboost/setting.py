"""What FedXGBoost's section 5 says about its experiments, and what it leaves open.

Not stated there, and chosen here: depth (6), bins (32), learning rate (0.3), which columns the active party holds (the
first half), and the rows for testing (a fifth). Figure 5 ends at the 20th iteration, so 20 trees are grown.
"""

from __future__ import annotations

from typing import Any

from papers.noise import Method
from veilboost.config import TrainingConfig

PAPER = "fedxgboost"
CREDIT_1, CREDIT_2 = "give_credit", "default_credit"
TREES = 20
EPSILONS = (1.0, 3.0)
MECHANISMS = {"laplace": "LM", "duchi": "DM"}  # the paper's abbreviations
ORDERS = ("second", "first")

CONFIG = TrainingConfig(
    objective="binary", n_estimators=TREES, max_depth=6, max_bin=32, learning_rate=0.3, categories="ordinal"
)
PLAIN = Method("Plain XGBoost", "", "plain", {})


def paillier(bits: int) -> Method:
    short = {"allow_insecure_key": True} if bits < 2048 else {}
    return Method("Paillier Encryption", f"{bits} bits", "paillier", {"key_bits": bits, **short})


def ldp(mechanism: str, epsilon: float, order: str, **options: Any) -> Method:
    """FedXGBoost-LDP as published: noise anew for every node, exact sums sent along, right sums what is left."""
    name = f"{MECHANISMS[mechanism]}: eps = {epsilon:g}" + (" First Order" if order == "first" else "")
    own = {"mechanism": mechanism, "epsilon": epsilon, "score": order, "per_node": True, "paper_form": True}
    return Method("FedXGBoost-LDP", name, "ldp", {**own, **options})
