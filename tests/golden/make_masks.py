"""Writes masks.json: digests of every byte of a few exchanges under reusable masks, by the NumPy twin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from masked_vectors import by_twin, digests, golden_cases

if __name__ == "__main__":
    made = {name: digests(by_twin(case)) for name, case in golden_cases().items()}
    Path(__file__).with_name("masks.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
