"""The peers' interpreters: a virtual environment each, made here once and used again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DONE = "installed"  # the packages; written last, so that half an environment is not taken for one


@dataclass(frozen=True)
class Environment:
    """What a peer needs: packages, and a Python where ours will not do."""

    packages: tuple[str, ...]
    imports: str
    python: str | None = None
    hint: str = ""


ENVIRONMENTS = {
    "central": Environment(
        ("xgboost==3.2.*", "lightgbm==4.*", "scikit-learn==1.*", "numpy"),
        "xgboost, xgboost.federated, lightgbm, sklearn",
    ),
    "fedtree": Environment(
        ("fedtree==1.0.5", "scikit-learn", "scipy"), "fedtree", hint="Debian: apt-get install libntl44 libgmp10"
    ),
    "heu": Environment(("sf-heu==0.5.2b0", "numpy"), "heu.numpy", "3.11"),
    "secretflow": Environment(("--pre", "secretflow==1.14.0b0", "numpy<2"), "secretflow", "3.10"),
}


class NotInstalled(Exception):
    """Why a peer cannot be measured here."""


def interpreter(name: str, folder: Path, timeout: float = 1800) -> str:
    """The Python that has the peer; made under `folder` if it is not there."""
    wanted = ENVIRONMENTS[name]
    home = folder / name
    python, packages = home / "bin" / "python", "\n".join(wanted.packages)
    if not (home / DONE).exists() or (home / DONE).read_text() != packages:
        shutil.rmtree(home, ignore_errors=True)
        _run(name, [_base(wanted.python), "-m", "venv", str(home)], timeout)
        _run(name, [str(python), "-m", "pip", "install", "--quiet", *wanted.packages], timeout)
        _run(name, [str(python), "-c", f"import {wanted.imports}"], timeout)
        (home / DONE).write_text(packages)
    return str(python)


def _run(name: str, command: list[str], timeout: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{name}: {error}") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        hint = ENVIRONMENTS[name].hint
        raise NotInstalled(f"{name}: {(lines or ['failed'])[-1].strip()}" + (f" ({hint})" if hint else ""))


def _base(version: str | None) -> str:
    """A Python of this version: ours, one on the path, or one of pyenv's or uv's."""
    if version is None or version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    for python in _candidates(version):
        try:
            output = subprocess.run([python, "-V"], capture_output=True, text=True, check=False, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        if output.startswith(f"Python {version}."):
            return python
    raise NotInstalled(f"no Python {version} here (pyenv install {version}, or uv python install {version})")


def _candidates(version: str) -> Iterator[str]:
    yield f"python{version}"
    yield from map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    yield from map(str, sorted(Path.home().glob(f".local/share/uv/python/cpython-{version}.*/bin/python{version}")))
