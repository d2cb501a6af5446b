"""What aligning rows costs each party: `hmac_csp` with both hashes, and `ecdh`, four parties, over memory channels.

    python bench/align.py [--repeats 3] [--threads 1] [--ecdh-large]

CPU seconds, offline (normalising, hashing, sorting: no other party's rows are needed) and online (the exchange) apart.
Encoding and decoding a message is charged to whoever asked, so a party's figure includes work that its peer, or the
CSP, would do. ELXGB Table 3 gives 501 ms for 2^18 ids at each of 4 parties; it does not say whose, nor what of it.
`ecdh` at 2^18 takes minutes and runs only with --ecdh-large.
"""

from __future__ import annotations

import hmac
import time
from collections import defaultdict
from typing import Any

import numpy as np

from common import arguments, note, report
from veilboost.align.api import ActiveAligner
from veilboost.align.ecdh.messages import BlindOwn
from veilboost.align.hmac_csp.messages import KeyRequest, PrepareHashes
from veilboost.align.memory import MemoryFederation
from veilboost.wire.memory import Handler
from veilboost.wire.message import Message

PARTIES = 4
OFFLINE = (PrepareHashes, KeyRequest, BlindOwn)


class Meter:
    """CPU seconds by (who, phase), where a call made inside another counts for the callee only."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)
        self._running: list[tuple[str, str]] = []
        self._since = 0.0

    def enter(self, who: str, phase: str) -> None:
        self._charge()
        self._running.append((who, phase))

    def leave(self) -> None:
        self._charge()
        self._running.pop()

    def around(self, who: str, handler: Handler) -> Handler:
        def timed(message: Message) -> Message:
            self.enter(who, "offline" if isinstance(message, OFFLINE) else "online")
            try:
                return handler(message)
            finally:
                self.leave()

        return timed

    def _charge(self) -> None:
        now = time.process_time()  # all threads
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now


def make_ids(rows: int) -> dict[str, np.ndarray]:
    """Customer numbers as text; about half of each party's rows are common to all."""
    rng = np.random.default_rng(1)
    names = np.array([f"C{number:09d}" for number in rng.choice(10**9, 2 * rows, replace=False)])
    shared, own = names[: rows // 2], names[rows // 2 :]
    return {
        f"party{k}": rng.permutation(np.concatenate((shared, rng.choice(own, rows - len(shared), replace=False))))
        for k in range(PARTIES)
    }


def run(name: str, ids: dict[str, np.ndarray], hash: str, threads: int) -> dict[str, Any]:
    meter = Meter()
    federation = MemoryFederation(name, ids, "party0", hash=hash, threads=threads, around=meter.around)
    driver: ActiveAligner = federation.driver
    began = time.perf_counter()
    meter.enter("party0", "offline")
    driver.prepare()
    meter.leave()
    prepared = time.perf_counter()
    meter.enter("party0", "online")
    own = driver.align()
    meter.leave()
    ended = time.perf_counter()
    result = federation.result(own)
    who = sorted({who for who, _ in meter.seconds})
    sent = {name: transcript.bytes_sent() for name, transcript in result.transcripts.items()}
    cpu = {
        name: {phase: round(meter.seconds[name, phase], 4) for phase in ("offline", "online")}
        | {"total": round(meter.seconds[name, "offline"] + meter.seconds[name, "online"], 4)}
        for name in who
    }
    return {
        "common_rows": own.rows,
        "rounds": result.rounds,
        "cpu_seconds": cpu,
        "worst_party_cpu_seconds": max(cpu[name]["total"] for name in ids),
        "wall_seconds_all_parties_in_turn": {
            "offline": round(prepared - began, 3),
            "online": round(ended - prepared, 3),
        },
        "bytes_sent": sent,
    }


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
        ids = make_ids(1 << exponent)
        baseline[str(1 << exponent)] = plain_hmac(ids["party0"])
        jobs = [("hmac_csp", "blake2b"), ("hmac_csp", "hmac-sha512")]
        if exponent == 14 or options.ecdh_large:
            jobs.append(("ecdh", "blake2b"))
        for name, hash in jobs:
            repeats = 1 if name == "ecdh" else options.repeats
            runs = [run(name, ids, hash, options.threads) for _ in range(repeats)]
            best = min(runs, key=lambda found: found["worst_party_cpu_seconds"])
            what = f"{name} ({hash})" if name == "hmac_csp" else name
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
