"""The authority (TA): numbers attributes, makes the service key pair, and gives each half to whom it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.infer.secure.attributes import Attribute, Directory
from veilboost.infer.secure.messages import (
    DirectoryRequest,
    PublishTask,
    RegisterAttributes,
    ServiceDirectory,
    ServiceKey,
    ServiceKeyRequest,
)
from veilboost.infer.secure.scheme import generate
from veilboost.types import PartyName
from veilboost.wire.message import Done, Message


class ServiceAuthority:
    """One task: published once, registered by each of its parties, then open to everybody who may speak to us.

    Who asks is what the channel says, not what a message claims.
    """

    def __init__(
        self, key_bits: int = 2048, allow_insecure_key: bool = False, randomness: Csprng | None = None
    ) -> None:
        self._key_bits, self._allow_insecure = key_bits, allow_insecure_key
        self._random = randomness or Csprng()
        self._task: PublishTask | None = None
        self._registered: dict[PartyName, tuple[Attribute, ...]] = {}

    def state(self) -> dict[str, Any]:
        """What must be kept, keys and all, for an authority that is started again."""
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
        """Take up what `state` gave."""
        if not state:
            return
        task = state["task"]
        self._task = PublishTask(tuple(task["parties"]), task["csp"], task["scheme"])
        self._active = state["active"]
        self._secret, self._public = bytes.fromhex(state["secret"]), bytes.fromhex(state["public"])
        self._registered = {name: _own(text) for name, text in state["registered"].items()}
        self._number(self._task)

    def handle(self, party: PartyName, message: Message) -> Message:
        if isinstance(message, PublishTask):
            return self._publish(party, message)
        if self._task is None:
            raise UnexpectedMessage("no task has been published")
        if isinstance(message, RegisterAttributes):
            return self._register(party, self._task, message)
        if set(self._registered) != set(self._task.parties):
            raise UnexpectedMessage("not all parties have registered their attributes yet")
        if isinstance(message, DirectoryRequest):
            return ServiceDirectory(self._directory.to_json(), self._task.scheme, np.frombuffer(self._public, np.uint8))
        if isinstance(message, ServiceKeyRequest):
            if party != self._task.csp:
                raise UnexpectedMessage("the secret service key is for the CSP of the task only")
            return ServiceKey(np.frombuffer(self._secret, np.uint8), self._active)
        raise UnexpectedMessage(f"{message.type_name()} is not a request to the authority")

    def _publish(self, party: PartyName, message: PublishTask) -> Done:
        if self._task == message:  # again, after something went wrong elsewhere
            return Done()
        if self._task is not None:
            raise UnexpectedMessage("another task has been published under this name")
        # The paper's assumption that the CSP works with no participant begins with its not being one.
        if party not in message.parties or message.csp in message.parties or len(set(message.parties)) < 2:
            raise MalformedMessage("a task needs its active party, another party, and a CSP that is neither")
        self._secret, self._public = generate(message.scheme, self._random, self._key_bits, self._allow_insecure)
        self._task, self._active = message, party
        return Done()

    def _register(self, party: PartyName, task: PublishTask, message: RegisterAttributes) -> Done:
        if party not in task.parties:
            raise UnexpectedMessage("only the parties of the task register attributes")
        found = _own(message.attributes)
        if self._registered.get(party, found) != found:
            raise UnexpectedMessage("this party has registered other attributes already")
        if any(attribute.party != party for attribute in found):
            raise MalformedMessage("a party registers attributes of its own only")
        self._registered[party] = found
        self._number(task)
        return Done()

    def _number(self, task: PublishTask) -> None:
        """Serial numbers, party by party, once all have registered."""
        if set(self._registered) == set(task.parties):
            self._directory = Directory(tuple(a for name in task.parties for a in self._registered[name]))


def _own(text: str) -> tuple[Attribute, ...]:
    """A party's attributes; the active party may have none."""
    return () if text == "[]" else Directory.from_json(text).attributes
