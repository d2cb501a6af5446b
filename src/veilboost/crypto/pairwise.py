"""Pairwise masks that cancel in the sum: every pair shares a key; one member adds its stream, the other subtracts it.

Sums are integers modulo a power of two. A stream belongs to one label, which names what is summed; the same label gives
the same stream, so a label must never be used for two different contents.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from veilboost.crypto.csprng import Csprng
from veilboost.errors import MalformedMessage
from veilboost.types import UInt64Array

KEY_BYTES = 32


class PairwiseMasks:
    """One member of a group. `private` is secret and fresh for every session."""

    def __init__(self, private: bytes) -> None:
        self._private = X25519PrivateKey.from_private_bytes(private)
        self.public = self._private.public_key().public_bytes_raw()
        self._before: list[bytes] = []  # keys shared with the members before this one, who add
        self._after: list[bytes] = []
        self._secrets: dict[bytes, bytes] = {}  # shared with other members, by their public keys
        self._confirming: list[bytes] = []  # keys that prove to each member what this one agreed to

    def agree(self, publics: Sequence[bytes]) -> None:
        """Set the public keys of all members, in the same order for all; this member's key occurs exactly once.

        A member may agree to one group after another: each has other streams.
        """
        if publics.count(self.public) != 1 or len(set(publics)) != len(publics):
            raise MalformedMessage("the list of public keys is not that of this group")
        own = list(publics).index(self.public)
        group = hashlib.sha256(b"".join(publics)).digest()  # a different group has different streams
        try:
            secrets = [b"" if at == own else self._shared(public) for at, public in enumerate(publics)]
        except ValueError:
            raise MalformedMessage("a public key is not on this curve") from None
        keys = [hmac.digest(secret, b"veilboost pairwise" + group, "sha256") for secret in secrets]
        self._before, self._after = keys[:own], keys[own + 1 :]
        self._confirming = [hmac.digest(secret, b"veilboost confirmation" + group, "sha256") for secret in secrets]

    def _shared(self, public: bytes) -> bytes:
        if public not in self._secrets:
            self._secrets[public] = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        return self._secrets[public]

    def confirmations(self, content: bytes) -> list[bytes]:
        """For each member in turn, a proof that this member agrees to `content`; only that member can check it."""
        own = len(self._before)
        return [_confirmation(key, own, content) for key in self._confirming]

    def confirmed(self, content: bytes, proofs: Sequence[bytes]) -> bool:
        """Whether these proofs, one of each member in turn, show that all others agree to `content`."""
        if len(proofs) != len(self._confirming):
            return False
        expected = [_confirmation(key, at, content) for at, key in enumerate(self._confirming)]
        own = len(self._before)
        pairs = [pair for at, pair in enumerate(zip(expected, proofs, strict=True)) if at != own]
        return all(hmac.compare_digest(*pair) for pair in pairs)

    def hide(self, values: UInt64Array, label: bytes) -> UInt64Array:
        """Values plus this member's masks, modulo 2^64."""
        hidden = values.copy()
        flat = hidden.reshape(-1)
        for key in self._after:
            flat += _stream(key, label, flat.size)
        for key in self._before:
            flat -= _stream(key, label, flat.size)
        return hidden

    def hide_number(self, value: int, size: int, label: bytes) -> bytes:
        """One large number plus this member's masks, modulo 2^(8 size)."""
        for sign, keys in ((1, self._after), (-1, self._before)):
            for key in keys:
                value += sign * int.from_bytes(_bytes(key, label, size), "little")
        return (value % (1 << 8 * size)).to_bytes(size, "little")


def _confirmation(key: bytes, sender: int, content: bytes) -> bytes:
    return hmac.digest(key, sender.to_bytes(4, "big") + content, "sha256")


def _stream(key: bytes, label: bytes, count: int) -> UInt64Array:
    return np.frombuffer(_bytes(key, label, 8 * count), "<u8").astype(np.uint64, copy=False)


def _bytes(key: bytes, label: bytes, count: int) -> bytes:
    return Csprng(hmac.digest(key, label, "sha256")).bytes(count)
