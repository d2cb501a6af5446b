"""What an attack is: a function of one party's view, with the names of who attacks whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veilboost.audit.result import Outcome
from veilboost.audit.view import Truth, View
from veilboost.types import PartyName
from veilboost.wire.message import Message

Run = Callable[[View, Truth, PartyName, np.random.Generator], Outcome | None]


@dataclass(frozen=True)
class Attack:
    """An attack from one role's view on another role's data.

    It sees what an attacker sees: it may read messages, model parts and what a protocol's `messages` and `options`
    declare; it may not call any side's code. `key` names it in the evidence of a protocol's spec. `messages` are
    classes of which it uses some: a view without any holds nothing for it; () where every view may. `run` attacks one
    victim, and returns None where the run holds nothing that it could use.
    """

    key: str
    name: str
    adversary: str
    victim: str
    data: str
    messages: tuple[type[Message], ...]
    run: Run

    def applies(self, view: View) -> bool:
        kinds = tuple(self.messages)
        return view.role == self.adversary and (
            not kinds or any(isinstance(seen.message, kinds) for seen in view.messages)
        )


def declare(
    name: str, adversary: str, victim: str, data: str, messages: tuple[type[Message], ...] = ()
) -> Callable[[Run], Attack]:
    """Make a function an attack, whose key is the function's name."""
    return lambda run: Attack(run.__name__, name, adversary, victim, data, messages, run)
