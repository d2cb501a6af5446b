"""Read and check a party's table, which stays local."""

from veilboost.data.datasets import DatasetInfo, list_datasets, load_dataset, make_demo_data
from veilboost.data.load import load_table
from veilboost.data.schema import SchemaRules, check_labels, infer_objective
from veilboost.data.table import PartyTable

__all__ = [
    "DatasetInfo",
    "PartyTable",
    "SchemaRules",
    "check_labels",
    "infer_objective",
    "list_datasets",
    "load_dataset",
    "load_table",
    "make_demo_data",
]
