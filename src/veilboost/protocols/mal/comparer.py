"""The comparer of `mal`: orders encrypted extremes column by column, and returns the encrypted global extremes.

A participant sends its extremes and receives the global ones in one exchange: the answer waits until all participants
have sent theirs. If that takes longer than `wait_seconds`, nothing is compared, and all learn who is missing.
"""

from __future__ import annotations

import threading

import numpy as np

from veilboost.crypto.ore.api import KEY_BYTES, SEALED_BYTES, derive
from veilboost.crypto.ore.schemes import scheme_named
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.horizontal.roles import HelperContext, HelperRole
from veilboost.protocols.mal import messages
from veilboost.protocols.mal.parameters import MalOptions
from veilboost.types import PartyName
from veilboost.wire.channel import Reply
from veilboost.wire.message import Message

Group = tuple[PartyName, ...]


class MalComparer(HelperRole):
    """Accepts one list of extremes from each participant, and compares once, for one group of participants."""

    def __init__(self, context: HelperContext) -> None:
        self._context = context
        options = MalOptions.from_dict(context.config.options)
        self._scheme = scheme_named(options.ore, options.ore_bits)
        self._arrived = threading.Condition()
        self._submitted: dict[PartyName, messages.EncryptedExtremes] = {}
        self._answers: dict[Group, messages.GlobalExtremes | messages.ExtremesMissing] = {}
        self._closed = False

    def handle(self, party: PartyName, message: Message) -> Reply:
        if party not in self._context.participants:
            raise UnexpectedMessage("the comparer answers only participants of this job")
        if not isinstance(message, messages.EncryptedExtremes):
            raise UnexpectedMessage(f"{message.type_name()} is not a request to the comparer")
        group = message.participants
        if party not in group or len(set(group)) != len(group) or not set(group) <= set(self._context.participants):
            raise MalformedMessage("the extremes are for a group that is not of this job")
        with self._arrived:
            self._take(party, message)
            self._arrived.notify_all()
        return lambda: self._answer(group)

    def close(self) -> None:
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()

    def _take(self, party: PartyName, message: messages.EncryptedExtremes) -> None:
        known = self._submitted.get(party)
        if known is not None and not np.array_equal(known.ciphertexts, message.ciphertexts):
            # With a second list a participant could find the extremes of others by trial.
            raise UnexpectedMessage("this participant has already sent its extremes")
        compared = [group for group, answer in self._answers.items() if isinstance(answer, messages.GlobalExtremes)]
        if compared and compared != [message.participants]:
            # The extremes of several groups would reveal whose they are.
            raise UnexpectedMessage("the extremes of another group of participants were already compared")
        columns = len(message.present)
        if message.ciphertexts.shape != (columns, 2, self._scheme.size):
            raise MalformedMessage("the extremes do not use the order-revealing encryption of the job")
        if message.values.shape != (columns, 2, SEALED_BYTES) or int(message.present.max(initial=0)) > 1:
            raise MalformedMessage("encrypted extremes have the wrong size")
        self._submitted[party] = message

    def _answer(self, group: Group) -> Message:
        """Return the answer to a group: the same for every participant."""
        with self._arrived:
            self._arrived.wait_for(
                lambda: self._closed or group in self._answers or not self._missing(group), self._context.wait_seconds
            )
            if group not in self._answers:
                missing = self._missing(group)
                self._answers[group] = messages.ExtremesMissing(missing) if missing else self._compare(group)
            return self._answers[group]

    def _missing(self, group: Group) -> tuple[PartyName, ...]:
        """Participants that have sent nothing for exactly this group."""
        return tuple(
            name for name in group if name not in self._submitted or self._submitted[name].participants != group
        )

    def _compare(self, group: Group) -> messages.GlobalExtremes:
        answer = self._context.channels.ask({"authority": messages.ComparisonKeyRequest()}, messages.ComparisonKey)[
            "authority"
        ]
        if len(answer.comparison) != KEY_BYTES:
            raise MalformedMessage("the authority's key has the wrong size")
        lists = [self._submitted[party] for party in group]
        columns = len(lists[0].present)
        if any(len(each.present) != columns for each in lists):
            raise MalformedMessage(
                "the participants have different numbers of numeric columns", "give all participants the same columns"
            )
        values = np.zeros((columns, 2, SEALED_BYTES), dtype=np.uint8)
        present = np.zeros(columns, dtype=np.uint8)
        for column in range(columns):
            available = [each for each in lists if each.present[column]]
            present[column] = bool(available)
            for end, name in enumerate(messages.EXTREMES):
                if available:
                    key = derive(answer.comparison.tobytes(), column, name)
                    values[column, end] = self._winner(key, available, column, end).values[column, end]
        return messages.GlobalExtremes(values, present)

    def _winner(
        self, key: bytes, lists: list[messages.EncryptedExtremes], column: int, end: int
    ) -> messages.EncryptedExtremes:
        """MAL Alg. 1, lines 7 and 8: one comparison for each further participant."""
        best, wanted = lists[0], -1 if messages.EXTREMES[end] == "low" else 1
        for other in lists[1:]:
            first, second = (each.ciphertexts[column, end].tobytes() for each in (other, best))
            if self._scheme.compare(key, first, second) == wanted:
                best = other
        return best
