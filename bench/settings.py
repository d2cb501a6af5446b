"""The settings files of the parties of a benchmark.

It imports nothing of VeilBoost, because `against_worker.py` also runs in checkouts of other commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def write_settings(
    folder: Path,
    party: str,
    parties: Iterable[str],
    protocols: Sequence[str],
    *,
    listen: str = "127.0.0.1:0",
    threads: int | None = 1,
    **policy: Any,
) -> None:
    """Write PARTY.toml: certificates in certs, the table PARTY.parquet, a label at the bank, runs in runs-PARTY.

    `policy`: further settings of the policy, which allows these protocols with all other parties.
    """
    allowed = {"protocols": protocols, "allow_unprotected": protocols, **policy}
    lines = [
        f'name = "{party}"',
        f'listen = "{listen}"',
        f'runs = "runs-{party}"',
        *([] if threads is None else [f"n_jobs = {threads}"]),
        "[certificates]",
        f'cert = "certs/{party}.crt"',
        f'key = "certs/{party}.key"',
        'ca = "certs/ca.crt"',
        "[data]",
        f'path = "{party}.parquet"',
        'id = "id"',
        *(['label = "label"'] if party == "bank" else []),
        "[policy]",
        *(f"{name} = {json.dumps(value)}" for name, value in allowed.items()),
        "[policy.peers]",
        *(f'{other} = ["any"]' for other in parties if other != party),
    ]
    (folder / f"{party}.toml").write_text("\n".join(lines) + "\n")
