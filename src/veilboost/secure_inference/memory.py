"""All roles of secure inference in one process, with the same messages as between companies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veilboost.errors import MissingPart
from veilboost.model.part import Part
from veilboost.secure_inference import messages
from veilboost.secure_inference.attributes import Attribute, Directory
from veilboost.secure_inference.roles import (
    DirectionService,
    EncryptedModel,
    ServiceAuthority,
    ServiceUser,
    encrypt_part,
)
from veilboost.secure_inference.scheme import KnownService
from veilboost.types import PartyName
from veilboost.wire.channel import Answer, Handler, MemoryChannel, Peers
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.transcript import Transcript


class MemoryService:
    """A trained model, encrypted and ready for users. Roles not named after parties: authority, csp, user."""

    def __init__(
        self,
        parts: Mapping[PartyName, Part],
        active: PartyName,
        attributes: Mapping[PartyName, Sequence[Attribute]],
        scheme: str = "paillier",
        key_bits: int = 2048,
        allow_insecure_key: bool = False,
        threads: int = 1,
    ) -> None:
        skeleton = parts[active].skeleton
        if skeleton is None:
            raise MissingPart(f"the part of {active} has no skeleton: only the active party can predict")
        self._catalogue = Catalogue(messages.SECURE_MESSAGES)
        self.transcripts = {who: Transcript(who) for who in (*parts, "authority", "csp", "user")}
        self.authority = ServiceAuthority(key_bits, allow_insecure_key)
        # ELXGB 2.1: the task is published, attributes are registered and numbered.
        self._ask_authority(active, messages.PublishTask(skeleton.parties, "csp", scheme), Done)
        for name in skeleton.parties:
            own = Directory(tuple(attributes[name]))
            self._ask_authority(name, messages.RegisterAttributes(own.to_json()), Done)
        nodes: dict[PartyName, messages.EncryptedNodes] = {}
        for name, part in parts.items():
            known = KnownService.of(self._ask_authority(name, messages.DirectoryRequest(), messages.ServiceDirectory))
            nodes[name] = encrypt_part(part, known)
            if name != active:
                owner = self.channel(active, name, lambda _, given=nodes[name]: given)
                nodes[name] = Peers({name: owner}).ask({name: messages.NodesRequest()}, messages.EncryptedNodes)[name]
        known = KnownService.of(self._ask_authority("csp", messages.DirectoryRequest(), messages.ServiceDirectory))
        secret = self._ask_authority("csp", messages.ServiceKeyRequest(), messages.ServiceKey).key.tobytes()
        self.directory = known.directory
        self.csp = DirectionService(known, secret, threads)
        way = Peers({"csp": self.channel(active, "csp", self.csp.handle)})
        self.model = EncryptedModel(skeleton, nodes, known, way, threads)
        self._active = active

    def user(self) -> ServiceUser:
        """A new user of the service."""
        return ServiceUser(
            Peers(
                {
                    "authority": self.channel("user", "authority", self._asked_by("user")),
                    "active": self.channel("user", self._active, self.model.handle),
                }
            )
        )

    def channel(self, caller: str, callee: str, handler: Handler) -> MemoryChannel:
        return MemoryChannel(handler, self._catalogue, self.transcripts[caller], self.transcripts[callee])

    def _asked_by(self, party: PartyName) -> Handler:
        def handle(message: Message) -> Message:
            return self.authority.handle(party, message)

        return handle

    def _ask_authority(self, party: PartyName, message: Message, kind: type[Answer]) -> Answer:
        peers = Peers({"authority": self.channel(party, "authority", self._asked_by(party))})
        return peers.ask({"authority": message}, kind)["authority"]
