"""The cost of entity alignment (PSI) for each party: `hmac_csp` with both hashes, and `ecdh`, over memory channels.

    python bench/align.py [--repeats 3] [--threads 1] [--ecdh-large]

CPU seconds, offline (normalising, hashing, sorting: no other party's rows are needed) and online (the exchange) apart.
Encoding and decoding a message is charged to the requesting party, so its figure includes work that its peer, or the
CSP, would do. ELXGB Table 3 gives 501 ms for 2^18 ids at each of 4 parties; it does not say whose, nor what of it.
`ecdh` runs with the kernel for AVX2 and with libsodium, its baseline; at 2^18 that takes minutes, so it runs only with
--ecdh-large.
"""

from __future__ import annotations

import hmac
import time
from typing import Any
from unittest.mock import patch

import numpy as np

from common import arguments, note, report
from papers.elxgb.alignment import aligning, make_ids
from veilboost import _native

PARTIES = 4


def plain_hmac(ids: np.ndarray) -> float:
    """The baseline: CPU seconds of HMAC-SHA512 called once for each id, and nothing else."""
    texts, key = [text.encode() for text in ids.tolist()], bytes(32)
    began = time.process_time()
    for text in texts:
        hmac.digest(key, text, "sha512")
    return round(time.process_time() - began, 4)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads that blind points")
    parser.add_argument("--ecdh-large", action="store_true", help="ecdh at 2^18 too: minutes")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    baseline: dict[str, float] = {}
    for exponent in (14, 18):
        ids = make_ids(1 << exponent, PARTIES)
        baseline[str(1 << exponent)] = plain_hmac(ids["party0"])
        jobs = [("hmac_csp", "blake2b"), ("hmac_csp", "hmac-sha512")]
        if exponent == 14 or options.ecdh_large:
            jobs += [("ecdh", "kernel"), ("ecdh", "libsodium")]
        for name, by in jobs:
            repeats = 1 if name == "ecdh" else options.repeats
            hash = "blake2b" if name == "ecdh" else by
            with patch.object(_native, "curve_supported", _native.curve_supported if by != "libsodium" else bool):
                runs = [aligning(name, ids, hash, options.threads) for _ in range(repeats)]
            best = min(runs, key=lambda found: found["worst_party_cpu_seconds"])
            what = f"{name} ({by})"
            note(f"2^{exponent} ids, {PARTIES} parties, {what}: {best['worst_party_cpu_seconds']:.3f} s CPU at worst")
            results.append({"alignment": what, "rows_per_party": 1 << exponent, "repeats": repeats, **best})
    report(
        {
            "benchmark": "align",
            "parties": PARTIES,
            "threads": options.threads,
            "target": {"alignment": "hmac_csp (blake2b)", "rows_per_party": 1 << 18, "cpu_seconds_per_party": 0.5},
            "published": {"ELXGB Table 3": {"rows_per_party": 1 << 18, "parties": 4, "seconds": 0.501}},
            "baseline_hmac_sha512_per_call_cpu_seconds": baseline,
            "results": results,
        }
    )


if __name__ == "__main__":
    main()
