"""The three order-revealing schemes: bytes of a ciphertext, processor seconds to encrypt and to compare.

python bench/ore.py [--repeats N]
"""

from __future__ import annotations

import random
import time

from common import arguments, note, report
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.ore.api import keygen
from veilboost.crypto.ore.schemes import scheme_named

RUNS = (("lewi_wu", 64, 300), ("clww", 64, 300), ("pore", 32, 3), ("pore", 64, 2))


def measure(name: str, bits: int, count: int) -> dict:
    scheme, keys, draw = scheme_named(name, bits), keygen(Csprng()), random.Random(1)
    values = [draw.getrandbits(bits) for _ in range(count)]
    began = time.process_time()
    made = [scheme.encrypt(keys, value, Csprng()) for value in values]
    encrypt = (time.process_time() - began) / count
    pairs = list(zip(range(count), range(1, count), strict=False))
    began = time.process_time()
    right = sum(
        scheme.compare(keys.comparison, made[a], made[b]) == (values[a] > values[b]) - (values[a] < values[b])
        for a, b in pairs
    )
    compare = (time.process_time() - began) / len(pairs)
    return {
        "scheme": name, "bits": bits, "bytes": scheme.size, "encrypt_ms": 1e3 * encrypt, "compare_ms": 1e3 * compare,
        "comparisons_per_second": 1 / compare, "right": right, "of": len(pairs),
    }  # fmt: skip


def main() -> None:
    options = arguments(__doc__).parse_args()
    rows = []
    for name, bits, count in RUNS:
        best = min(
            (measure(name, bits, count) for _ in range(options.repeats if name != "pore" else 1)),
            key=lambda row: row["compare_ms"],
        )
        rows.append(best)
        note(str(best))
    report({"schemes": rows, "paper_compare_ms": 79})


if __name__ == "__main__":
    main()
