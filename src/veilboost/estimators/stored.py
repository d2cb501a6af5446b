"""What the parts of a model do not say about the estimator that trained it, in one small file beside them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from veilboost.errors import DamagedModel, ModelVersion, UnreadableModel

FILE = "estimator.json"
_FORMAT, _VERSION = "veilboost-estimator", 1


@dataclass(frozen=True)
class Description:
    """How rows come in and what the classes are called.

    Attributes
    ----------
    id
        The column to align rows by.
    columns
        The columns of the one matrix that was divided among the parties; None where each party had a table.
    named
        Whether these names are the caller's own.
    classes
        The labels of a classifier, in the type they had.
    """

    id: str | None = None
    columns: tuple[str, ...] | None = None
    named: bool = False
    classes: tuple[str | int | float, ...] | None = None


def write_description(description: Description, folder: Path, model_sha256: str) -> None:
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "model_sha256": model_sha256,
        "id": description.id,
        "columns": description.columns,
        "named": description.named,
        "classes": description.classes,
    }
    # Only for its owner, as the parts are: it names columns.
    handle = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)


def read_description(folder: Path, model_sha256: str) -> Description:
    """What `write_description` wrote. A model that no estimator wrote has a table per party and no more to say."""
    path = folder / FILE
    if not path.exists():
        return Description()
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableModel(f"{path} is not JSON") from error
    values = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    if values.get("format") != _FORMAT or not isinstance(values.get("version"), int):
        raise UnreadableModel(f"{path} is not the description of an estimator")
    if values["version"] > _VERSION:
        raise ModelVersion(f"{path} has format {values['version']}, and this release reads {_VERSION}")
    if values.get("model_sha256") != model_sha256:
        raise DamagedModel(f"{path} describes another model than the parts beside it", "save the estimator again")
    id, named = values.get("id"), values.get("named")
    if not isinstance(id, str | None) or not isinstance(named, bool):
        raise UnreadableModel(f"{path} contradicts itself")
    return Description(
        id, _items(values, "columns", (str,), path), named, _items(values, "classes", (str, int, float), path)
    )


def _items(values: dict[str, Any], key: str, kinds: tuple[type, ...], path: Path) -> tuple[Any, ...] | None:
    """A list of different values of one type, or None."""
    items = values.get(key)
    if items is None:
        return None
    found = cast("list[object]", items) if isinstance(items, list) else [None]
    if len({type(item) for item in found}) != 1 or not isinstance(found[0], kinds) or len(set(found)) < len(found):
        raise UnreadableModel(f"{path} has {key} that are not a list of different values of one type")
    return tuple(found)
