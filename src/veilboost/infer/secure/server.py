"""The active party with the whole model in its hands, its nodes encrypted: predictions for users, by the CSP's help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from veilboost.boost.tree import LEAF
from veilboost.crypto.csprng import Csprng
from veilboost.errors import MalformedMessage, MissingPart, UnexpectedMessage
from veilboost.infer.secure.attributes import Directory
from veilboost.infer.secure.messages import BlindedNodes, Directions, EncryptedNodes, SecureQuery, SecureScores
from veilboost.infer.secure.scheme import fingerprint, public_service
from veilboost.infer.walk import Walk
from veilboost.model.part import Skeleton
from veilboost.types import Float64Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Peers
from veilboost.wire.message import Message

MESSAGE_BYTES = 1 << 26  # about so much goes to the CSP in one message


class EncryptedModel:
    """Skeleton and encrypted nodes. Passive parties are not needed any more."""

    def __init__(
        self,
        skeleton: Skeleton,
        nodes: Mapping[PartyName, EncryptedNodes],
        directory: Directory,
        scheme: str,
        key: bytes,
        csp: Peers,
        threads: int = 1,
    ) -> None:
        """`csp` has one peer of that name."""
        self._skeleton = skeleton
        self._service = public_service(scheme, key, directory.size, threads)
        self._key = fingerprint(key)
        self._csp = csp
        self._place: dict[tuple[int, int], int] = {}
        parts: list[UInt8Array] = []
        for owner, name in enumerate(skeleton.parties):
            if name not in nodes:
                raise MissingPart(f"there are no encrypted nodes of {name}")
            self._take(owner, name, nodes[name])
            parts.append(nodes[name].vectors)
        self._vectors = np.concatenate([part for part in parts if len(part)]) if self._place else parts[0]

    def _take(self, owner: int, name: PartyName, given: EncryptedNodes) -> None:
        """A party gives the nodes that it owns by the skeleton, each once."""
        keys = list(zip(given.tree.tolist(), given.node.tolist(), strict=True))
        own = {
            (at, node)
            for at, tree in enumerate(self._skeleton.trees)
            for node in np.flatnonzero((tree.left != LEAF) & (tree.owner == owner)).tolist()
        }
        if len(keys) != len(given.vectors) or len(set(keys)) != len(keys) or set(keys) != own:
            raise MalformedMessage(f"{name} encrypted other nodes than it owns")
        if not np.array_equal(given.key, self._key):
            raise MalformedMessage(f"{name} encrypted its nodes under another key", "publish the model again")
        if keys:
            self._service.check_nodes(given.vectors)
        self._place.update({key: len(self._place) + at for at, key in enumerate(keys)})

    def handle(self, message: Message) -> Message:
        """Answer a user."""
        if not isinstance(message, SecureQuery):
            raise UnexpectedMessage(f"{message.type_name()} is not a user's query")
        self.check(message)
        return SecureScores(self.predict([message.rows])[0])

    def check(self, query: SecureQuery) -> None:
        """Refuse a user's rows of another length, key or group."""
        if not np.array_equal(query.key, self._key):
            raise MalformedMessage("the rows are encrypted under another key", "ask the authority for this model's key")
        self._service.check_rows(query.rows)

    def predict(self, queries: Sequence[UInt8Array]) -> list[Float64Array]:
        """Scores for the rows of all queued users, all trees and users together: as many exchanges as levels.

        The rows are those that `check` let pass.
        """
        every = np.concatenate(queries)
        walk = Walk(self._skeleton, len(every))
        while walk.moving:
            index: list[Int64Array] = []
            place: list[int] = []
            for _, pairs in walk.waiting():
                at = [self._place[key] for key in zip(pairs.tree.tolist(), pairs.node.tolist(), strict=True)]
                index.append(pairs.index)
                place += np.repeat(at, pairs.counts).tolist()
            waiting, nodes = np.concatenate(index), np.array(place, dtype=np.int64)
            order = _shuffled(len(waiting))  # what stands next to each other is not of one user, nor of one tree
            at_once = max(1, MESSAGE_BYTES // self._vectors.shape[1])
            for low in range(0, len(order), at_once):
                some = order[low : low + at_once]
                walk.move(waiting[some], self._ask(every, nodes[some], waiting[some] % len(every)))
            walk.settle()
        margins = walk.margins()
        scores = self._skeleton.loss.predict(margins)
        scores = scores[:, None] if scores.ndim == 1 else scores
        return np.split(scores, np.cumsum([len(rows) for rows in queries])[:-1])

    def _ask(self, rows: UInt8Array, nodes: Int64Array, of_rows: Int64Array) -> UInt8Array:
        blinded, turned = self._service.blind(self._vectors, rows, nodes, of_rows)
        answer = self._csp.ask({"csp": BlindedNodes(blinded)}, Directions)["csp"]
        if len(answer.positive) != (len(nodes) + 7) // 8:
            raise MalformedMessage("the CSP answered for another number of nodes")
        positive = np.unpackbits(answer.positive, count=len(nodes))
        return positive ^ turned.astype(np.uint8)  # Alg. 5, lines 16 to 18


def _shuffled(count: int) -> Int64Array:
    return np.argsort(np.frombuffer(Csprng().bytes(8 * count), dtype=np.uint64), kind="stable")
