"""What Paillier's single operations cost here, and how a whole tree compares with their sum.

The sum counts an encryption per row, an addition of ciphertexts per row and column of every node that is summed, a
step of packing per bin and a decryption per package: what SecureBoost+ would do, with nothing for all the rest.

    python bench/paillier_units.py [--key-bits 2048] [--trees 2]
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import veilboost.protocols.paillier.passive as passive_module
from common import among, arguments, hold_out, load, note, report
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.ciphertexts import Blinder, PairPacking, add, compress
from veilboost.crypto.paillier.integers import halve
from veilboost.crypto.paillier.keys import Owner, generate_key
from veilboost.party.simulation import simulate_training

SAMPLE = 1000


def cpu(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Least CPU seconds of several runs, and the last result."""
    least, result = float("inf"), None
    for _ in range(repeats):
        began = time.process_time()
        result = run()
        least = min(least, time.process_time() - began)
    return least, result


def unit_costs(key_bits: int, rows: int, trees: int, repeats: int) -> dict[str, float]:
    """Microseconds of each operation, and seconds of making the tables."""
    system = Csprng()
    key = generate_key(key_bits, system, allow_insecure=True)
    public = key.public
    table_seconds, owner = cpu(lambda: Owner(key, rows * trees, system), 1)
    blinder_seconds, blinder = cpu(lambda: Blinder(public, 500 * trees, system), 1)
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.integers(-(2**20), 2**20, SAMPLE), rng.integers(0, 2**18, SAMPLE)], axis=1).astype(np.int32)
    packing = PairPacking.for_sums(pairs, rows)
    capacity = packing.capacity(public.bits)
    encrypt, ciphertexts = cpu(lambda: owner.encrypt(packing.pack(pairs), system), repeats)
    addition, _ = cpu(lambda: add(public, ciphertexts, ciphertexts[::-1]), repeats)
    written = public.write(ciphertexts)
    read, _ = cpu(lambda: halve(public.read(written), public.n), repeats)
    some = ciphertexts[: 4 * capacity]
    step, packages = cpu(lambda: compress(public, some, packing.width, capacity), repeats)
    blind, packages = cpu(lambda: blinder.blind(packages, system), repeats)
    decrypt, _ = cpu(lambda: owner.decrypt(packages), repeats)
    return {
        "owner_table_s": table_seconds,
        "blinder_table_s": blinder_seconds,
        "encrypt_us": encrypt / SAMPLE * 1e6,
        "add_us": addition / SAMPLE * 1e6,
        "read_us": read / SAMPLE * 1e6,
        "compress_step_us": step / len(some) * 1e6,
        "blind_us": blind / len(packages) * 1e6,
        "decrypt_us": decrypt / len(packages) * 1e6,
    }


def counting(counts: Counter[str]) -> None:
    """Count the requests to the passive party."""
    summed, packed = passive_module.sums_by_label, passive_module.compress

    def sums_by_label(key: Any, values: Any, labels: Any, widths: Any) -> list[int]:
        counts["additions"] += labels.size
        return summed(key, values, labels, widths)

    def compress_counted(key: Any, sums: Any, width: int, capacity: int, threads: int = 1) -> list[int]:
        packages = packed(key, sums, width, capacity, threads)
        counts["bins"] += len(sums)
        counts["packages"] += len(packages)
        return packages

    passive_module.sums_by_label, passive_module.compress = sums_by_label, compress_counted


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--key-bits", type=int, default=2048)
    parser.add_argument("--trees", type=int, default=2)
    choice = parser.parse_args()
    table = load(choice.data, "default_credit")
    fit, _ = hold_out(table.rows)
    tables = among(table.take(fit), 2)
    counts: Counter[str] = Counter()
    counting(counts)
    seconds: dict[int, float] = {}
    sizes: list[int] = []
    # The tables of a key are made once a job: the difference of two jobs is what trees cost.
    for trees in (1, 1 + choice.trees):
        options = {"key_bits": choice.key_bits, "allow_insecure_key": True}
        config = TrainingConfig(objective="binary", n_estimators=trees, max_depth=6, max_bin=32, options=options)
        counts.clear()
        began = time.process_time()
        run = simulate_training(tables, "party0", "paillier", config)
        seconds[trees] = time.process_time() - began
        sizes.append(run.bytes_sent)
        note(f"{trees} trees: {seconds[trees]:.1f} CPU seconds")
    per_tree = (seconds[1 + choice.trees] - seconds[1]) / choice.trees
    asked = {name: count / (1 + choice.trees) for name, count in counts.items()}
    units = unit_costs(choice.key_bits, len(fit), 100, choice.repeats)
    parts = {
        "encrypt": len(fit) * units["encrypt_us"] / 1e6,
        "add": asked["additions"] * units["add_us"] / 1e6,
        "compress": asked["bins"] * units["compress_step_us"] / 1e6,
        "decrypt": asked["packages"] * units["decrypt_us"] / 1e6,
    }
    report(
        {
            "benchmark": "paillier_units",
            "key_bits": choice.key_bits,
            "rows": len(fit),
            "passive_columns": len(tables["party1"].columns),
            "units": units,
            "per_tree": {
                "asked": asked,
                "sum_of_units_s": parts | {"all": sum(parts.values())},
                "cpu_s": per_tree,
                "ratio": per_tree / sum(parts.values()),
                "megabytes": (sizes[1] - sizes[0]) / choice.trees / 1e6,
            },
        }
    )


if __name__ == "__main__":
    main()
