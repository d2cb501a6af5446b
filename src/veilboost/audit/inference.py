"""What a CSP of secure inference can do with the slots that it is not asked about: the real encryption, attacked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.audit.attacks.decoy_signs import linked, same_side
from veilboost.audit.result import Outcome, share_right
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.integers import from_bytes
from veilboost.crypto.paillier.keys import Owner, PrivateKey
from veilboost.secure_inference.scheme import generate, public_service
from veilboost.types import BoolArray, Int64Array, UInt8Array


def slot_signs(secret: bytes, blinded: UInt8Array, slots: int) -> tuple[Int64Array, BoolArray]:
    """Of every blinded node the attribute's number, and which of its slots (pairs, slots) are positive."""
    p, q = from_bytes(np.frombuffer(secret, dtype=np.uint8).reshape(2, -1))
    private = PrivateKey(p, q)
    width = private.public.width
    every = private.public.read_units(np.ascontiguousarray(blinded).reshape(-1, width))
    plain = Owner(private, 1, Csprng()).decrypt(every)
    serial = np.array([int(value) for value in plain[:: slots + 1]], dtype=np.int64)
    positive = np.array([2 * value < private.public.n for value in plain], dtype=np.bool_)
    return serial, positive.reshape(-1, slots + 1)[:, 1:]


def link_nodes(
    nodes: Sequence[tuple[int, int]], users: Int64Array, rng: np.random.Generator, key_bits: int = 2048
) -> tuple[Outcome, Outcome]:
    """All users (users, M) at all nodes (serial number, threshold), in an order that the CSP is not told.

    How often does it see that two users are at one node, and whether they go to the same side? A short key is as good
    for this as a long one: nothing is broken, the CSP has the key.
    """
    slots = users.shape[1]
    secret, public = generate("paillier", Csprng(), key_bits, allow_insecure=True)
    service = public_service("paillier", public, slots)
    order = rng.permutation(len(nodes) * len(users))
    at_nodes, of_rows = (np.asarray(each, dtype=np.int64) for each in np.divmod(order, len(users)))
    blinded, _ = service.blind(service.encrypt_nodes(nodes), service.encrypt_rows(users), at_nodes, of_rows)
    numbers, signs = slot_signs(secret, blinded, slots)
    names, side = linked(signs, numbers)
    one, other, same = same_side(names, side)
    serial, threshold = np.array(nodes, dtype=np.int64).T
    left = users[of_rows, serial[at_nodes] - 1] <= threshold[at_nodes]
    true = left[one] == left[other]
    found = at_nodes[one] == at_nodes[other]
    # The attribute is told in any case: among the nodes of one attribute a guess is as good as another.
    by_serial = len(np.unique(serial)) / len(nodes)
    same_node = share_right(
        "nodes linked", found, by_serial, f"{int(found.sum())} of {len(found)} pairs are of one node, as the CSP says"
    )
    right, common = same == true, float(max(true.mean(), 1 - true.mean()))
    return same_node, share_right(
        "sides compared",
        right,
        common,
        f"whether two users go to the same side of a node: right for {int(right.sum())} of {len(right)}",
    )
