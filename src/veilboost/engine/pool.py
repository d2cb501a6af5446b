"""Who runs pieces of work: a pool keeps values, and calls pure functions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

Ref: TypeAlias = Any  # a value that a pool keeps; what it is, is the pool's own affair
FAN_IN = 4  # how many partial results one piece of work puts together


class Pool(Protocol):
    """Functions are pure and their arguments immutable, so a piece of work may run twice, anywhere."""

    def put(self, value: Any) -> Ref: ...
    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """The values, in order. Raises what the work that makes them raised."""
        ...

    def call(self, function: Callable[..., Any], *arguments: Any) -> Ref:
        """Run a function of the `veilboost` package soon; arguments that are refs are handed over as values."""
        ...

    def call_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        """The same for a function that returns so many values."""
        ...

    @property
    def workers(self) -> int:
        """How many processes have really done work."""
        ...

    def close(self) -> None: ...


class SerialPool:
    """Calls at once, in this process: shards without workers."""

    workers = 1

    def put(self, value: Any) -> Ref:
        return value

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        return list(refs)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Ref:
        return function(*arguments)

    def call_for(self, count: int, function: Callable[..., Any], *arguments: Any) -> list[Ref]:
        return list(function(*arguments))

    def close(self) -> None:
        pass


def reduced(pool: Pool, function: Callable[..., Any], refs: Sequence[Ref]) -> Any:
    """The value of an associative function of many arguments, a few at a time, as a tree."""
    while len(refs) > 1:
        refs = [
            pool.call(function, *refs[at : at + FAN_IN]) if at + 1 < len(refs) else refs[at]
            for at in range(0, len(refs), FAN_IN)
        ]
    return pool.get(refs)[0]
