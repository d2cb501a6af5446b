"""Writes lattice.json and expansion.json: digests of every byte of a few exchanges, and the sums that came out, by the
NumPy twins."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import expansions
import lattices


def made(by: ModuleType) -> dict[str, dict[str, object]]:
    found = {name: by.exchange(case, "numpy") for name, case in by.golden_levels().items()}
    return {name: {"sha256": each.digests(), "sums": each.decrypted.tolist()} for name, each in found.items()}


if __name__ == "__main__":
    for name, by in (("lattice.json", lattices), ("expansion.json", expansions)):
        Path(__file__).with_name(name).write_text(json.dumps(made(by), indent=1) + "\n", encoding="utf-8")
