"""NumPy's matrix routines on as many threads as the party allows: by themselves they take every core there is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any, cast


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # pyright: ignore

    return ThreadpoolController()


def blas_threads(count: int) -> AbstractContextManager[None]:
    """Within it, at most `count` threads."""
    return cast(AbstractContextManager[None], _controller().limit(limits=count, user_api="blas"))
