"""Sizes: the ring, the noise, and how large a sum may be. One home for every number and its reason (ADR 0020)."""

from __future__ import annotations

import math
from dataclasses import dataclass

DEGREE = 4096  # N: ring Z_q[X] / (X^N + 1)
PRIMES = (1125899906826241, 1125899906629633)  # the largest below 2^50 that are 1 modulo 2N; q is their product
ROOTS = (1094367314627419, 967006076000656)  # of order 2N
# Classical. For N = 4096 and a ternary secret log2 q may be 106 (Bossuat and others, "Security Guidelines for
# Implementing Homomorphic Encryption", 2024); ours is 100.
SECURITY_BITS = 128
RESIDUE_BITS = 50
POLYNOMIAL_BYTES = DEGREE * RESIDUE_BITS // 8  # one polynomial modulo one prime
SEED_BYTES = 32
ERROR_COINS = 21  # centred binomial errors
ERROR_SIGMA = math.sqrt(ERROR_COINS / 2)  # 3.24
FLOOD_BITS = 40  # statistical distance of a node's answer from one that depends on nothing but the sums: 2^-40
LEAST_RUN, MOST_RUN = 64, DEGREE
MOST_LOG_FLOOD = 62  # a flood is a signed number of 64 bits

_TERNARY_VARIANCE = 2 / 3
_LEAST_LOG_FLOOD = 57  # below it the rounding of the modulus switch, 2^56.9 at eight sigma, would not fit beside it


@dataclass(frozen=True, order=True)
class Sizes:
    """Messages are scaled by 2^log_delta, wanted coefficients flooded by 2^log_flood; sums of size up to
    `largest_sum` come back exactly."""

    log_flood: int

    @property
    def log_delta(self) -> int:
        # Flood, noise and rounding together stay below delta / 2: 2^f + 2^(f-1) + ... < 2^(f+1).
        return self.log_flood + 2

    @property
    def largest_sum(self) -> int:
        return (PRIMES[0] * PRIMES[1] // 2 >> self.log_delta) - 1

    def rows_per_block(self, value_bits: int) -> int:
        """How many rows of values up to 2^value_bits may be summed together."""
        return self.largest_sum >> value_bits


def sizes_for(rows: int, slots: int, features: int, families: int = 2) -> Sizes:
    """How much flooding a block of so many rows needs, and what room it leaves.

    The noise of a wanted coefficient is a sum of errors over the hits of its tile (rows that fall into it, once for
    each feature), of u times the key's error and of the mask's error times s. Uniform noise in [-B, B) hides a value x
    up to a statistical distance of |x| / 2B; a block's values together: families * slots * E|x| / 2B. All tiles have
    rows * features hits together; roots are concave, so the sum is largest where they are spread evenly over slots.
    """
    hits = rows * features * min(1.0, DEGREE / LEAST_RUN / max(slots, 1))
    deviation = ERROR_SIGMA * math.sqrt(hits + 2 * DEGREE * _TERNARY_VARIANCE)
    together = families * slots * deviation * math.sqrt(2 / math.pi)
    needed = math.ceil(FLOOD_BITS + math.log2(max(together, 1.0)) - 1)
    return Sizes(max(needed, _LEAST_LOG_FLOOD))


def sizes_for_job(rows: int, value_bits: int, slots: int, features: int) -> Sizes | None:
    """The least flooding that hides the sums of a job of so many rows, whose values are at most 2^value_bits in size.

    More flooding leaves less room for sums, so that a block has fewer rows and needs less of it. None where there is no
    room for even one run of rows.
    """
    for log_flood in range(_LEAST_LOG_FLOOD, MOST_LOG_FLOOD + 1):
        sizes = Sizes(log_flood)
        block = min(rows, sizes.rows_per_block(value_bits))
        if block >= min(rows, LEAST_RUN) and sizes_for(block, slots, features).log_flood <= log_flood:
            return sizes
    return None


def run_length(rows: int, slots: int) -> int:
    """Rows in one ciphertext: more rows mean fewer ciphertexts in and more tiles out, least in all near here."""
    best = math.sqrt(2 * DEGREE * max(rows, 1) / max(slots, 1))
    return min(MOST_RUN, max(LEAST_RUN, 1 << round(math.log2(max(best, 1.0)))))
