"""All messages of secure inference, and the roles that send them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.types import Float64Array, Int32Array, UInt8Array
from veilboost.wire.message import ArraySpec, Done, Message, Reveals

Bytes = Annotated[UInt8Array, ArraySpec("uint8", 1)]
Rows = Annotated[UInt8Array, ArraySpec("uint8", 2)]
Ints = Annotated[Int32Array, ArraySpec("int32", 1)]


@dataclass(frozen=True)
class PublishTask(Message):
    """Active to authority: publish a model with attributes of these parties, served by this CSP."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which parties have a model together, and who is its CSP", "authority"),
    )
    parties: tuple[str, ...]
    csp: str
    scheme: str


@dataclass(frozen=True)
class RegisterAttributes(Message):
    """Active or passive to authority: the party's attributes, as JSON."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("names and categories of every party's columns, and which have missing values", "authority"),
    )
    attributes: str


@dataclass(frozen=True)
class DirectoryRequest(Message):
    """Any role to authority: request the serial numbers and the public service key."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("who uses the service", "authority"),)


@dataclass(frozen=True)
class ServiceDirectory(Message):
    """Authority to any role: the attribute of each serial number, and the public service key."""

    reveals: ClassVar[tuple[Reveals, ...]] = tuple(
        Reveals("names and categories of every party's columns, and which have missing values", role)
        for role in ("active", "passive", "csp", "user")
    )
    attributes: str
    scheme: str
    key: Bytes


@dataclass(frozen=True)
class ServiceKeyRequest(Message):
    """CSP to authority: request the secret service key."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class ServiceKey(Message):
    """Authority to CSP: the secret service key (section 6.3 says S_KT, Algorithm 5 uses S_KS, which is meant).

    `active` published the task; the CSP decides directions for no other party.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the secret service key: it decrypts nodes and users' rows", "csp"),
        Reveals("who serves the model", "csp"),
    )
    key: Bytes
    active: str


@dataclass(frozen=True)
class PrepareService(Message):
    """Active to passive: register your attributes with the authority. Active to CSP: fetch the service key from it."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class NodesRequest(Message):
    """Active to passive: encrypt your nodes of the model under the key that the authority sent you."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class EncryptedNodes(Message):
    """Passive to active: the encrypted threshold vector (T0) of every node that it owns."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which party owns which node, but no attribute or threshold while the CSP keeps its key", "active"),
    )
    tree: Ints
    node: Ints
    vectors: Rows
    key: Bytes  # fingerprint of the public service key used for encryption


@dataclass(frozen=True)
class SecureQuery(Message):
    """User to active: encrypted rows (T1), and the fingerprint of the key used for encryption."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows are queried, but none of their values while the CSP keeps its key", "active"),
    )
    rows: Rows
    key: Bytes


@dataclass(frozen=True)
class SecureScores(Message):
    """Active to user: the model's predictions, (rows, classes or 1)."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("the predictions of its rows", "user"),)
    scores: Annotated[Float64Array, ArraySpec("float64", 2)]


@dataclass(frozen=True)
class BlindedNodes(Message):
    """Active to CSP: the blinded differences (T3) for every row at every node that it reaches."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows reach nodes of how many trees, level by level", "csp"),
        Reveals(
            "with Paillier, the attribute of every visited node, but not whose row visits it",
            "csp",
        ),
        Reveals(
            "threshold minus value, times a random factor of random sign: little of its size",
            "csp",
        ),
    )
    vectors: Rows


@dataclass(frozen=True)
class Directions(Message):
    """CSP to active: whether the value of every blinded node is positive, as packed bits."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the left/right direction of each user's row at every node that it visits", "active"),
    )
    positive: Bytes


@dataclass(frozen=True)
class WithdrawService(Message):
    """Active to authority and CSP: the model is served no longer. Remove its keys; a later publication has new ones."""

    reveals: ClassVar[tuple[Reveals, ...]] = tuple(
        Reveals("that the model is served no longer", role) for role in ("authority", "csp")
    )


SECURE_MESSAGES: tuple[type[Message], ...] = (
    PublishTask,
    RegisterAttributes,
    DirectoryRequest,
    ServiceDirectory,
    ServiceKeyRequest,
    ServiceKey,
    PrepareService,
    NodesRequest,
    EncryptedNodes,
    SecureQuery,
    SecureScores,
    BlindedNodes,
    Directions,
    WithdrawService,
    Done,
)
