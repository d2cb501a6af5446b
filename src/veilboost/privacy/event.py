"""What was released, as facts: one event per draw of noise that leaves its party.

An event says by which mechanism, with which noise, about whose data and to whom. It computes nothing: accountants
read events, and nothing else turns noise into an epsilon.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from veilboost.errors import InvalidParameter


class Adjacency(StrEnum):
    """Which change of the data the noise is to hide; without it an epsilon means nothing."""

    LABEL = "label"  # one person's label is another
    ACTIVE_RECORD = "active record"  # one person's label and active features are others
    PASSIVE_RECORD = "passive record"  # one person's passive features are others
    SAME_SIDES = "passive record, same sides"  # the same, and they lie on the same sides of all cuts that win
    RECORD = "record"  # one person's whole row is another, where participants hold rows
    VECTOR = "vector"  # everything may change: local privacy of whole vectors


@dataclass(frozen=True, kw_only=True)
class Event:
    """A release. Equal events are the same release, told again; whatever differs is another release."""

    kind: ClassVar[str] = ""

    what: str  # was released, in words
    adjacency: Adjacency  # the change that the stated noise hides
    adversary: str  # who sees the release, e.g. "passive parties"
    protocol: str
    release: str  # a name that no other release of the job has, e.g. "round 3 level 2 gradients"
    # A digest of what the noise was drawn for (of the request, never of the secret), where one release name may be
    # asked for with different content. Other content is other noise and is counted again.
    content: str = ""
    count: int = 1  # so many identical releases on the same data, composed one after the other
    # What the paper's own formula claims for this release (for all `count` of them), where there is a paper.
    paper_epsilon: float | None = None
    paper_delta: float | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidParameter(f"an event counts {self.count} releases", "count at least one")
        for name in ("paper_epsilon", "paper_delta"):
            value: float | None = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise InvalidParameter(f"{name} of {self.release} is {value}", "give a finite number of at least 0")

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; `event_from_dict` reads it back."""
        return {"kind": self.kind, **asdict(self), "adjacency": str(self.adjacency)}

    def canonical(self) -> str:
        """The one spelling of this event, for digests and for telling releases apart."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _checked(name: str, value: float, zero: bool = False) -> None:
    if not (0 < value < math.inf or (zero and value == 0)):
        raise InvalidParameter(f"{name} of a release is {value}", "give a finite number above 0")


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise. `mahalanobis` is sqrt(v' Sigma^-1 v) for the worst change v: sensitivity over sigma."""

    kind: ClassVar[str] = "gaussian"
    mahalanobis: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _checked("the mahalanobis distance", self.mahalanobis, zero=True)


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise of scale b on a value of L1 sensitivity Delta; `scale_over_sensitivity` is b / Delta."""

    kind: ClassVar[str] = "laplace"
    scale_over_sensitivity: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _checked("the scale over the sensitivity", self.scale_over_sensitivity)


@dataclass(frozen=True)
class Pure(Event):
    """A mechanism whose own parameter is its pure epsilon."""

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _checked("epsilon", self.epsilon)


@dataclass(frozen=True)
class Duchi(Pure):
    """One value in [-1, 1] becomes one of two points (Duchi et al.)."""

    kind: ClassVar[str] = "duchi"


@dataclass(frozen=True)
class Piecewise(Pure):
    """One value in [-1, 1] becomes one of an interval, likelier near the value (Wang et al.)."""

    kind: ClassVar[str] = "piecewise"


@dataclass(frozen=True)
class Hybrid(Pure):
    """Piecewise or Duchi by the toss of a coin (Wang et al.)."""

    kind: ClassVar[str] = "hybrid"


@dataclass(frozen=True)
class RandomizedResponse(Pure):
    """One of `categories` values is kept, or becomes any other."""

    kind: ClassVar[str] = "randomized response"
    categories: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categories < 2:
            raise InvalidParameter(f"randomized response over {self.categories} categories", "give at least two")


@dataclass(frozen=True)
class Exponential(Pure):
    """One of several candidates is selected, likelier the more useful it is (exponential mechanism)."""

    kind: ClassVar[str] = "exponential"


@dataclass(frozen=True)
class ExactRelease(Event):
    """The value itself is shown: no noise, no finite epsilon."""

    kind: ClassVar[str] = "exact"
    rows: int | None = None  # of how many rows; None where that does not apply
    bins: int | None = None  # for how many bins of columns
    # Whether an owner's limits on epsilon count it as infinite. What a protocol without noise shows is not counted: the
    # policy judges such a protocol by its status.
    counted: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Without what is not said, so that what earlier releases wrote is spelled as it was."""
        fields = super().to_dict()
        return {name: value for name, value in fields.items() if (name, value) not in _NOT_SAID}


_NOT_SAID: tuple[tuple[str, Any], ...] = (("rows", None), ("bins", None), ("counted", True))


KINDS: Mapping[str, type[Event]] = {
    cls.kind: cls
    for cls in (Gaussian, Laplace, Duchi, Piecewise, Hybrid, RandomizedResponse, Exponential, ExactRelease)
}


def event_from_dict(fields: Mapping[str, Any]) -> Event:
    """What `to_dict` wrote."""
    rest = dict(fields)
    try:
        cls = KINDS[rest.pop("kind")]
        rest["adjacency"] = Adjacency(rest["adjacency"])
        return cls(**rest)
    except (KeyError, TypeError, ValueError) as problem:
        raise InvalidParameter("this is not a privacy event", "read what `to_dict` wrote") from problem


# --- where releases are booked: every draw of noise is spent here before the release leaves its party --------------


class Account(Protocol):
    """One party's book for one job."""

    def spend(self, *events: Event) -> None:
        """Book releases, before they leave.

        The same event again (a retry, a resumed job) is the same release and costs nothing: its noise is drawn from
        the same key. An event that differs in anything, under the same release name too, is booked beside it: what
        was seen twice is counted twice.
        """
        ...


class MemoryAccount:
    """A book in memory, for simulations and tests."""

    def __init__(self) -> None:
        self._events: dict[Event, None] = {}  # in order, each once

    @property
    def events(self) -> tuple[Event, ...]:
        """What was spent, in order."""
        return tuple(self._events)

    def spend(self, *events: Event) -> None:
        for event in events:
            self._events.setdefault(event)
