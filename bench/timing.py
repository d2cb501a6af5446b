"""Does a secret show in how long a step takes? Two classes of secrets, measured in turn: Welch's t of their times.

    python bench/timing.py [--draws 4000]

Each step runs on secrets of one class or the other, drawn by a coin, on one thread. The slowest tenth of all times is
left out (the system's doing). |t| above 4.5 is taken for a difference, as is usual for tests of this kind; below it
none was seen with so many draws, which is no proof.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from common import note, report
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.crypto.curve import multiply
from veilboost.crypto.lattice.keys import Blocks, Ciphertext, PublicKey, SecretKey, sizes_for
from veilboost.crypto.paillier.keys import Owner, generate_key
from veilboost.privacy.discrete import discrete_gaussian

Step = Callable[[], Any]
Pair = Callable[[bool], Step]  # makes the step for a secret of the first class (False) or the second
ROWS, FEATURES, WIDTH = 512, 4, 16
THRESHOLD = 4.5


def lattice() -> dict[str, Pair]:
    rng = np.random.default_rng(0)
    secret = SecretKey(Csprng())
    public = PublicKey(secret.public_seed, secret.public_part)
    slots = FEATURES * WIDTH
    sizes = sizes_for(ROWS, slots, FEATURES)
    blocks = Blocks(np.arange(ROWS, dtype=np.int32), np.array([0]), np.array([ROWS]), np.array([ROWS], dtype=np.int32))
    zero = np.zeros(1, dtype=np.int32)
    starts, widths = np.arange(FEATURES, dtype=np.int32) * WIDTH, np.full(FEATURES, WIDTH, dtype=np.int32)

    def values(mixed: bool) -> np.ndarray:
        made = rng.integers(-(1 << 20), 1 << 20, size=(1, ROWS, 2)) if mixed else np.zeros((1, ROWS, 2))
        return made.astype(np.int32)

    def bins(mixed: bool) -> np.ndarray:
        made = rng.integers(0, WIDTH, size=(ROWS, FEATURES)) if mixed else np.zeros((ROWS, FEATURES))
        return np.ascontiguousarray(made, dtype=np.uint8)

    def encrypt(mixed: bool) -> Step:
        own = values(mixed)
        return lambda: secret.encrypt(own, zero, blocks, sizes, Csprng(), 1)

    def summed(ciphertext: Ciphertext, own: np.ndarray) -> Any:
        return public.sum(ciphertext, blocks, [own], zero, starts, widths, sizes, 1)

    def add(mixed: bool) -> Step:
        ciphertext, own = secret.encrypt(values(True), zero, blocks, sizes, Csprng(), 1), bins(mixed)
        return lambda: summed(ciphertext, own)

    def decrypt(mixed: bool) -> Step:
        answer = summed(secret.encrypt(values(mixed), zero, blocks, sizes, Csprng(), 1), bins(True))
        return lambda: secret.decrypt(answer, blocks.run, slots, sizes, 1)

    return {
        "lattice: encrypt (gradients 0 or random)": encrypt,
        "lattice: add up (all rows in one bin or spread)": add,
        "lattice: decrypt (sums 0 or random)": decrypt,
    }


def others() -> dict[str, Pair]:
    rng = np.random.default_rng(0)
    owner = Owner(generate_key(2048, Csprng()), 64, Csprng())
    point = np.frombuffer(b"\x09" + bytes(31), np.uint8)[None].repeat(16, axis=0)

    def paillier_encrypt(mixed: bool) -> Step:
        plain = [int(x) if mixed else 0 for x in rng.integers(1, 1 << 60, size=4)]
        return lambda: owner.encrypt(plain, Csprng())

    def paillier_decrypt(mixed: bool) -> Step:
        sent = owner.encrypt([int(x) if mixed else 0 for x in rng.integers(1, 1 << 60, size=4)], Csprng())
        return lambda: owner.decrypt(sent)

    def x25519(mixed: bool) -> Step:
        scalar = rng.bytes(32) if mixed else b"\x08" + bytes(31)
        return lambda: multiply(point, scalar)

    def gaussian(mixed: bool) -> Step:
        """The same seed draws the same noise: eight small ones, or eight large ones."""
        while True:
            key = rng.bytes(32)
            size = np.abs(discrete_gaussian(JobRandomness(key).for_request("noise"), 1000.0, 8)).sum()
            if size > 9000 if mixed else size < 4500:
                return lambda: discrete_gaussian(JobRandomness(key).for_request("noise"), 1000.0, 8)

    return {
        "paillier: encrypt (0 or random)": paillier_encrypt,
        "paillier: decrypt (0 or random)": paillier_decrypt,
        "X25519: multiply (scalar 8 or random)": x25519,
        "discrete Gaussian (small or large noise)": gaussian,
    }


def difference(step: Pair, draws: int) -> dict[str, float]:
    rng = np.random.default_rng(1)
    times: tuple[list[float], list[float]] = ([], [])
    for mixed in rng.integers(0, 2, size=draws).astype(bool).tolist():
        run = step(mixed)
        began = time.perf_counter_ns()
        run()
        times[mixed].append(time.perf_counter_ns() - began)
    limit = np.quantile(np.concatenate(times), 0.9)
    first, second = (np.array([each for each in one if each <= limit]) for one in times)
    error = math.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    t = float((second.mean() - first.mean()) / error)
    return {"t": t, "mean_us": first.mean() / 1e3, "difference_us": (second.mean() - first.mean()) / 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4000)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name, step in (lattice() | others()).items():
        found[name] = result = difference(step, options.draws)
        result["seen"] = bool(abs(result["t"]) > THRESHOLD)
        note(f"{name}: t = {result['t']:.1f}, {result['difference_us']:+.2f} of {result['mean_us']:.0f} us")
    report({"draws": options.draws, "threshold": THRESHOLD, "steps": found})


if __name__ == "__main__":
    main()
