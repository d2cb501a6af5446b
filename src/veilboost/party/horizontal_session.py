"""One horizontal job at a party that answers: a participant with rows, or a helper without."""

from __future__ import annotations

import threading
from dataclasses import replace

from veilboost.data.table import drawn_rows
from veilboost.errors import UnexpectedMessage, VeilBoostError
from veilboost.model.part import Part
from veilboost.party.answering import AnsweringSession, Reach
from veilboost.party.horizontal_settings import HorizontalJob, read_horizontal_job
from veilboost.party.hub import own_identity, revoked_at
from veilboost.party.identity import PeerIdentity
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Finish, ProposeHorizontal
from veilboost.party.own_table import load_allowed
from veilboost.party.policy import TrainRequest
from veilboost.party.settings import PartySettings
from veilboost.party.vouching import CertificateVoucher
from veilboost.privacy.ledger import worst_epsilon
from veilboost.protocols.horizontal.roles import HelperContext, HelperSide, ParticipantContext, ParticipantSide
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import settle
from veilboost.version import release
from veilboost.wire.channel import Peers, Reply
from veilboost.wire.codec import Catalogue
from veilboost.wire.message import Message


class HorizontalSession(AnsweringSession[HorizontalJob]):
    """A participant with rows, or a helper of the protocol."""

    def __init__(
        self,
        settings: PartySettings,
        threads: int,
        reach: Reach,
        session: bytes,
        proposal: ProposeHorizontal,
        peer: PeerIdentity,
    ) -> None:
        job, text = read_horizontal_job(proposal.job), proposal.job
        super().__init__(settings, threads, reach, session, job, text, proposal.dry_run, False, peer)
        self._spec = protocol_named(job.protocol, "horizontal")
        self._config = settle(self._spec, job.training)
        self.catalogue = Catalogue({*CONTROL_MESSAGES, *self._spec.messages})
        self._lock = threading.Lock()  # several participants ask one helper at a time
        self._participant: ParticipantSide | None = None
        self._helper: HelperSide | None = None
        self._check_place(peer)
        self._booking.consider(self._asked(peer, None))

    @property
    def uses_table(self) -> bool:
        return self.role == "participant"

    def _asked(self, peer: PeerIdentity, rows: int | None, columns: int | None = None) -> TrainRequest:
        data = self.settings.data
        known = len(data.features or ()) if data is not None else 0
        events = ()
        if self.uses_table and self._spec.plan is not None:
            events = self._spec.plan(self._config, rows or 0, self._spec.data_role, columns or known or 1)
        epsilon = worst_epsilon(events, self.settings.policy.delta)
        request = self._request(peer, self._spec, self.role, self._config, rows, epsilon)
        return request if self._spec.counts_rows else replace(request, min_node_rows=None)

    # --- requests ---------------------------------------------------------------------------------------

    def _act(self, peer: PeerIdentity, message: Message) -> Reply:
        if peer.party == self.proposer and isinstance(message, ProposeHorizontal):
            return self._accept(peer, message)
        if peer.party == self.proposer and isinstance(message, Finish):
            return self._finish(message)
        if self._helper is not None:
            with self._lock:
                return self._helper.handle(peer.party, message)
        if self._participant is not None and peer.party == self.proposer:
            return self._participant.handle(message)
        raise UnexpectedMessage(f"{peer.party} does not drive this job, or {message.type_name()} came before its turn")

    def _accept(self, peer: PeerIdentity, message: ProposeHorizontal) -> Message:
        """A participant's word is its introduction: what the server must know of its columns."""
        if message.dry_run:
            self.over = True
        elif self.uses_table:
            if self._participant is None:
                self._participant = self._begin(peer)
            return self._participant.introduce()
        elif self._helper is None:
            self._helper = self._spec.roles[self.role](
                HelperContext(
                    self.job.server,
                    self.job.participants,
                    self.job.helpers,
                    self._ways(),
                    self._config,
                    patience=self.settings.limits.wait_seconds,
                )
            )
        return Accepted(release(), aligned=False)

    def _begin(self, peer: PeerIdentity) -> ParticipantSide:
        """Read the table, ask the policy with all that is known now, and take part."""
        self._refuse_finished()
        try:
            table = load_allowed(self.settings)
        except VeilBoostError:  # its owner finds the reason in the run's status
            self._begin_run(self._new_run(), state="failed", role="participant")
            raise
        self._booking.reserve(self._asked(peer, table.rows, len(table.columns)))
        self._begin_run(self._new_run(), state="training", role="participant", rows=table.rows)
        return self._spec.roles["participant"](
            ParticipantContext(
                party=self.settings.name,
                table=table,
                helpers=self._ways(),
                config=self._config,
                threads=self._threads,
                randomness=self._booking.randomness,
                account=self._booking,
                held_out=drawn_rows(table.ids, self.job.validation, self._config.seed) if self.job.validation else None,
                voucher=CertificateVoucher(
                    own_identity(self.settings), self.settings.policy, revoked_at(self.settings), self._session
                ),
            )
        )

    def _ways(self) -> Peers:
        """This party's own ways to the helpers, by their role."""
        helpers = {role: name for role, name in self.job.helpers.items() if name != self.settings.name}
        return Peers({role: self._caller(name) for role, name in helpers.items()})

    def _finished_part(self) -> Part | None:
        return None if self._participant is None else self._participant.part

    def _let_go(self) -> None:
        if self._helper is not None:
            self._helper.close()
        super()._let_go()
