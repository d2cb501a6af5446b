"""Clients of daemons over TLS: the active party publishes a model, a user predicts its own rows. Service folders."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from veilboost import at_rest
from veilboost.config import TrainingConfig
from veilboost.data.categories import with_categories
from veilboost.data.load import load_table
from veilboost.data.table import PartyTable
from veilboost.durable import keeping, make_folder, remove
from veilboost.errors import ImpossibleSetting, MissingShare, UnknownRun, VeilBoostError
from veilboost.model.share import ModelShare
from veilboost.party.hub import LinkHub, Reach, caller_to
from veilboost.party.job import read_job, run_name
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Finish, OpenService
from veilboost.party.predicting import KEEP
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings, load_allowed
from veilboost.secure_inference import messages
from veilboost.secure_inference.attributes import Directory, attributes_of
from veilboost.secure_inference.messages import EncryptedNodes
from veilboost.secure_inference.roles import ServiceUser, encrypt_share
from veilboost.secure_inference.scheme import KnownService, check_scheme
from veilboost.types import Float64Array, PartyName
from veilboost.wire.channel import Channel, Peers, Pending
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.rpc import Link
from veilboost.wire.transcript import Transcript

CATALOGUE = Catalogue({*CONTROL_MESSAGES, *messages.SECURE_MESSAGES})


class ServiceChannel(Channel):
    """A channel to one daemon. Every request opens a new session, so neither end keeps state."""

    def __init__(
        self,
        settings: PartySettings,
        peer: PartyName,
        opening: OpenService,
        reach: Reach,
        transcript: Transcript | None = None,
    ) -> None:
        self._settings, self._peer, self._opening, self._reach = settings, peer, opening, reach
        self._transcript = transcript or Transcript(settings.name)

    def send(self, message: Message) -> Pending:
        caller = caller_to(self._peer, self._settings, self._reach, CATALOGUE, transcript=self._transcript)
        peers = Peers({self._peer: caller})

        def wait() -> Message:
            try:
                peers.ask({self._peer: self._opening}, Accepted)
                answer = peers.ask({self._peer: message}, Message)[self._peer]
                with contextlib.suppress(VeilBoostError):
                    peers.ask({self._peer: Finish(completed=True)}, Done)
                return answer
            finally:
                caller.close()

        return wait


class ServiceClient:
    """Channels to daemons, with addresses from a party's own settings file; for the active party and for users."""

    def __init__(self, settings: PartySettings, opening: OpenService) -> None:
        self._settings, self._opening = settings, opening
        self._hub = LinkHub(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.close()

    def channel(self, peer: PartyName) -> ServiceChannel:
        if peer not in self._settings.peers or self._settings.peers[peer].address is None:
            raise ImpossibleSetting(f"{self._settings.name} has no address for {peer}", f"add it under [peers.{peer}]")
        return ServiceChannel(self._settings, peer, self._opening, self._open)

    def _open(self, peer: PartyName, seconds: float) -> Link:
        return self._hub.open(peer, self._settings.peers[peer].address, seconds)


def own_attributes(share: ModelShare, settings: PartySettings, training: TrainingConfig) -> Directory:
    """The attributes that a party registers: the columns of its share, and which have missing values in its table."""
    columns = {column.name: column for column in load_allowed(settings).columns}
    named = [
        columns[info.name] if info.categories is None else with_categories(columns[info.name], info.categories)
        for info in share.columns
    ]
    # If "auto" chose sets, a split by one category can be served; any other split is refused on encryption.
    categories = "onehot" if training.categories == "auto" else training.categories
    return Directory(attributes_of(share.party, named, categories))


def publish(
    settings: PartySettings,
    run: str,
    authority: PartyName,
    csp: PartyName,
    scheme: str,
    stage: Callable[[str], None] = lambda text: None,
) -> KnownService:
    """Make a finished model of the active party available to users: register attributes and encrypt nodes, once.

    ELXGB 2.1 and 5.2, step 3, for all nodes at once. Afterwards passive parties may be offline.
    """
    check_scheme(scheme)
    folder = RunFolder.open(settings.runs, run)
    share, job = folder.load_share(), read_job(folder.job_text)
    if share.skeleton is None:
        raise MissingShare(f"the share of {share.party} has no skeleton: only the active party serves users")
    own = own_attributes(share, settings, job.training)
    others = [name for name in share.skeleton.parties if name != settings.name]
    with ServiceClient(settings, OpenService(run, authority, csp)) as client:
        peers = Peers({name: client.channel(name) for name in (*others, authority, csp)})
        stage("registering attributes")
        peers.ask({authority: messages.PublishTask(share.skeleton.parties, csp, scheme)}, Done)
        peers.ask({authority: messages.RegisterAttributes(own.to_json())}, Done)
        peers.ask({name: messages.PrepareService() for name in others}, Done)
        known = KnownService.of(
            peers.ask({authority: messages.DirectoryRequest()}, messages.ServiceDirectory)[authority]
        )
        peers.ask({csp: messages.PrepareService()}, Done)
        stage("encrypting nodes")
        nodes = {settings.name: encrypt_share(share, known)}
        nodes |= peers.ask({name: messages.NodesRequest() for name in others}, messages.EncryptedNodes)
    service = ServiceFolder(settings.runs, run)
    for name, given in nodes.items():
        service.save_nodes(name, given)
    service.write_json("roles.json", {"authority": authority, "csp": csp})
    service.save_known(known)
    return known


def withdraw(settings: PartySettings, run: str, authority: PartyName, csp: PartyName) -> None:
    """End a published service: here at once, then at the authority and the CSP, which remove its keys.

    Can be repeated if one of them cannot be reached. Publishing the model again makes new keys.
    """
    ServiceFolder(settings.runs, run).remove()
    with ServiceClient(settings, OpenService(run, authority, csp)) as client:
        peers = Peers({name: client.channel(name) for name in (authority, csp)})
        peers.ask({name: messages.WithdrawService() for name in peers.names}, Done)


def predict_own_rows(
    settings: PartySettings, run: str, active: PartyName, authority: PartyName, data: Path, id: str | None = None
) -> tuple[PartyTable, Float64Array]:
    """A user's rows, from a file with a column for every attribute, and their scores (rows, classes or 1)."""
    with ServiceClient(settings, OpenService(run, authority, "")) as client:
        user = ServiceUser(Peers({"authority": client.channel(authority), "active": client.channel(active)}))
        attributes = user.directory.attributes
        table = load_table(
            data,
            id=id,
            features=[attribute.name for attribute in attributes],
            categorical=[attribute.name for attribute in attributes if attribute.categories is not None],
            rules=KEEP,
        )
        return table, user.predict({column.name: column for column in table.columns}, table.rows)


class ServiceFolder:
    """The files of one service at one daemon, readable only by their owner."""

    def __init__(self, runs: Path, run: str) -> None:
        self.path = runs / run_name(run) / "service"

    def write(self, name: str, content: bytes) -> None:
        with keeping(f"{name} cannot be written"):
            make_folder(self.path)
            at_rest.write(self.path / name, content)

    def read(self, name: str) -> bytes:
        try:
            return at_rest.read(self.path / name)
        except OSError:
            raise UnknownRun(
                f"there is no service {self.path.parent.name!r} here", "the active party runs `veilboost user publish`"
            ) from None

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def remove(self) -> None:
        """Remove all files, with their keys."""
        with keeping("the files of the service cannot be removed"):
            if self.path.exists():
                remove(*self.path.iterdir())

    def write_json(self, name: str, values: dict[str, Any]) -> None:
        self.write(name, json.dumps(values).encode())

    def read_json(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.read(name)))

    def save_known(self, known: KnownService) -> None:
        self.write_json(
            "service.json",
            {"attributes": known.directory.to_json(), "scheme": known.scheme, "key": known.key.hex()},
        )

    def known(self) -> KnownService:
        kept = self.read_json("service.json")
        return KnownService(Directory.from_json(kept["attributes"]), kept["scheme"], bytes.fromhex(kept["key"]))

    def save_nodes(self, party: PartyName, nodes: EncryptedNodes) -> None:
        held = BytesIO()
        np.savez(held, tree=nodes.tree, node=nodes.node, vectors=nodes.vectors, key=nodes.key)
        self.write(f"nodes-{party}.npz", held.getvalue())

    def nodes(self, party: PartyName) -> EncryptedNodes:
        with np.load(BytesIO(self.read(f"nodes-{party}.npz")), allow_pickle=False) as held:
            return EncryptedNodes(held["tree"], held["node"], held["vectors"], held["key"])
