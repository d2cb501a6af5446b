"""What MaskedXGBoost's section 6.1 and 6.2 say about their experiments, and what they leave open.

Not stated there, and chosen here: bins (32, the candidates of appendix F), learning rate (0.1), which columns the
active party holds (the first half), and the rows for testing (a fifth).
"""

from papers.tables import sampled
from papers.target import Context
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable

PAPER = "maskedxgboost"
SETS = ("give_credit", "adult", "higgs46k", "bank", "default_credit", "nomao")
FIRST_FOUR = SETS[:4]  # figures 4, 7 and 8
THE_OTHERS = SETS[4:]  # figures 12, 13 and 14, in appendix H
APPENDIX = "appendix-h"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0)
TREES, DEPTH = 60, 6
CONFIG = TrainingConfig(
    objective="binary", n_estimators=TREES, max_depth=DEPTH, max_bin=32, learning_rate=0.1, categories="ordinal"
)
ADULT_ROWS = 32_561  # the paper's "32 651": UCI's training file, without its test file


def table_of(context: Context, name: str, rows: int = 0) -> PartyTable:
    """A data set as the paper has it, or a random sample of so many of its rows."""
    table = context.table(name)
    if name == "adult":
        table = table.take((table.ids < ADULT_ROWS).nonzero()[0])
    return sampled(table, rows) if rows else table
