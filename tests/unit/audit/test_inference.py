"""The CSP of secure inference and the slots that it is not asked about."""

from __future__ import annotations

import numpy as np
import pytest

from decoys import link_nodes, linked, ranks_by_decoys, same_side, slot_signs
from veilboost.crypto.csprng import Csprng
from veilboost.secure_inference.scheme import generate, public_service

pytestmark = pytest.mark.fast
M = 12


def model(rng: np.random.Generator, nodes: int, users: int, slots: int = M) -> tuple[list[tuple[int, int]], np.ndarray]:
    serial = rng.integers(1, 4, size=nodes)  # few attributes, so that the number alone does not name the node
    return list(zip(serial.tolist(), rng.integers(-200, 200, size=nodes).tolist(), strict=True)), rng.integers(
        -1000, 1000, size=(users, slots)
    )


def test_decoys_that_stay_name_the_node_and_undo_the_sign() -> None:
    rng = np.random.default_rng(2)
    # Two nodes of one attribute look alike if all decoys have the same signs: 36 pairs, below 36 * 2^-39 < 1e-10.
    nodes, sides = link_nodes(*model(rng, 9, 6, slots=40), rng, key_bits=512)
    assert nodes.sentence.startswith("45 of 45")  # every node has one name: each user but the first is linked to one
    assert nodes.succeeded
    assert sides.value == 1.0
    assert sides.succeeded


def test_signs_of_decoys_say_nothing_of_values() -> None:
    """Plus or minus the same large number by a coin: no rank of any value shows."""
    rng = np.random.default_rng(3)
    nodes, users = model(rng, 24, 6)
    secret, public = generate("paillier", Csprng(), 512, allow_insecure=True)
    service = public_service("paillier", public, M)
    every = service.encrypt_nodes(nodes), service.encrypt_rows(users)
    found = []
    for user in range(len(users)):
        blinded, _ = service.blind(*every, np.arange(len(nodes)), np.full(len(nodes), user))
        serial, signs = slot_signs(secret, blinded, M)
        assert serial.tolist() == [number for number, _ in nodes]
        found.append(np.abs(np.corrcoef(ranks_by_decoys(signs, serial), users[user])[0, 1]))
    assert np.mean(found) < 0.5


def test_decoys_like_thresholds_would_show_every_value() -> None:
    """A control, as published: decoys drawn as values are. Then signs rank the user in every attribute."""
    rng = np.random.default_rng(4)
    nodes, users = model(rng, 24, 6)
    serial = np.array([number for number, _ in nodes])
    decoys, turn = rng.integers(-1000, 1000, size=(len(nodes), M)), rng.choice([-1, 1], size=(len(nodes), 1))
    found = [np.abs(np.corrcoef(ranks_by_decoys(turn * (decoys - user) > 0, serial), user)[0, 1]) for user in users]
    assert np.mean(found) > 0.8


def test_fresh_decoys_for_every_user_would_name_no_node() -> None:
    """A control: what links is that decoys stay."""
    rng = np.random.default_rng(5)
    pairs = 200
    names, side = linked(rng.random((pairs, 30)) < 0.5, np.full(pairs, 2))
    assert len(np.unique(names)) > 190
    assert len(same_side(names, side)[0]) < 10
