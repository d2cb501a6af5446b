"""Parts of the secure service at a daemon: consent, files, and the queue of users."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from veilboost.errors import AgainstPolicy, MalformedMessage, UnknownRun
from veilboost.party.policy import Policy, ServeRequest, decide
from veilboost.secure_inference.attributes import Attribute, Directory
from veilboost.secure_inference.client import ServiceFolder
from veilboost.secure_inference.messages import EncryptedNodes, SecureQuery
from veilboost.secure_inference.roles import QueuedModel
from veilboost.secure_inference.scheme import KnownService

pytestmark = pytest.mark.fast


def test_users_are_served_with_a_partys_splits_only_where_its_owner_says_so():
    peers = {"bank": ("any",), "shop": ("any",)}
    with pytest.raises(AgainstPolicy, match="serve_users"):
        decide(Policy(peers=peers), ServeRequest({"bank": None}, "bank"))
    allowed = Policy(peers=peers, serve_users=("bank",))
    decide(allowed, ServeRequest({"bank": None}, "bank"))
    with pytest.raises(AgainstPolicy, match="serve_users"):
        decide(allowed, ServeRequest({"shop": None}, "shop"))


@pytest.mark.parametrize("name", ["", ".", "..", "../other", "a/b", ".hidden", "/etc"])
def test_a_run_is_named_and_not_a_path(tmp_path, name):
    with pytest.raises(UnknownRun):
        ServiceFolder(tmp_path, name)


def test_what_is_kept_comes_back_and_is_for_its_owner_alone(tmp_path):
    folder = ServiceFolder(tmp_path, "credit")
    with pytest.raises(UnknownRun, match="publish"):
        folder.known()
    known = KnownService(Directory((Attribute("a", "x"),)), "lattice", b"key")
    folder.save_known(known)
    nodes = EncryptedNodes(np.int32([0]), np.int32([0]), np.arange(6, dtype=np.uint8).reshape(1, 6), np.uint8([7]))
    folder.save_nodes("a", nodes)
    assert folder.known() == known
    assert np.array_equal(folder.nodes("a").vectors, nodes.vectors)
    assert folder.nodes("a").key.tolist() == [7]
    assert {file.stat().st_mode & 0o777 for file in folder.path.iterdir()} == {0o600}


def asked(value):
    return SecureQuery(np.array([[value]], dtype=np.uint8), np.uint8([7]))


class Model:
    """Doubles rows; holds the first batch until it is let go."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def check(self, query):
        if query.rows.sum() == 0:
            raise MalformedMessage("nothing but zeros")

    def predict(self, queries):
        self.sizes.append(len(queries))
        self.entered.set()
        assert self.go.wait(30)
        if any(rows.max() > 100 for rows in queries):
            raise MalformedMessage("too large")
        return [rows.astype(np.float64) * 2 for rows in queries]


def test_users_who_wait_are_served_together_and_each_gets_its_own():
    model = Model()
    queued = QueuedModel(model)
    found: dict[int, float] = {}

    def ask(k: int) -> None:
        found[k] = float(queued.predict(asked(k))[0, 0])

    first = threading.Thread(target=ask, args=(1,))
    first.start()
    assert model.entered.wait(30)
    others = [threading.Thread(target=ask, args=(k,)) for k in range(2, 8)]
    for thread in others:
        thread.start()
    while len(queued._queue) < 6:  # all of them stand in line
        pass
    model.go.set()
    for thread in (first, *others):
        thread.join(30)
    assert found == {k: 2.0 * k for k in range(1, 8)}
    assert model.sizes == [1, 6]


def test_a_users_broken_rows_are_its_own_trouble_and_a_failed_batch_everybodys():
    model = Model()
    model.go.set()
    queued = QueuedModel(model)
    with pytest.raises(MalformedMessage, match="zeros"):
        queued.predict(asked(0))
    assert not model.sizes
    with pytest.raises(MalformedMessage, match="too large"):
        queued.predict(asked(200))
    assert queued.predict(asked(1))[0, 0] == 2
