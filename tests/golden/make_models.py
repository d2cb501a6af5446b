"""Writes models.json: the hashes of the models that exact protocols give on the jobs of the contract tests.

The file changes only in a commit of its own, which says why the models changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scenes import exact_models, exact_protocols

if __name__ == "__main__":
    made = {protocol: exact_models(protocol) for protocol in exact_protocols()}
    Path(__file__).with_name("models.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
