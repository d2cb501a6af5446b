"""A daemon's role in secure inference: authority, CSP, owner of nodes, or active party with the encrypted model."""

from __future__ import annotations

import threading
from pathlib import Path
from weakref import WeakValueDictionary

from veilboost import __version__
from veilboost.errors import AgainstPolicy, UnexpectedMessage
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import read_job, run_name
from veilboost.party.messages import Accepted, Finish, OpenService
from veilboost.party.policy import ServeRequest, decide
from veilboost.party.predicting import spend_predictions
from veilboost.party.runs import RunFolder
from veilboost.party.session import Session, SessionContext
from veilboost.secure_inference import messages
from veilboost.secure_inference.client import CATALOGUE, ServiceChannel, ServiceFolder, own_attributes
from veilboost.secure_inference.roles import (
    DirectionService,
    EncryptedModel,
    QueuedModel,
    ServiceAuthority,
    encrypt_share,
)
from veilboost.secure_inference.scheme import KnownService
from veilboost.types import PartyName
from veilboost.wire.channel import Answer, Peers
from veilboost.wire.message import Done, Message

# Per folder: one change at a time. A peer can name any number of folders: locks that nobody uses are not kept.
_locks: WeakValueDictionary[Path, threading.Lock] = WeakValueDictionary()
_making = threading.Lock()
_AUTHORITY, _SECRET = "authority.json", "service.key"
_models: dict[str, tuple[float, QueuedModel]] = {}  # per folder: models stay loaded between users
_deciders: dict[str, tuple[float, DirectionService]] = {}


class ServiceSession(Session):
    """One session. A daemon without a table is authority or CSP, as requested for a run."""

    catalogue = CATALOGUE

    def __init__(self, context: SessionContext, opening: OpenService) -> None:
        super().__init__(context, run_name(opening.run))
        self._opening = opening
        self._folder = ServiceFolder(self.settings.runs, opening.run)
        with _making:
            self._lock = _locks.setdefault(self._folder.path, threading.Lock())

    def _act(self, peer: PeerIdentity, message: Message) -> Message:
        self._only_proposer(peer)
        if isinstance(message, OpenService):
            return Accepted(__version__, aligned=False)
        if isinstance(message, Finish):
            self.over = True
            return Done()
        me, has_table = self.settings.name, self.settings.data is not None
        if me == self._opening.authority and not has_table:
            return self._as_authority(peer, message)
        if me == self._opening.csp and not has_table:
            return self._as_csp(peer, message)
        if isinstance(message, messages.SecureQuery):
            return self._as_active(peer, message)
        return self._as_owner(peer, message)

    def _as_authority(self, peer: PeerIdentity, message: Message) -> Message:
        with self._lock:
            authority = ServiceAuthority()
            if self._folder.exists(_AUTHORITY):
                authority.restore(self._folder.read_json(_AUTHORITY))
            before = authority.state()
            answer = authority.handle(peer.party, message)
            if authority.state() != before:
                self._folder.write_json(_AUTHORITY, authority.state())
            return answer

    def _as_csp(self, peer: PeerIdentity, message: Message) -> Message:
        with self._lock:
            if isinstance(message, messages.PrepareService):
                if not self._folder.exists(_SECRET):
                    answer = self._ask_authority(messages.ServiceKeyRequest(), messages.ServiceKey)
                    self._folder.save_known(self._known_service())
                    self._folder.write_json("active.json", {"active": answer.active})
                    self._folder.write(_SECRET, answer.key.tobytes())
                return Done()
            withdraws = isinstance(message, messages.WithdrawService)
            if withdraws and not self._folder.exists(_SECRET):
                return Done()
            if not withdraws and not isinstance(message, messages.BlindedNodes):
                raise UnexpectedMessage(f"{message.type_name()} is not a request to the CSP")
            if self._folder.read_json("active.json")["active"] != peer.party:
                raise AgainstPolicy(
                    f"{peer.party} does not serve this model", "only its active party may ask the CSP", public=True
                )
            if withdraws:
                self._folder.remove()
                _deciders.pop(str(self._folder.path), None)
                return Done()
            decider = self._decider()
        return decider.handle(message)

    def _as_owner(self, peer: PeerIdentity, message: Message) -> Message:
        run = RunFolder.finished_with(self.settings.runs, self._opening.run, peer)
        decide(self.settings.policy, ServeRequest({peer.party: peer.fingerprint or None}, peer.party))
        share, job = run.load_share(), read_job(run.job_text)
        roles = {party.role: name for name, party in job.parties.items()}
        for role, named in (("authority", self._opening.authority), ("csp", self._opening.csp)):
            if roles.get(role, named) != named:  # another authority's key could reveal our thresholds
                raise AgainstPolicy(f"{named} is not the {role} that the job named", f"name {roles[role]}", public=True)
        if isinstance(message, messages.PrepareService):
            own = own_attributes(share, self.settings, job.training)
            return self._ask_authority(messages.RegisterAttributes(own.to_json()), Done)
        if isinstance(message, messages.NodesRequest):
            known = self._known_service()  # from the authority itself, not from the party that asks
            return encrypt_share(share, known)
        raise UnexpectedMessage(f"{message.type_name()} is not a request to an owner of nodes")

    def _as_active(self, peer: PeerIdentity, message: messages.SecureQuery) -> messages.SecureScores:
        spend_predictions(self.settings, peer, len(message.rows))
        scores = messages.SecureScores(self._model().predict(message))
        self._count_predicted(len(message.rows))
        return scores

    # --- loaded models and services ---------------------------------------------------------------------

    def _model(self) -> QueuedModel:
        with self._lock:
            key, changed = str(self._folder.path), self._changed("service.json")
            if key not in _models or _models[key][0] != changed:
                _models[key] = changed, QueuedModel(self._load_model())
            return _models[key][1]

    def _load_model(self) -> EncryptedModel:
        known = self._folder.known()
        share = RunFolder.open(self.settings.runs, self._opening.run).load_share()
        if share.skeleton is None:
            raise UnexpectedMessage("this party is not the active party of the model")
        nodes: dict[PartyName, messages.EncryptedNodes] = {
            name: self._folder.nodes(name) for name in share.skeleton.parties
        }
        kept = self._folder.read_json("roles.json")
        opening = OpenService(self._opening.run, kept["authority"], kept["csp"])
        csp = Peers({"csp": ServiceChannel(self.settings, kept["csp"], opening, self._reach)})
        return EncryptedModel(share.skeleton, nodes, known, csp, self.settings.cores)

    def _decider(self) -> DirectionService:
        key, changed = str(self._folder.path), self._changed(_SECRET)
        if key not in _deciders or _deciders[key][0] != changed:
            secret = self._folder.read(_SECRET)
            _deciders[key] = changed, DirectionService(self._folder.known(), secret, self.settings.cores)
        return _deciders[key][1]

    def _changed(self, name: str) -> float:
        self._folder.read(name)
        return (self._folder.path / name).stat().st_mtime

    # --- the authority ----------------------------------------------------------------------------------

    def _known_service(self) -> KnownService:
        return KnownService.of(self._ask_authority(messages.DirectoryRequest(), messages.ServiceDirectory))

    def _ask_authority(self, message: Message, kind: type[Answer]) -> Answer:
        name = self._opening.authority
        channel = ServiceChannel(self.settings, name, self._opening, self._reach, self._transcript)
        return Peers({name: channel}).ask({name: message}, kind)[name]
