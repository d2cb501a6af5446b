"""The small file beside the model shares of a saved estimator."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from veilboost.durable import replace_file
from veilboost.errors import DamagedModel, ModelVersion, UnreadableModel

FILE = "estimator.json"
_FORMAT, _VERSION = "veilboost-estimator", 2


@dataclass(frozen=True)
class Description:
    """Facts about an estimator that the model shares do not hold, stored in a small file beside them.

    Attributes
    ----------
    id : str or None
        The record-id column that rows were aligned by.
    columns : tuple of str or None
        The columns of the single input matrix; None if each party had its own table.
    named : bool
        Whether the caller named these columns.
    classes : tuple or None
        The classes of a classifier, in their original type.
    missing_values : tuple of str or None
        The values that stand for missing ones.
    """

    id: str | None = None
    columns: tuple[str, ...] | None = None
    named: bool = False
    classes: tuple[str | int | float, ...] | None = None
    missing_values: tuple[str, ...] | None = None


def write_description(description: Description, folder: Path, model_sha256: str) -> None:
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "model_sha256": model_sha256,
        **asdict(description),
    }
    # Readable by its owner only, like the shares: it names columns.
    replace_file(folder / FILE, json.dumps(content, indent=1).encode())


def read_description(folder: Path, model_sha256: str) -> Description:
    """Read the file that `write_description` wrote; the default `Description` if there is none."""
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
        raise DamagedModel(f"{path} describes another model than the shares beside it", "save the estimator again")
    id, named = values.get("id"), values.get("named")
    if not isinstance(id, str | None) or not isinstance(named, bool):
        raise UnreadableModel(f"{path} has a wrong type for id or named")
    return Description(
        id,
        _items(values, "columns", (str,), path),
        named,
        _items(values, "classes", (str, int, float), path),
        _items(values, "missing_values", (str,), path),
    )


def _items(values: dict[str, Any], key: str, kinds: tuple[type, ...], path: Path) -> tuple[Any, ...] | None:
    """A list of distinct values of one type, or None."""
    items = values.get(key)
    if items is None:
        return None
    found = cast("list[object]", items) if isinstance(items, list) else [None]
    if len({type(item) for item in found}) != 1 or not isinstance(found[0], kinds) or len(set(found)) < len(found):
        raise UnreadableModel(f"{path} has {key} that are not a list of distinct values of one type")
    return tuple(found)
