"""A party asks the authority beforehand for the key of a job's alignment, to hash its ids before the job runs."""

from __future__ import annotations

import numpy as np

from veilboost.align.hmac_csp.messages import AlignmentKey
from veilboost.align.registry import alignment_named
from veilboost.errors import AgainstPolicy
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import read_job
from veilboost.party.messages import PrepareAlignment, Propose
from veilboost.party.precompute import key_for
from veilboost.party.session import Reach
from veilboost.party.settings import PartySettings
from veilboost.party.vertical.session import VerticalSession
from veilboost.wire.message import Message


class KeySession(VerticalSession):
    """One question and its answer. The owner's policy decides as it would about the job itself."""

    def __init__(
        self,
        settings: PartySettings,
        threads: int,
        reach: Reach,
        session: bytes,
        asked: PrepareAlignment,
        peer: PeerIdentity,
    ) -> None:
        proposal = Propose(asked.job, dry_run=True, resume=False)
        super().__init__(settings, threads, reach, session, read_job(asked.job), proposal, peer)

    def _check_place(self, peer: PeerIdentity) -> None:
        job, me = self.job, self.settings.name
        if not alignment_named(job.alignment).hashes_ids or me not in job.parties or self.role != "authority":
            raise AgainstPolicy(
                f"{me} is not the authority of {job.name!r}", "ask the authority that the job names", public=True
            )
        # Who asks is what TLS says. The CSP has no table in the job, and must never have the key.
        if peer.party not in job.owners:
            raise AgainstPolicy(
                f"{peer.party} has no table in {job.name!r}", "the key is for those whose rows align", public=True
            )

    def _act(self, peer: PeerIdentity, message: Message) -> AlignmentKey:
        self.over = True
        return AlignmentKey(np.frombuffer(key_for(self.settings, self.job), np.uint8))
