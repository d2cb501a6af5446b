"""Read and check a party's table, which stays local."""

from veilboost.data.datasets import DatasetInfo, list_datasets, load_dataset, make_demo_data
from veilboost.data.load import check_table, load_table
from veilboost.data.report import DataWarning, TableReport
from veilboost.data.schema import SchemaRules, check_labels, infer_objective
from veilboost.data.table import PartyTable

__all__ = [
    "DataWarning",
    "DatasetInfo",
    "PartyTable",
    "SchemaRules",
    "TableReport",
    "check_labels",
    "check_table",
    "infer_objective",
    "list_datasets",
    "load_dataset",
    "load_table",
    "make_demo_data",
]
