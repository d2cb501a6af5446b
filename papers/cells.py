"""Measured cells on disk: one JSON line each, appended as they come."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from papers.target import Row

FILE = "cells.jsonl"
_VERSION = version("veilboost")


class Cells:
    """The cells of one target in its folder.

    Cells of other versions of this package count for nothing; a quick run and a full one share the file, and never each
    other's cells.
    """

    def __init__(self, folder: Path, quick: bool) -> None:
        self._file = folder / FILE
        self._quick = quick
        self._known: dict[str, dict[str, Any]] = {}
        self._torn = False  # the last line is that of a run that was killed while writing
        if self._file.exists():
            text = self._file.read_text()
            self._torn = bool(text) and not text.endswith("\n")
            for line in text.splitlines():
                self._remember(line)

    def get(self, key: Row) -> Row | None:
        """Key and values of a cell that was measured before, in one."""
        entry = self._known.get(_name(key))
        return None if entry is None else {**entry["key"], **entry["values"]}

    def seconds(self, key: Row) -> float:
        """What a measured cell took."""
        return float(self._known[_name(key)]["seconds"])

    def add(self, key: Row, values: Row, seconds: float) -> None:
        entry = {
            "version": _VERSION,
            "quick": self._quick,
            "key": dict(key),
            "values": dict(values),
            "seconds": round(seconds, 3),
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(entry)
        with self._file.open("a") as opened:
            opened.write(("\n" if self._torn else "") + line + "\n")
        self._torn = False
        self._remember(line)

    def _remember(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except ValueError:  # half a line
            return
        if entry.get("version") == _VERSION and entry["quick"] == self._quick:
            self._known[_name(entry["key"])] = entry


def _name(key: Row) -> str:
    return json.dumps(dict(key), sort_keys=True)
