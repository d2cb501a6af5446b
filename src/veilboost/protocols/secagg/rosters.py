"""Rosters of `secagg` with dropouts, at a participant: who takes part in each round, accepted by every member.

Nothing is ever unmasked for an absent participant. A participant accepts one roster for a round, masks its sums for
exactly this roster, and answers only after all members have proved that they accepted the same one, and the same trees
before it. So sums open only if every member has answered, and no member answers for two rosters of a round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.crypto.pairwise import KEY_BYTES, PairwiseMasks
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.horizontal.roles import ParticipantContext
from veilboost.protocols.secagg.messages import RosterAccepted, RosterConfirmed, RosterRequest
from veilboost.protocols.secagg.noise import least_roster, options_of
from veilboost.types import PartyName
from veilboost.wire.message import Done

PROOF_BYTES = 32


class Rosters:
    """The rosters that one participant accepted. `number` is the round of the last; its digest names the masks."""

    def __init__(self, context: ParticipantContext, masks: PairwiseMasks) -> None:
        self._context, self._masks = context, masks
        self._group: tuple[PartyName, ...] = ()
        self._known: dict[PartyName, bytes] = {}
        self._confirmed = False
        self.number = -1
        self.digest = b""

    def form(self, group: Sequence[PartyName], publics: Sequence[bytes]) -> None:
        """Note the whole group, whose keys were checked."""
        self._group, self._known = tuple(group), dict(zip(group, publics, strict=True))

    def check(self, message: RosterRequest) -> None:
        """Raise if this participant must not take part with this roster. Nothing changes."""
        config, own = self._context.config, self._context.party
        members, publics = message.participants, [row.tobytes() for row in message.publics]
        if not self.number < message.number < config.n_estimators:
            raise UnexpectedMessage("a roster was requested twice for a round, or out of order")
        if members != tuple(name for name in self._group if name in set(members)) or own not in members:
            raise MalformedMessage("a roster must name participants of the job in their order, and its recipient")
        least = least_roster(config, len(self._group))
        if len(members) < least:
            raise MalformedMessage(f"a roster has {len(members)} participants, and the job needs {least}")
        if message.publics.shape != (len(members), KEY_BYTES) or len(message.evidence) != len(members):
            raise MalformedMessage("there is not one public key for each participant")
        for party, public, evidence in zip(members, publics, message.evidence, strict=True):
            if public != self._known[party]:
                if party == own:
                    raise MalformedMessage("the public key of this participant was replaced")
                self._context.signer.check(party, signed(public), evidence)

    def accept(self, message: RosterRequest, trees: bytes, per_round: int) -> RosterAccepted:
        """Accept a checked roster, for a model whose trees have this digest."""
        step = f"roster of round {message.number} in session {self._context.session.hex()}"
        if self._context.account.begin(step, per_round):  # before this participant was restarted
            raise UnexpectedMessage("a roster of this round was accepted before")
        publics = [row.tobytes() for row in message.publics]
        self._masks.agree(publics)
        self._known |= zip(message.participants, publics, strict=True)
        told = message.number, message.participants, [public.hex() for public in publics], trees.hex()
        self.number, self.digest, self._confirmed = message.number, hashlib.sha256(repr(told).encode()).digest(), False
        proofs = b"".join(self._masks.confirmations(self.digest))
        return RosterAccepted(np.frombuffer(proofs, np.uint8).reshape(-1, PROOF_BYTES))

    def confirm(self, message: RosterConfirmed) -> Done:
        """All members accepted the last roster: from now on requests of its round may be answered."""
        if message.number != self.number or self._confirmed:
            raise UnexpectedMessage("a roster was confirmed that was not accepted last")
        if not self._masks.confirmed(self.digest, [row.tobytes() for row in message.proofs]):
            raise MalformedMessage(
                "a participant did not accept the roster of this round, or has other trees before it",
                "start the job again with another name; if it happens again, do not trust its server",
            )
        self._confirmed = True
        return Done()

    def allows(self, number: int) -> bool:
        """Whether a round may begin: everybody accepted its roster."""
        return self._confirmed and number == self.number


def with_dropouts(config: TrainingConfig) -> bool:
    return options_of(config).dropouts > 0


def signed(public: bytes) -> bytes:
    """The bytes that a participant signs for its public key; they are unambiguous."""
    return b"veilboost secagg key " + public
