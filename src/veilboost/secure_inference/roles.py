"""The roles of secure inference: authority, owner of nodes, computing service (CSP), active party, user.

The roles handle messages without sockets: `MemoryService` runs all of them in one process, `session` and `client` run
them over TLS.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from veilboost.boost.grower import LEAF
from veilboost.crypto.csprng import Csprng
from veilboost.errors import MalformedMessage, MissingShare, UnexpectedMessage
from veilboost.infer.joint import Routes, Walk
from veilboost.model.share import ModelShare, Skeleton
from veilboost.secure_inference import messages
from veilboost.secure_inference.attributes import Attribute, Directory
from veilboost.secure_inference.scheme import KnownService, generate, secret_service
from veilboost.types import Column, Float64Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Answer, Handler, MemoryChannel, Peers
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.transcript import Transcript

MESSAGE_BYTES = 1 << 26  # approximate limit of one message to the CSP


class ServiceAuthority:
    """The authority (TA): numbers attributes, generates the service key pair, and gives each key to its recipients.

    It serves one task: published once, registered by each of its parties, then available to every admitted peer. The
    channel determines which party calls, not the message.
    """

    def __init__(
        self, key_bits: int = 2048, allow_insecure_key: bool = False, randomness: Csprng | None = None
    ) -> None:
        self._key_bits, self._allow_insecure = key_bits, allow_insecure_key
        self._random = randomness or Csprng()
        self._task: messages.PublishTask | None = None
        self._registered: dict[PartyName, tuple[Attribute, ...]] = {}

    def state(self) -> dict[str, Any]:
        """The state to store, including keys, for a restart of the authority."""
        if self._task is None:
            return {}
        return {
            "task": asdict(self._task),
            "active": self._active,
            "registered": {name: Directory(own).to_json() for name, own in self._registered.items()},
            "secret": self._secret.hex(),
            "public": self._public.hex(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        if not state:
            return
        task = state["task"]
        self._task = messages.PublishTask(tuple(task["parties"]), task["csp"], task["scheme"])
        self._active = state["active"]
        self._secret, self._public = bytes.fromhex(state["secret"]), bytes.fromhex(state["public"])
        self._registered = {name: _own(text) for name, text in state["registered"].items()}
        self._number(self._task)

    def handle(self, party: PartyName, message: Message) -> Message:
        if isinstance(message, messages.PublishTask):
            return self._publish(party, message)
        if isinstance(message, messages.WithdrawService):
            return self._withdraw(party)
        if self._task is None:
            raise UnexpectedMessage("no task has been published")
        if isinstance(message, messages.RegisterAttributes):
            return self._register(party, self._task, message)
        if set(self._registered) != set(self._task.parties):
            raise UnexpectedMessage("not all parties have registered their attributes yet")
        if isinstance(message, messages.DirectoryRequest):
            return messages.ServiceDirectory(
                self._directory.to_json(), self._task.scheme, np.frombuffer(self._public, np.uint8)
            )
        if isinstance(message, messages.ServiceKeyRequest):
            if party != self._task.csp:
                raise UnexpectedMessage("the secret service key is for the CSP of the task only")
            return messages.ServiceKey(np.frombuffer(self._secret, np.uint8), self._active)
        raise UnexpectedMessage(f"{message.type_name()} is not a request to the authority")

    def _publish(self, party: PartyName, message: messages.PublishTask) -> Done:
        if self._task == message:  # repeated after a failure elsewhere
            return Done()
        if self._task is not None:
            raise UnexpectedMessage("another task has been published under this name")
        # The paper assumes that the CSP colludes with no participant, so it must not be one.
        if party not in message.parties or message.csp in message.parties or len(set(message.parties)) < 2:
            raise MalformedMessage("a task needs its active party, another party, and a CSP that is neither of them")
        self._secret, self._public = generate(message.scheme, self._random, self._key_bits, self._allow_insecure)
        self._task, self._active = message, party
        return Done()

    def _withdraw(self, party: PartyName) -> Done:
        if self._task is not None and party != self._active:
            raise UnexpectedMessage("only the party that published a task withdraws it")
        self._task, self._registered = None, {}
        return Done()

    def _register(self, party: PartyName, task: messages.PublishTask, message: messages.RegisterAttributes) -> Done:
        if party not in task.parties:
            raise UnexpectedMessage("only the parties of the task register attributes")
        found = _own(message.attributes)
        if self._registered.get(party, found) != found:
            raise UnexpectedMessage("this party has registered other attributes already")
        if any(attribute.party != party for attribute in found):
            raise MalformedMessage("a party may register only its own attributes")
        self._registered[party] = found
        self._number(task)
        return Done()

    def _number(self, task: messages.PublishTask) -> None:
        """Assign serial numbers, party by party, once all have registered."""
        if set(self._registered) == set(task.parties):
            self._directory = Directory(tuple(a for name in task.parties for a in self._registered[name]))


def _own(text: str) -> tuple[Attribute, ...]:
    """A party's attributes; the active party may have none."""
    return () if text == "[]" else Directory.from_json(text).attributes


def encrypt_share(share: ModelShare, known: KnownService) -> messages.EncryptedNodes:
    """Encrypt a party's nodes under the public service key (T0), for the model at the active party.

    A passive party gets `known` from the authority, not from the party that asks: a key made by the active party would
    reveal every threshold to it.
    """
    nodes = known.directory.nodes_of(share.party, share.columns, share.records)
    return messages.EncryptedNodes(
        share.records.tree, share.records.node, known.public().encrypt_nodes(nodes), known.fingerprint
    )


class DirectionService:
    """The CSP: decides whether the value of every blinded node is positive (ELXGB Alg. 5, lines 10 to 15).

    It does not learn whether positive means left: the sign may have been flipped.
    """

    def __init__(self, known: KnownService, secret: bytes, threads: int = 1) -> None:
        self._service = secret_service(known.scheme, secret, known.directory.size, threads)

    def handle(self, message: Message) -> Message:
        if not isinstance(message, messages.BlindedNodes):
            raise UnexpectedMessage(f"{message.type_name()} is not a request to the CSP")
        return messages.Directions(np.packbits(self._service.directions(message.vectors)))


class EncryptedModel:
    """The active party's skeleton and encrypted nodes. Passive parties are no longer needed."""

    def __init__(
        self,
        skeleton: Skeleton,
        nodes: Mapping[PartyName, messages.EncryptedNodes],
        known: KnownService,
        csp: Peers,
        threads: int = 1,
    ) -> None:
        """`csp` has one peer, named "csp"."""
        self._skeleton, self._routes = skeleton, Routes(skeleton)
        self._service = known.public(threads)
        self._key = known.fingerprint
        self._csp = csp
        self._place = np.full(self._routes.nodes, -1, dtype=np.int64)  # of the vector of each node
        shares: list[UInt8Array] = []
        for owner, name in enumerate(skeleton.parties):
            if name not in nodes:
                raise MissingShare(f"there are no encrypted nodes of {name}")
            self._take(owner, name, nodes[name], sum(map(len, shares)))
            shares.append(nodes[name].vectors)
        some = [share for share in shares if len(share)]
        self._vectors = np.concatenate(some) if some else shares[0]

    def _take(self, owner: int, name: PartyName, given: messages.EncryptedNodes, before: int) -> None:
        """Accept a party's nodes: exactly those that it owns in the skeleton, each once. `before`: nodes of others."""
        keys = list(zip(given.tree.tolist(), given.node.tolist(), strict=False))
        own = {
            (at, node)
            for at, tree in enumerate(self._skeleton.trees)
            for node in np.flatnonzero((tree.left != LEAF) & (tree.owner == owner)).tolist()
        }
        lengths = {len(given.tree), len(given.node), len(given.vectors)}
        if len(lengths) != 1 or len(set(keys)) != len(keys) or set(keys) != own:
            raise MalformedMessage(f"{name} did not encrypt exactly the nodes that it owns")
        if not np.array_equal(given.key, self._key):
            raise MalformedMessage(f"{name} encrypted its nodes under another key", "publish the model again")
        if keys:
            self._service.check_nodes(given.vectors)
        self._place[self._routes.first[given.tree] + given.node] = before + np.arange(len(keys))

    def handle(self, message: Message) -> Message:
        if not isinstance(message, messages.SecureQuery):
            raise UnexpectedMessage(f"{message.type_name()} is not a user's query")
        self.check(message)
        return messages.SecureScores(self.predict([message.rows])[0])

    def check(self, query: messages.SecureQuery) -> None:
        """Refuse a user's rows with another length, key or group."""
        if not np.array_equal(query.key, self._key):
            raise MalformedMessage("the rows are encrypted under another key", "ask the authority for this model's key")
        self._service.check_rows(query.rows)

    def predict(self, queries: Sequence[UInt8Array]) -> list[Float64Array]:
        """Scores for the rows of all queued users, all trees and users together: one exchange per level.

        The rows must have passed `check`.
        """
        every = np.concatenate(queries)
        walk = Walk(self._routes, len(every))
        while len(waiting := walk.moving):
            nodes = self._place[walk.nodes(waiting)]
            # Shuffled, so that neighbouring entries do not belong to one user or one tree.
            order = np.argsort(np.frombuffer(Csprng().bytes(8 * len(waiting)), dtype=np.uint64), kind="stable")
            at_once = max(1, MESSAGE_BYTES // self._vectors.shape[1])
            for low in range(0, len(order), at_once):
                some = order[low : low + at_once]
                walk.move(waiting[some], self._ask(every, nodes[some], waiting[some] % len(every)))
            walk.settle()
        scores = self._skeleton.loss.predict(walk.margins())
        scores = scores[:, None] if scores.ndim == 1 else scores
        return np.split(scores, np.cumsum([len(rows) for rows in queries])[:-1])

    def _ask(self, rows: UInt8Array, nodes: Int64Array, of_rows: Int64Array) -> UInt8Array:
        blinded, flipped = self._service.blind(self._vectors, rows, nodes, of_rows)
        answer = self._csp.ask({"csp": messages.BlindedNodes(blinded)}, messages.Directions)["csp"]
        if len(answer.positive) != (len(nodes) + 7) // 8:
            raise MalformedMessage("the CSP answered for the wrong number of nodes")
        positive = np.unpackbits(answer.positive, count=len(nodes))
        return positive ^ flipped.astype(np.uint8)  # Alg. 5, lines 16 to 18


class QueuedModel:
    """Serves waiting users together, with as many exchanges with the CSP as for one user.

    The first user who finds the model free also serves all users who wait.
    """

    def __init__(self, model: EncryptedModel) -> None:
        self._model = model
        self._queue: list[tuple[UInt8Array, Future[Float64Array]]] = []
        self._adding, self._serving = threading.Lock(), threading.Lock()
        self.batches = 0

    def predict(self, query: messages.SecureQuery) -> Float64Array:
        self._model.check(query)  # one user's invalid rows must not affect the others
        scores = Future[Float64Array]()
        with self._adding:
            self._queue.append((query.rows, scores))
        with self._serving:
            if not scores.done():
                self._serve()
        return scores.result()

    def _serve(self) -> None:
        with self._adding:
            batch, self._queue = self._queue, []
        self.batches += 1
        try:
            found = self._model.predict([rows for rows, _ in batch])
        except BaseException as error:  # every waiting user gets the error
            for _, answer in batch:
                answer.set_exception(error)
            return
        for (_, answer), scores in zip(batch, found, strict=True):
            answer.set_result(scores)


class ServiceUser:
    """Encrypts its rows before sending and receives predictions; `peers` are "authority" and "active"."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        known = KnownService.of(
            peers.ask({"authority": messages.DirectoryRequest()}, messages.ServiceDirectory)["authority"]
        )
        self.directory = known.directory
        self._service, self._key = known.public(), known.fingerprint

    def predict(self, columns: Mapping[str, Column], rows: int) -> Float64Array:
        """Predictions (rows, classes or 1). Columns that no party registered are ignored."""
        values = self.directory.rows_of(columns, rows)
        scores = self._peers.ask({"active": self.query(values)}, messages.SecureScores)["active"].scores
        if len(scores) != rows:
            raise MalformedMessage("received predictions for the wrong number of rows")
        return scores

    def query(self, values: Int64Array) -> messages.SecureQuery:
        """The encrypted query for rows from `Directory.rows_of`."""
        return messages.SecureQuery(self._service.encrypt_rows(values), self._key)


class MemoryService:
    """All roles of a service for a trained model in one process. Additional roles: authority, csp, user."""

    def __init__(
        self,
        shares: Mapping[PartyName, ModelShare],
        active: PartyName,
        attributes: Mapping[PartyName, Sequence[Attribute]],
        scheme: str = "paillier",
        key_bits: int = 2048,
        allow_insecure_key: bool = False,
        threads: int = 1,
    ) -> None:
        skeleton = shares[active].skeleton
        if skeleton is None:
            raise MissingShare(f"the share of {active} has no skeleton: only the active party can predict")
        self._catalogue = Catalogue(messages.SECURE_MESSAGES)
        self.transcripts = {who: Transcript(who) for who in (*shares, "authority", "csp", "user")}
        self.authority = ServiceAuthority(key_bits, allow_insecure_key)
        # ELXGB 2.1: the task is published, attributes are registered and numbered.
        self._ask_authority(active, messages.PublishTask(skeleton.parties, "csp", scheme), Done)
        for name in skeleton.parties:
            own = Directory(tuple(attributes[name]))
            self._ask_authority(name, messages.RegisterAttributes(own.to_json()), Done)
        nodes: dict[PartyName, messages.EncryptedNodes] = {}
        for name, share in shares.items():
            known = KnownService.of(self._ask_authority(name, messages.DirectoryRequest(), messages.ServiceDirectory))
            nodes[name] = encrypt_share(share, known)
            if name != active:
                owner = self.channel(active, name, lambda _, given=nodes[name]: given)
                nodes[name] = Peers({name: owner}).ask({name: messages.NodesRequest()}, messages.EncryptedNodes)[name]
        known = KnownService.of(self._ask_authority("csp", messages.DirectoryRequest(), messages.ServiceDirectory))
        secret = self._ask_authority("csp", messages.ServiceKeyRequest(), messages.ServiceKey).key.tobytes()
        self.directory = known.directory
        self.csp = DirectionService(known, secret, threads)
        csp = Peers({"csp": self.channel(active, "csp", self.csp.handle)})
        self.model = EncryptedModel(skeleton, nodes, known, csp, threads)
        self._active = active

    def user(self) -> ServiceUser:
        return ServiceUser(
            Peers(
                {
                    "authority": self._authority_for("user"),
                    "active": self.channel("user", self._active, self.model.handle),
                }
            )
        )

    def channel(self, caller: str, callee: str, handler: Handler) -> MemoryChannel:
        return MemoryChannel(handler, self._catalogue, self.transcripts[caller], self.transcripts[callee])

    def _authority_for(self, party: PartyName) -> MemoryChannel:
        return self.channel(party, "authority", partial(self.authority.handle, party))

    def _ask_authority(self, party: PartyName, message: Message, kind: type[Answer]) -> Answer:
        return Peers({"authority": self._authority_for(party)}).ask({"authority": message}, kind)["authority"]
