"""One horizontal job at a party that answers: a participant with rows, or a helper without."""

from __future__ import annotations

import threading

from veilboost.config import TrainingConfig
from veilboost.data.table import drawn_rows
from veilboost.errors import NothingToResume, UnexpectedMessage, VeilBoostError
from veilboost.model.part import Part
from veilboost.party.horizontal.vouching import CertificateVoucher
from veilboost.party.hub import own_identity, revoked_at
from veilboost.party.identity import PeerIdentity
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Finish, Propose
from veilboost.party.own_table import load_allowed
from veilboost.party.session import TrainingSession
from veilboost.protocols.horizontal.roles import HelperContext, HelperSide, ParticipantContext, ParticipantSide
from veilboost.protocols.validation import settle
from veilboost.version import release
from veilboost.wire.channel import Reply
from veilboost.wire.message import Catalogue, Message


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

    # --- requests ---------------------------------------------------------------------------------------

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
        return Accepted(release(), aligned=False)

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
                threads=self._threads,
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
