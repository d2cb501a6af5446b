"""A horizontal job at its parties: the server drives it, participants with rows of their own and helpers answer."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509 import Certificate

from veilboost import __version__
from veilboost.config import TrainingConfig
from veilboost.data.table import drawn_rows
from veilboost.errors import (
    AgainstPolicy,
    ForeignCertificate,
    MalformedMessage,
    NothingToResume,
    UnexpectedMessage,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.model.part import Part, TrainingOutcome
from veilboost.party.booking import training_request
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.hub import own_identity, revoked_at
from veilboost.party.identity import (
    Identity,
    PeerIdentity,
    Revoked,
    check_age,
    check_peer,
    is_issued_by,
    parse_certificates,
    peer_identity,
)
from veilboost.party.job import Job
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Finish, Propose
from veilboost.party.policy import Policy, decide
from veilboost.party.runs import RunFolder
from veilboost.party.session import TrainingSession
from veilboost.party.settings import PartySettings, load_allowed
from veilboost.protocols.horizontal.roles import (
    LOST,
    HelperContext,
    HelperSide,
    ParticipantContext,
    ParticipantSide,
    ServerContext,
    ServerSide,
)
from veilboost.protocols.validation import settle
from veilboost.types import PartyName
from veilboost.wire.channel import Channel, Peers, Reply
from veilboost.wire.message import Catalogue, Done, Message
from veilboost.wire.rpc import Caller


class HorizontalCoordinator(Coordinator):
    """A job at its server, which has no table."""

    def __init__(self, settings: PartySettings, job: Job, watch: Watch | None = None) -> None:
        if settings.name != job.driver:
            raise AgainstPolicy(f"{settings.name} is not the server of {job.name!r}", f"{job.driver} starts the job")
        self._config = settle(job.spec, job.training)
        decide(settings.policy, training_request(settings, job, self._config, dict.fromkeys(job.others)))
        super().__init__(settings, job, watch)

    def _prepare(self, resume: bool | None) -> None:
        if resume:
            raise NothingToResume("horizontal jobs keep no checkpoints", "start it anew, under another name")

    def _train(self, run: RunFolder, callers: Mapping[PartyName, Caller], resume: bool) -> TrainingOutcome:
        self.watch.stage("asking the parties")
        everyone = Peers(dict[PartyName, Channel](callers))
        proposal = Propose(self.job.text(), dry_run=False, resume=False)
        told = everyone.ask(dict.fromkeys(callers, proposal), Message)
        run.note(state="training")
        self.watch.stage("training")
        participants = Peers({name: callers[name] for name in self.job.owners})
        server: ServerSide = self.spec.roles[self.spec.driver](
            ServerContext(
                self.settings.name,
                participants,
                {name: told[name] for name in participants.names},
                self._config,
                self.settings.cores,
                lambda result: self._after_round(run, result),
            )
        )
        outcome = server.train()
        for name in callers:
            if name not in outcome.dropped:
                with contextlib.suppress(*LOST):  # it has the model; that the job is over it will see by the silence
                    everyone.ask({name: Finish(completed=True)}, Done)
        return outcome


class HorizontalSession(TrainingSession):
    """A participant with rows, or a helper of the protocol."""

    def _check_place(self, peer: PeerIdentity) -> None:
        if self._proposal.resume:  # the key of an earlier run must not meet other messages
            raise NothingToResume(
                "horizontal jobs keep no checkpoints", "start it anew, under another name", public=True
            )
        super()._check_place(peer)

    def _open(self) -> None:
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self.spec.messages})
        self._lock = threading.Lock()  # several participants ask one helper at a time
        self._participant: ParticipantSide | None = None
        self._helper: HelperSide | None = None

    def _checked_config(self) -> TrainingConfig:
        return settle(self.spec, self.job.training)

    def _act(self, peer: PeerIdentity, message: Message) -> Reply:
        if peer.party == self.proposer and isinstance(message, Propose):
            return self._accept(peer, message)
        if peer.party == self.proposer and isinstance(message, Finish):
            return self._finish(message)
        if self._helper is not None:
            with self._lock:
                return self._helper.handle(peer.party, message)
        if self._participant is not None and peer.party == self.proposer:
            return self._participant.handle(message)
        raise UnexpectedMessage(f"{peer.party} does not drive this job, or {message.type_name()} came before its turn")

    def _accept(self, peer: PeerIdentity, message: Propose) -> Message:
        """A participant's word is its introduction: what the server must know of its columns."""
        if message.dry_run:
            self.over = True
        elif self.uses_table:
            if self._participant is None:
                self._participant = self._begin(peer)
            return self._participant.introduce()
        elif self._helper is None:
            self._helper = self.spec.roles[self.role](
                HelperContext(
                    self.job.driver,
                    self.job.owners,
                    self.job.helpers,
                    self._helpers(self.job),
                    self._config,
                    patience=self.settings.limits.wait_seconds,
                )
            )
        return Accepted(__version__, aligned=False)

    def _begin(self, peer: PeerIdentity) -> ParticipantSide:
        """Read the table, ask the policy with all that is known now, and take part."""
        self._refuse_finished()
        try:
            table = load_allowed(self.settings)
        except VeilBoostError:  # its owner finds the reason in the run's status
            self._begin_run(self._new_run(), state="failed")
            raise
        self._width = len(table.columns)
        self._decide(peer, table.rows, reserve=True)
        self._begin_run(self._new_run(), state="training", rows=table.rows)
        return self.spec.roles["participant"](
            ParticipantContext(
                party=self.settings.name,
                table=table,
                helpers=self._helpers(self.job),
                config=self._config,
                threads=self.settings.cores,
                randomness=self._booking.randomness,
                account=self._booking,
                held_out=drawn_rows(table.ids, self.job.validation, self._config.seed) if self.job.validation else None,
                voucher=CertificateVoucher(
                    own_identity(self.settings), self.settings.policy, revoked_at(self.settings), self._session
                ),
            )
        )

    def _finished_part(self) -> Part | None:
        return None if self._participant is None else self._participant.part

    def give_up(self) -> None:
        if self._helper is not None:
            self._helper.close()
        super().give_up()


_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)


class CertificateVoucher:
    """Signs for one party within one session, and checks what others signed within it.

    A certificate counts as it does at the door: issued by the authority, of the party that is named, not expired, not
    revoked, and admitted by the owner's policy, with its fingerprint where that is pinned.
    """

    def __init__(self, identity: Identity, policy: Policy, revoked: Revoked, session: bytes) -> None:
        self._identity, self._policy, self._revoked, self._session = identity, policy, revoked, session

    def vouch(self, content: bytes) -> str:
        key, signed = serialization.load_pem_private_key(self._identity.key, password=None), self._spelled(content)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, ed25519.Ed25519PrivateKey):
            signature = key.sign(signed)
        elif isinstance(key, rsa.RSAPrivateKey):
            signature = key.sign(signed, _PSS, hashes.SHA256())
        else:
            raise UnsupportedCombination("the key of the certificate cannot sign", "use an EC, Ed25519 or RSA key")
        own = parse_certificates(self._identity.certificate, "the own certificate")[0]
        pem = own.public_bytes(serialization.Encoding.PEM).decode()
        return json.dumps({"certificate": pem, "signature": signature.hex()})

    def check(self, party: PartyName, content: bytes, evidence: str) -> None:
        try:
            values = json.loads(evidence)
            pem, signature = str(values["certificate"]).encode(), bytes.fromhex(values["signature"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise MalformedMessage(f"{party} brings no signature that can be read") from error
        what = f"the certificate of {party}"
        certificate = parse_certificates(pem, what)[0]
        issuers = parse_certificates(self._identity.ca, "the authority's certificate")
        if not any(is_issued_by(certificate, issuer) for issuer in issuers):
            raise ForeignCertificate(f"{what} was not issued by the authority")
        check_age(certificate, what)
        peer = peer_identity(pem)
        check_peer(peer, self._policy, self._revoked)
        if peer.party != party or not _verified(certificate, signature, self._spelled(content)):
            raise MalformedMessage(
                f"what is said to come from {party} was not signed by {party}",
                "do not train on this: whoever drives the job may have exchanged keys",
            )

    def _spelled(self, content: bytes) -> bytes:
        return b"veilboost vouches " + self._session + content


def _verified(certificate: Certificate, signature: bytes, signed: bytes) -> bool:
    key = certificate.public_key()
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, signed)
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, signed, _PSS, hashes.SHA256())
        else:
            return False
    except InvalidSignature:
        return False
    return True
