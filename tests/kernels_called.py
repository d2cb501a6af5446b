"""For `make sanitize`: a run that has not called every C++ kernel fails, and says which are missing."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from veilboost import _native

_called: set[str] = set()


def _noted(name: str, kernel: Any) -> Any:
    @functools.wraps(kernel)
    def call(*args: Any, **options: Any) -> Any:
        _called.add(name)
        return kernel(*args, **options)

    return call


_KERNELS = {name for name in dir(_native) if not name.startswith("_") and callable(getattr(_native, name))}
for _name in _KERNELS:
    if not isinstance(getattr(_native, _name), type):
        setattr(_native, _name, _noted(_name, getattr(_native, _name)))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    missing = sorted(name for name in _KERNELS - _called if not isinstance(getattr(_native, name), type))
    print(f"\n{len(_called)} kernels were called")
    if missing and not exitstatus:
        print(f"not called: {', '.join(missing)}")
        session.exitstatus = 1
