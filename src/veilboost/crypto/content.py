"""What noise and ledger call a content by: a digest under a job's secret key."""

from __future__ import annotations

import numpy as np

from veilboost.crypto.csprng import JobRandomness, Part
from veilboost.crypto.fingerprint import fingerprint
from veilboost.types import AnyArray


def content_digest(randomness: JobRandomness, *parts: Part | AnyArray) -> bytes:
    """Sixteen bytes of all that noise protects and of all that says how it is drawn.

    Noise is drawn from `randomness.for_request(..., digest)` and booked under `digest.hex()`. So the same content again
    meets the same noise and costs nothing, and other content meets other noise and is booked beside the first. The
    digest is keyed: who reads it in a ledger, without the job's key, cannot try out what the content was.
    """
    key = randomness.for_request("key of digests").bytes(16)
    named: list[Part] = []
    for part in parts:
        if isinstance(part, str | int | bytes):
            named.append(part)
            continue
        array = np.ascontiguousarray(part)
        named += [f"{array.dtype.str} {array.shape}", fingerprint(key, array.reshape(-1).view(np.uint8))]
    return randomness.for_request("digest of content", *named).bytes(16)
