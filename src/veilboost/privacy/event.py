"""Privacy events: one event per draw of noise that leaves its party.

An event records the mechanism, the noise, whose data it concerns and who receives it. It computes nothing: only
accountants turn events into an epsilon.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from veilboost.errors import InvalidParameter


class Adjacency(StrEnum):
    """The change of the data that the noise hides. An epsilon has no meaning without it."""

    LABEL = "label"  # one person's label changes
    ACTIVE_RECORD = "active record"  # one person's label and active features change
    PASSIVE_RECORD = "passive record"  # one person's passive features change
    SAME_ASSIGNMENTS = "passive record, same assignments"  # and no left/right assignment of a winning split changes
    RECORD = "record"  # one person's whole row changes (horizontally partitioned data)
    VECTOR = "vector"  # everything may change: local privacy of whole vectors

    @classmethod
    def _missing_(cls, value: object) -> Adjacency | None:
        return cls.SAME_ASSIGNMENTS if value == "passive record, same sides" else None  # in ledgers of release 0.1.0


@dataclass(frozen=True, kw_only=True)
class Event:
    """A release. Equal events are the same release, reported again; an event that differs is another release."""

    kind: ClassVar[str] = ""

    what: str  # what was released, in words
    adjacency: Adjacency  # the change that the stated noise hides
    adversary: str  # who sees the release, e.g. "passive parties"
    protocol: str
    release: str  # a name that no other release of the job has, e.g. "round 3 level 2 gradients"
    # A digest of the request that the noise was drawn for (never of the secret), if one release name can be requested
    # with different content. Different content gets different noise and is counted again.
    content: str = ""
    count: int = 1  # number of identical releases on the same data, composed sequentially
    # The claim of the paper's own formula for this release (for all `count` of them), if there is a paper.
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
        """The event as JSON values; `event_from_dict` reads them back."""
        return {"kind": self.kind, **asdict(self), "adjacency": str(self.adjacency)}

    def canonical(self) -> str:
        """The canonical text of this event, for digests and for comparing releases."""
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
    """One value in [-1, 1] becomes one of an interval, more likely near the value (Wang et al.)."""

    kind: ClassVar[str] = "piecewise"


@dataclass(frozen=True)
class Hybrid(Pure):
    """Piecewise or Duchi, chosen at random (Wang et al.)."""

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
    """One of several candidates is selected, more likely the higher its utility (exponential mechanism)."""

    kind: ClassVar[str] = "exponential"


@dataclass(frozen=True)
class ExactRelease(Event):
    """The value itself is released: no noise, no finite epsilon."""

    kind: ClassVar[str] = "exact"
    rows: int | None = None  # number of rows concerned; None if not applicable
    bins: int | None = None  # number of bins of columns concerned
    assignments: int | None = None  # left/right assignments (bits) of each row in a release; None: of another kind
    # Whether an owner's limits on epsilon count it as infinite. Releases of a protocol without noise are not counted:
    # the policy judges such a protocol by its status.
    counted: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Without default values, so that events of earlier versions keep their canonical text."""
        fields = super().to_dict()
        return {name: value for name, value in fields.items() if (name, value) not in _OMITTED}


_OMITTED: tuple[tuple[str, Any], ...] = (("rows", None), ("bins", None), ("assignments", None), ("counted", True))


def assignments_of(events: Iterable[Event]) -> int:
    """The number of left/right assignments (bits) that events release about each row."""
    return sum(event.count * (event.assignments or 0) for event in events if isinstance(event, ExactRelease))


KINDS: Mapping[str, type[Event]] = {
    cls.kind: cls
    for cls in (Gaussian, Laplace, Duchi, Piecewise, Hybrid, RandomizedResponse, Exponential, ExactRelease)
}


def event_from_dict(fields: Mapping[str, Any]) -> Event:
    """Read an event that `to_dict` wrote."""
    rest = dict(fields)
    try:
        cls = KINDS[rest.pop("kind")]
        rest["adjacency"] = Adjacency(rest["adjacency"])
        return cls(**rest)
    except (KeyError, TypeError, ValueError) as problem:
        raise InvalidParameter("this is not a privacy event", "give the output of `Event.to_dict`") from problem


# --- accounts: every draw of noise is booked before the release leaves its party ------------------------------------


START = "start"  # the step of a job that its first message begins; the others are rounds


class Account(Protocol):
    """One party's account for one job."""

    def spend(self, *events: Event) -> None:
        """Book releases before they leave.

        The same event again (a retry, a resumed job) is the same release and costs nothing: its noise is drawn from
        the same key. An event that differs in any field, even under the same release name, is booked in addition:
        what was revealed twice is counted twice.
        """
        ...

    def begin(self, step: str, trees: int) -> int:
        """Count a step of the job (its start, or a round of `trees` trees) before it is answered.

        Returns how often the step was begun before. Raises `AgainstPolicy` if the owner does not allow it once more.
        """
        ...


class MemoryAccount:
    """An account in memory, for simulations and tests."""

    def __init__(self) -> None:
        self._events: dict[Event, None] = {}  # in order, each once
        self._begun = Counter[str]()

    @property
    def events(self) -> tuple[Event, ...]:
        """The booked events, in order."""
        return tuple(self._events)

    def spend(self, *events: Event) -> None:
        for event in events:
            self._events.setdefault(event)

    def begin(self, step: str, trees: int) -> int:
        self._begun[step] += 1
        return self._begun[step] - 1
