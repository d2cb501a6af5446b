"""The comparer of `mal`: orders encrypted extremes, column by column, and gives back the sealed winners."""

from __future__ import annotations

import numpy as np

from veilboost.crypto.ore.api import KEY_BYTES, derive
from veilboost.crypto.ore.schemes import scheme_named
from veilboost.crypto.ore.value import SEALED_BYTES
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.horizontal import HelperContext, HelperSide
from veilboost.protocols.mal.extremes import SIDES
from veilboost.protocols.mal.messages import (
    ComparisonKey,
    ComparisonKeyRequest,
    EncryptedExtremes,
    ExtremesRequest,
    GlobalExtremes,
)
from veilboost.protocols.mal.options import MalOptions
from veilboost.types import PartyName
from veilboost.wire.message import Done, Message


class MalComparer(HelperSide):
    """Takes one list of extremes from each participant; compares once, for one group of participants."""

    def __init__(self, context: HelperContext) -> None:
        self._context = context
        options = MalOptions.from_dict(context.config.options)
        self._scheme = scheme_named(options.ore, options.ore_bits)
        self._submitted: dict[PartyName, EncryptedExtremes] = {}
        self._group: tuple[PartyName, ...] | None = None
        self._answer: GlobalExtremes | None = None

    def handle(self, party: PartyName, message: Message) -> Message:
        if party not in self._context.participants:
            raise UnexpectedMessage("only the participants of this job are served")
        if isinstance(message, EncryptedExtremes):
            return self._take(party, message)
        if isinstance(message, ExtremesRequest):
            return self._give(party, message.participants)
        raise UnexpectedMessage(f"{message.type_name()} is not a request to the comparer")

    def _take(self, party: PartyName, message: EncryptedExtremes) -> Done:
        known = self._submitted.get(party)
        if known is not None:
            if not np.array_equal(known.ciphertexts, message.ciphertexts):
                # A second list would let a participant find out others' extremes by trial.
                raise UnexpectedMessage("this participant has sent its extremes already")
            return Done()
        columns = len(message.present)
        if message.ciphertexts.shape != (columns, 2, self._scheme.size):
            raise MalformedMessage("extremes are not of the order-revealing encryption that the job names")
        if message.values.shape != (columns, 2, SEALED_BYTES) or int(message.present.max(initial=0)) > 1:
            raise MalformedMessage("sealed extremes have another size")
        self._submitted[party] = message
        return Done()

    def _give(self, party: PartyName, group: tuple[PartyName, ...]) -> GlobalExtremes:
        if self._answer is None:
            absent = [name for name in group if name not in self._submitted]
            if absent or party not in group or len(set(group)) != len(group):
                raise UnexpectedMessage(f"{len(absent)} of the named participants have sent no extremes")
            self._group, self._answer = group, self._compare(group)
        elif group != self._group:
            # The extremes of several groups would tell who brought which.
            raise UnexpectedMessage("the extremes of another group of participants were compared")
        return self._answer

    def _compare(self, group: tuple[PartyName, ...]) -> GlobalExtremes:
        answer = self._context.ways.ask({"authority": ComparisonKeyRequest()}, ComparisonKey)["authority"]
        if len(answer.comparison) != KEY_BYTES:
            raise MalformedMessage("the authority's key has another size")
        lists = [self._submitted[party] for party in group]
        columns = len(lists[0].present)
        if any(len(each.present) != columns for each in lists):
            raise MalformedMessage(
                "the participants have different numbers of numeric columns", "give all the same columns"
            )
        values = np.zeros((columns, 2, SEALED_BYTES), dtype=np.uint8)
        present = np.zeros(columns, dtype=np.uint8)
        for column in range(columns):
            there = [each for each in lists if each.present[column]]
            present[column] = bool(there)
            for side, name in enumerate(SIDES):
                if there:
                    key = derive(answer.comparison.tobytes(), column, name)
                    values[column, side] = self._winner(key, there, column, side).values[column, side]
        return GlobalExtremes(values, present)

    def _winner(self, key: bytes, lists: list[EncryptedExtremes], column: int, side: int) -> EncryptedExtremes:
        """MAL Alg. 1, lines 7 and 8: one comparison for each further participant."""
        best, wanted = lists[0], -1 if SIDES[side] == "low" else 1
        for other in lists[1:]:
            first, second = (each.ciphertexts[column, side].tobytes() for each in (other, best))
            if self._scheme.compare(key, first, second) == wanted:
                best = other
        return best
