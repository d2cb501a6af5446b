"""Where and with what something was measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

_PACKAGES = ("veilboost", "numpy", "xgboost-cpu", "scikit-learn")


def machine() -> dict[str, Any]:
    """Processor, cores, and versions of what counts."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")  # Linux; elsewhere the platform's own name has to do
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    return next(named, platform.processor() or platform.machine())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
