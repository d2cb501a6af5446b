"""The owner of nodes: encrypts their attributes and thresholds for the model at the active party (T0)."""

from __future__ import annotations

from veilboost.errors import UnexpectedMessage
from veilboost.infer.secure.attributes import Directory
from veilboost.infer.secure.messages import EncryptedNodes, NodesRequest
from veilboost.infer.secure.scheme import fingerprint, public_service
from veilboost.model.part import Part
from veilboost.wire.message import Message


def encrypt_part(part: Part, directory: Directory, scheme: str, key: bytes) -> EncryptedNodes:
    """A party's nodes under the public service key; the active party does the same with its own."""
    nodes = directory.nodes_of(part.party, part.columns, part.records)
    vectors = public_service(scheme, key, directory.size).encrypt_nodes(nodes)
    return EncryptedNodes(part.records.tree, part.records.node, vectors, fingerprint(key))


class NodeOwner:
    """A passive party that hands over its encrypted nodes, and may go offline afterwards.

    The directory and the key come from the authority, not from whoever asks: a key of the active party's own making
    would show it every threshold.
    """

    def __init__(self, part: Part, directory: Directory, scheme: str, key: bytes) -> None:
        self._part, self._directory, self._scheme, self._key = part, directory, scheme, key

    def handle(self, message: Message) -> Message:
        if not isinstance(message, NodesRequest):
            raise UnexpectedMessage(f"{message.type_name()} is not a request to an owner of nodes")
        return encrypt_part(self._part, self._directory, self._scheme, self._key)
