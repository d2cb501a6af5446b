"""Who takes part in a `secagg` job with dropouts, at its server: rosters, lost participants, and those that return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from veilboost.errors import MalformedMessage, PeerUnreachable, VeilBoostError
from veilboost.model.share import MembershipChange
from veilboost.protocols.horizontal.roles import LOST, Returned, ServerContext, ask_reachable, introduction
from veilboost.protocols.secagg import messages
from veilboost.protocols.secagg.finder import PendingResult, RoundCut, SecaggFinder
from veilboost.protocols.secagg.noise import least_roster
from veilboost.protocols.secagg.rosters import PROOF_BYTES
from veilboost.types import PartyName
from veilboost.wire.message import MOST_TOGETHER, Done, Message


class Members:
    """Forms the roster of each round from the participants that can be reached.

    `complete`: nobody of the round's roster was lost.
    """

    def __init__(self, context: ServerContext, group: messages.SecaggGroup, cuts: messages.CutsFound) -> None:
        """Begin after the opening, in which everybody took part."""
        self._context, self._peers, self._group, self._cuts = context, context.participants, group, cuts
        self._least = least_roster(context.config, len(group.participants))
        self._round = 0
        self._lost: dict[PartyName, str] = {}
        self._refused: set[PartyName] = set()  # they may not return
        self._known = dict(zip(group.participants, group.publics, strict=True))  # keys that all present members know
        self._changes: list[MembershipChange] = []
        self.complete = True

    def begin(self, number: int, finder: SecaggFinder) -> None:
        """Let all that can be reached accept the roster of a round. Raises `RoundCut` if one is lost before."""
        self._round, self.complete = number, True
        unsent = finder.take_unsent()
        for party in [party for party in self._lost if party not in self._refused]:
            self._readmit(party, finder.results)
        names = self._peers.names
        keys = dict(zip(self._group.participants, self._group.publics, strict=True))
        evidence = dict(zip(self._group.participants, self._group.evidence, strict=True))
        request = messages.RosterRequest(
            *unsent,
            number=number,
            participants=names,
            publics=np.stack([keys[name] for name in names]),
            evidence=tuple("" if np.array_equal(keys[name], self._known[name]) else evidence[name] for name in names),
        )
        lost: dict[PartyName, str] = {}
        accepted = ask_reachable(self._peers, dict.fromkeys(names, request), lost, messages.RosterAccepted, losses=LOST)
        if lost:
            self.lose(lost, request)
        self._known |= {name: keys[name] for name in names}
        if any(each.proofs.shape != (len(names), PROOF_BYTES) for each in accepted.values()):
            raise MalformedMessage("there is not one proof for each participant of a roster")
        proofs = np.stack([accepted[name].proofs for name in names])
        # Together with the first request of the round.
        confirmed = {
            name: messages.RosterConfirmed(number, np.ascontiguousarray(proofs[:, at])) for at, name in enumerate(names)
        }
        self._peers.hold(confirmed, Done)

    def lose(self, lost: Mapping[PartyName, str], request: Message) -> None:
        """Go on without these participants: raises `RoundCut`, or `PeerUnreachable` if too few are left."""
        self.complete = False
        level = None if isinstance(request, messages.MetricRequest) else getattr(request, "depth", 0)
        self._peers.away |= set(lost)
        self._lost |= lost
        for party, reason in lost.items():
            self._note(MembershipChange(party, "lost", self._round, level, reason))
        if len(self._peers.names) < self._least:
            raise PeerUnreachable(
                f"{len(self._peers.names)} of {len(self._known)} participants are left, and the job needs "
                f"{self._least}; lost: {'; '.join(self._lost.values())}",
                "start the lost participants again and run train --resume at the server; if they have too few trees "
                "for that, train again under another name",
            )
        raise RoundCut

    def close(self, rounds: int, dropped: dict[PartyName, str]) -> Sequence[MembershipChange]:
        """All changes. Those that were lost at the end, or before, are added to `dropped`."""
        for party, reason in dropped.items():
            self._note(MembershipChange(party, "lost", rounds - 1, None, reason))
        dropped |= self._lost
        return self._changes

    def _readmit(self, party: PartyName, results: Sequence[tuple[int, PendingResult]]) -> None:
        """Let a lost participant return, if it can be reached, with all levels that it missed."""
        keeper = self._context.keeper
        try:
            found = None if keeper is None else keeper.readmit(party)
            if found is None:
                return
            told = introduction(found.introduction, messages.SecaggColumns, party)
            at = self._group.participants.index(party)
            publics, evidence = self._group.publics.copy(), list(self._group.evidence)
            if told.public.shape != publics[at].shape:
                raise MalformedMessage("a public key has the wrong size")
            publics[at], evidence[at] = told.public, told.evidence
            group = replace(self._group, publics=publics, evidence=tuple(evidence))
            missed = self._missed(group, found, results)
            for at in range(0, len(missed), MOST_TOGETHER):
                *first, last = missed[at : at + MOST_TOGETHER]
                for message in first:
                    self._peers.hold({party: message}, Done)
                self._peers.ask({party: last}, Done)
        except LOST:  # it may be reached before a later round
            return
        except VeilBoostError as error:
            self._refused.add(party)
            self._lost[party] = str(error)
            return
        self._group = group
        self._peers.away.remove(party)
        del self._lost[party]
        self._note(MembershipChange(party, "returned", self._round))

    def _missed(
        self, group: messages.SecaggGroup, found: Returned, results: Sequence[tuple[int, PendingResult]]
    ) -> list[Message]:
        restored = found.trees // len(self._cuts.base_margin)
        levels = [messages.MissedLevel(*result, number=number) for number, result in results if number >= restored]
        return [group, self._cuts, *([] if found.restore is None else [found.restore]), *levels]

    def _note(self, change: MembershipChange) -> None:
        self._changes.append(change)
        if self._context.changed is not None:
            self._context.changed(change)
