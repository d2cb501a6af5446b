"""The active party makes a finished model available to users: attributes are registered, nodes encrypted, once."""

from __future__ import annotations

from collections.abc import Callable

from veilboost.errors import MissingPart
from veilboost.infer.secure.messages import (
    DirectoryRequest,
    EncryptedNodes,
    NodesRequest,
    PrepareService,
    PublishTask,
    RegisterAttributes,
    ServiceDirectory,
)
from veilboost.infer.secure.owner import encrypt_part
from veilboost.party.elxgb_files import KnownService, ServiceFolder
from veilboost.party.elxgb_session import own_attributes
from veilboost.party.elxgb_ways import ServiceClient
from veilboost.party.job import read_job
from veilboost.party.messages import OpenService
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.types import PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done


def publish(
    settings: PartySettings,
    run: str,
    authority: PartyName,
    csp: PartyName,
    scheme: str,
    stage: Callable[[str], None] = lambda text: None,
) -> KnownService:
    """ELXGB 2.1 and 5.2, step 3, for all nodes at once. Afterwards passive parties may be offline."""
    folder = RunFolder.open(settings.runs, run)
    part, job = folder.load_part(), read_job(folder.job_text)
    if part.skeleton is None:
        raise MissingPart(f"the part of {part.party} has no skeleton: only the active party serves users")
    own = own_attributes(part, settings, job.training)
    others = [name for name in part.skeleton.parties if name != settings.name]
    client = ServiceClient(settings, OpenService(run, authority, csp))
    try:
        ways = Peers({name: client.way(name) for name in (*others, authority, csp)})
        stage("registering attributes")
        ways.ask({authority: PublishTask(part.skeleton.parties, csp, scheme)}, Done)
        ways.ask({authority: RegisterAttributes(own.to_json())}, Done)
        ways.ask({name: PrepareService() for name in others}, Done)
        known = KnownService.of(ways.ask({authority: DirectoryRequest()}, ServiceDirectory)[authority])
        ways.ask({csp: PrepareService()}, Done)
        stage("encrypting nodes")
        nodes = {settings.name: encrypt_part(part, known.directory, known.scheme, known.key)}
        nodes |= ways.ask({name: NodesRequest() for name in others}, EncryptedNodes)
    finally:
        client.close()
    service = ServiceFolder(settings.runs, run)
    for name, given in nodes.items():
        service.save_nodes(name, given)
    service.write_json("roles.json", {"authority": authority, "csp": csp})
    service.save_known(known)
    return known
