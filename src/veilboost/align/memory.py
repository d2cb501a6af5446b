"""All parties of an alignment in one process, with the same messages as between organisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from veilboost.align.api import ActiveAligner, AlignContext, Alignment, HelperContext, alignment_named
from veilboost.crypto.fingerprint import HASHES
from veilboost.errors import InvalidParameter
from veilboost.types import AnyArray, PartyName
from veilboost.wire.channel import Handler, MemoryChannel, Peers
from veilboost.wire.message import Catalogue
from veilboost.wire.transcript import Transcript

Around = Callable[[str, Handler], Handler]


@dataclass(frozen=True)
class MemoryAlignment:
    """Every party's result, and the transcripts of all parties and third parties."""

    alignments: Mapping[PartyName, Alignment]
    transcripts: Mapping[str, Transcript]
    rounds: int


class MemoryFederation:
    """The roles of one alignment, connected by memory channels; the order of `ids` is the job's order of parties.

    `around` may wrap each handler, for instance to time it.
    """

    def __init__(
        self,
        name: str,
        ids: Mapping[PartyName, AnyArray],
        active: PartyName,
        *,
        hash: str = HASHES[0],
        threads: int = 1,
        around: Around | None = None,
    ) -> None:
        spec = alignment_named(name)
        if active not in ids or len(ids) < 2:
            raise InvalidParameter(
                "an alignment needs an active party and at least one other", "give the ids of two parties or more"
            )
        order = tuple(ids)
        catalogue = Catalogue(spec.messages)
        self.active = active
        self.transcripts = {who: Transcript(who) for who in (*order, *spec.helpers)}

        def channel(caller: str, callee: str, handler: Handler) -> MemoryChannel:
            wrapped = around(callee, handler) if around is not None else handler
            return MemoryChannel(wrapped, catalogue, self.transcripts[caller], self.transcripts[callee])

        helpers = {role: make(HelperContext(order)) for role, make in spec.helpers.items()}
        contexts = {
            party: AlignContext(
                party,
                order,
                ids[party],
                Peers({role: channel(party, role, partial(helper.handle, party)) for role, helper in helpers.items()}),
                threads=threads,
                hash=hash,
            )
            for party in order
        }
        self.passives = {party: spec.passive(context) for party, context in contexts.items() if party != active}
        self.peers = Peers({party: channel(active, party, passive.handle) for party, passive in self.passives.items()})
        self.driver: ActiveAligner = spec.active(contexts[active], self.peers)

    def result(self, own: Alignment) -> MemoryAlignment:
        """The results of all parties, given the driver's own."""
        others = {party: passive.alignment() for party, passive in self.passives.items()}
        return MemoryAlignment({self.active: own, **others}, self.transcripts, self.peers.rounds)


def align_in_memory(
    name: str,
    ids: Mapping[PartyName, AnyArray],
    active: PartyName,
    *,
    hash: str = HASHES[0],
    threads: int = 1,
) -> MemoryAlignment:
    """Align by the named method. For simulations, tests and notebooks."""
    federation = MemoryFederation(name, ids, active, hash=hash, threads=threads)
    federation.driver.prepare()
    return federation.result(federation.driver.align())
