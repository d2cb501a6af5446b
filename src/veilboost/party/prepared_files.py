"""What was done before a job runs, under RUNS/prepared: for its owner's eyes only, written whole, taken once."""

from __future__ import annotations

from pathlib import Path

from veilboost.errors import CheckpointFailed
from veilboost.party.keyfiles import make_private_folder, write_private


def place_of(runs: Path, job: str, kind: str) -> Path:
    return runs / "prepared" / f"{job}.{kind}"


def keep(file: Path, content: bytes) -> None:
    """What lay there before is replaced."""
    try:
        make_private_folder(file.parent)
        write_private(file, content, force=True)
    except OSError as error:
        raise CheckpointFailed(f"what was prepared cannot be written ({error.strerror})") from None


def kept(file: Path) -> bytes | None:
    """What lies there, which stays."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointFailed(f"what was prepared cannot be read ({error.strerror})") from None


def take(file: Path) -> bytes | None:
    """What lies there, which is removed before anybody can use it: of two who take it, one gets nothing."""
    content = kept(file)
    try:
        file.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointFailed(f"what was prepared cannot be taken ({error.strerror})") from None
    return content
