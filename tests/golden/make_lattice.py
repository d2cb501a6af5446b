"""Writes lattice.json: digests of every byte of a few exchanges, and the sums that came out, by the NumPy twin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lattices import exchange, golden_levels


def made() -> dict[str, dict[str, object]]:
    found = {name: exchange(case, "numpy") for name, case in golden_levels().items()}
    return {name: {"sha256": each.digests(), "sums": each.decrypted.tolist()} for name, each in found.items()}


if __name__ == "__main__":
    Path(__file__).with_name("lattice.json").write_text(json.dumps(made(), indent=1) + "\n", encoding="utf-8")
