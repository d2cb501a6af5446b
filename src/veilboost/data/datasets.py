"""Tables that are there without a network: our scene, and what scikit-learn ships."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost.data.arrow import ArrowTable, table_of
from veilboost.data.scenes import make_scene
from veilboost.errors import UnknownDataset


@dataclass(frozen=True)
class DatasetInfo:
    """What a person wants to know before loading. `parties` is empty for a single table."""

    name: str
    rows: int
    features: int
    task: str
    about: str
    parties: tuple[str, ...] = ()


_SCENE = DatasetInfo(
    "scene",
    6000,
    22,
    "binary",
    "loan defaults, seen by a bank, a shop and a telecom that share about half of their customers",
    ("bank", "shop", "telecom"),
)
_SCIKIT_LEARN = (
    DatasetInfo("breast_cancer", 569, 30, "binary", "tumours, measured in images of cell nuclei"),
    DatasetInfo("diabetes", 442, 10, "regression", "progression of diabetes one year after"),
    DatasetInfo("digits", 1797, 61, "multiclass", "handwritten digits, without the pixels that are always empty"),
    DatasetInfo("iris", 150, 4, "multiclass", "three kinds of iris, by their petals and sepals"),
    DatasetInfo("wine", 178, 13, "multiclass", "three growers' wines, by their chemistry"),
)


def list_datasets() -> list[DatasetInfo]:
    """What `load_dataset` can load, the scene first."""
    return [_SCENE, *_SCIKIT_LEARN]


def load_dataset(name: str) -> ArrowTable | dict[str, ArrowTable]:
    """Load a built-in data set.

    Parameters
    ----------
    name : str
        A name that `list_datasets` gives.

    Returns
    -------
    pyarrow.Table or dict of str to pyarrow.Table
        One table with `id`, the features and `label`; for a set with parties, a table for each party.

    Raises
    ------
    UnknownDataset
        There is no such set.
    """
    if name == _SCENE.name:
        return make_scene(_SCENE.rows)
    if name not in {info.name for info in _SCIKIT_LEARN}:
        raise UnknownDataset(f"there is no data set {name!r}")
    bunch: Any = getattr(importlib.import_module("sklearn.datasets"), f"load_{name}")()
    data = np.asarray(bunch.data, dtype=np.float64)
    columns: dict[str, Any] = {"id": np.arange(len(data), dtype=np.int64)}
    for position, feature in enumerate(bunch.feature_names):
        if np.ptp(data[:, position]) > 0:
            columns[re.sub(r"\W+", "_", str(feature)).strip("_")] = data[:, position]
    return table_of(columns | {"label": np.asarray(bunch.target)})
