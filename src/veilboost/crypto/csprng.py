"""The only place that makes secret randomness: from the system's generator, or from a seed that a test hands in."""

from __future__ import annotations

import hashlib
import os


class Csprng:
    """A source of secret bytes.

    Without a seed every byte comes from the operating system. With one the bytes are an expansion of it, the same
    in every run: for tests and simulations, never for a party that has something to hide.
    """

    def __init__(self, seed: bytes | None = None) -> None:
        self._seed = seed
        self._drawn = 0

    def bytes(self, count: int) -> bytes:
        if self._seed is None:
            return os.urandom(count)
        # Each draw has a number of its own, so that two draws never share bytes.
        head = len(self._seed).to_bytes(8, "big") + self._seed + self._drawn.to_bytes(8, "big")
        self._drawn += 1
        return hashlib.shake_256(b"veilboost csprng" + head).digest(count)
