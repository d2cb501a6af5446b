"""Asking daemons over TLS: the active party publishes a model, a user predicts its own rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from veilboost.config import TrainingConfig
from veilboost.data.load import load_table
from veilboost.data.table import PartyTable
from veilboost.errors import ImpossibleSetting, MissingPart, VeilBoostError
from veilboost.model.part import Part
from veilboost.party.hub import LinkHub, Reach, caller_to
from veilboost.party.job import read_job
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Finish, OpenService
from veilboost.party.predicting import KEEP
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings, load_allowed
from veilboost.secure_inference import messages
from veilboost.secure_inference.attributes import Directory, attributes_of
from veilboost.secure_inference.files import ServiceFolder
from veilboost.secure_inference.roles import ServiceUser, encrypt_part
from veilboost.secure_inference.scheme import KnownService, check_scheme
from veilboost.types import Float64Array, PartyName
from veilboost.wire.channel import Peers, Pending
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.rpc import Link
from veilboost.wire.transcript import Transcript

CATALOGUE = Catalogue({*CONTROL_MESSAGES, *messages.SECURE_MESSAGES})


class ServiceWay:
    """A channel to one daemon, a new session for every request: neither end remembers the other."""

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
        way = Peers({self._peer: caller})

        def wait() -> Message:
            try:
                way.ask({self._peer: self._opening}, Accepted)
                answer = way.ask({self._peer: message}, Message)[self._peer]
                with contextlib.suppress(VeilBoostError):
                    way.ask({self._peer: Finish(completed=True)}, Done)
                return answer
            finally:
                caller.close()

        return wait


class ServiceClient:
    """Ways to daemons by the addresses in a party's own file; for the active party's commands and for users."""

    def __init__(self, settings: PartySettings, opening: OpenService) -> None:
        self._settings, self._opening = settings, opening
        self._hub = LinkHub(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def way(self, peer: PartyName) -> ServiceWay:
        if peer not in self._settings.peers or self._settings.peers[peer].address is None:
            raise ImpossibleSetting(f"{self._settings.name} has no address of {peer}", f"add it under [peers.{peer}]")
        return ServiceWay(self._settings, peer, self._opening, self._open)

    def _open(self, peer: PartyName, seconds: float) -> Link:
        return self._hub.open(peer, self._settings.peers[peer].address, seconds)

    def close(self) -> None:
        self._hub.close()


def own_attributes(part: Part, settings: PartySettings, training: TrainingConfig) -> Directory:
    """What a party registers: the columns of its part, and which have missing values in its table."""
    columns = {column.name: column for column in load_allowed(settings).columns}
    named = [replace(columns[info.name], categories=info.categories) for info in part.columns]
    # Where "auto" gave sets, a split by one category can be served; any other is refused when it is encrypted.
    categories = "onehot" if training.categories == "auto" else training.categories
    return Directory(attributes_of(part.party, named, categories))


def publish(
    settings: PartySettings,
    run: str,
    authority: PartyName,
    csp: PartyName,
    scheme: str,
    stage: Callable[[str], None] = lambda text: None,
) -> KnownService:
    """The active party makes a finished model available to users: attributes are registered, nodes encrypted, once.

    ELXGB 2.1 and 5.2, step 3, for all nodes at once. Afterwards passive parties may be offline.
    """
    check_scheme(scheme)
    folder = RunFolder.open(settings.runs, run)
    part, job = folder.load_part(), read_job(folder.job_text)
    if part.skeleton is None:
        raise MissingPart(f"the part of {part.party} has no skeleton: only the active party serves users")
    own = own_attributes(part, settings, job.training)
    others = [name for name in part.skeleton.parties if name != settings.name]
    with ServiceClient(settings, OpenService(run, authority, csp)) as client:
        ways = Peers({name: client.way(name) for name in (*others, authority, csp)})
        stage("registering attributes")
        ways.ask({authority: messages.PublishTask(part.skeleton.parties, csp, scheme)}, Done)
        ways.ask({authority: messages.RegisterAttributes(own.to_json())}, Done)
        ways.ask({name: messages.PrepareService() for name in others}, Done)
        known = KnownService.of(
            ways.ask({authority: messages.DirectoryRequest()}, messages.ServiceDirectory)[authority]
        )
        ways.ask({csp: messages.PrepareService()}, Done)
        stage("encrypting nodes")
        nodes = {settings.name: encrypt_part(part, known)}
        nodes |= ways.ask({name: messages.NodesRequest() for name in others}, messages.EncryptedNodes)
    service = ServiceFolder(settings.runs, run)
    for name, given in nodes.items():
        service.save_nodes(name, given)
    service.write_json("roles.json", {"authority": authority, "csp": csp})
    service.save_known(known)
    return known


def predict_own_rows(
    settings: PartySettings, run: str, active: PartyName, authority: PartyName, data: Path, id: str | None = None
) -> tuple[PartyTable, Float64Array]:
    """A user's rows, from a file with a column for every attribute, and their scores (rows, classes or 1)."""
    with ServiceClient(settings, OpenService(run, authority, "")) as client:
        user = ServiceUser(Peers({"authority": client.way(authority), "active": client.way(active)}))
        attributes = user.directory.attributes
        table = load_table(
            data,
            id=id,
            features=[attribute.name for attribute in attributes],
            categorical=[attribute.name for attribute in attributes if attribute.categories is not None],
            rules=KEEP,
        )
        return table, user.predict({column.name: column for column in table.columns}, table.rows)
