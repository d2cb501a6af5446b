"""The checkpoints of a run at one party: one file each, which is the commit point.

A file is a line of JSON (the number of trees, digests, the history, the manifest of the share), then the arrays of the
share. The active party also stores margins, in a file of their own, which is complete before the checkpoint names it.
The last two checkpoints are kept, so that parties that were stopped between two trees have one in common.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost import durable
from veilboost.boost.booster import Progress, RoundResult
from veilboost.crypto.csprng import JobRandomness
from veilboost.engine.shards import ShardedArray
from veilboost.errors import DamagedState, ModelError
from veilboost.model.share import ModelShare
from veilboost.model.store import packed, unpacked
from veilboost.types import Float64Array, PartyName

_ENDING = ".checkpoint"


@dataclass(frozen=True)
class StoredCheckpoint:
    """A stored checkpoint: its number of trees, and digests that only their owners can compute.

    `digest` is of the own share; `peers` are the digests that other parties reported to the driver for the same tree.
    """

    file: Path
    trees: int
    digest: str
    peers: Mapping[PartyName, str]
    about: Mapping[str, Any] = field(repr=False)

    @property
    def history(self) -> list[RoundResult]:
        return [RoundResult(*values) for values in self.about["history"]]

    def share(self) -> ModelShare:
        try:
            _, _, content = self.file.read_bytes().partition(b"\n")
            return unpacked(self.about["share"], content, self.file, of_run=True)
        except (OSError, KeyError, ModelError) as error:
            raise _damaged(self.file) from error

    def progress(self) -> tuple[Progress, ModelShare]:
        """What the active party needs to continue."""
        share, path = self.share(), self.file.parent / str(self.about["margin"])
        try:
            margin: Float64Array = np.load(path, mmap_mode="c", allow_pickle=False).view(np.ndarray)
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(path) from error
        trees = [] if share.skeleton is None else list(share.skeleton.trees)
        return Progress(trees, margin, self.history), share


class Checkpoints:
    """The folder with the checkpoints of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def kept(self) -> list[StoredCheckpoint]:
        """All checkpoints, newest first."""
        return [self._open(trees) for trees in self._stored()]

    def _open(self, trees: int) -> StoredCheckpoint:
        path = self._folder / f"{trees}{_ENDING}"
        try:
            with path.open("rb") as file:
                about = _about(file.readline(), path)
            return StoredCheckpoint(path, trees, str(about["digest"]), dict(about["peers"]), about)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(path) from error

    def save(
        self,
        share: ModelShare,
        trees: int,
        randomness: JobRandomness,
        peers: Mapping[PartyName, str] | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Store a share in progress, and for the driver what the next round needs. Returns the digest of the share.

        The digest is keyed: without the job's key of this party it tells nothing about the share.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        manifest, content = packed(share)
        digest = randomness.for_request("digest of a checkpoint", trees, manifest["arrays_sha256"]).bytes(16).hex()
        about = {
            "digest": digest,
            "peers": dict(peers or {}),
            "margin": None if progress is None else self._save_margin(trees, progress.margin),
            "history": [] if progress is None else [list(vars(result).values()) for result in progress.history],
            "share": manifest,
        }
        file = self._folder / f"{trees}{_ENDING}"
        durable.replace_file(file, json.dumps(about).encode() + b"\n" + content)
        self._remove_others(trees)
        return digest

    def _save_margin(self, trees: int, margin: Float64Array) -> str:
        """Save an array (K, rows); of a sharded array, one shard is in memory at a time. Returns the file's name.

        A new name each time: an earlier checkpoint of as many trees still names its own file.
        """
        names = (f"{trees}-{number}.npy" for number in itertools.count())
        path = next(path for name in names if not (path := self._folder / name).exists())
        with durable.replacing(path) as temporary:
            if isinstance(margin, ShardedArray):
                whole = np.lib.format.open_memmap(temporary, "w+", margin.dtype, margin.shape)
                for piece, (begin, end) in zip(margin.chunks(), margin.shards.ranges, strict=True):
                    whole[:, begin:end] = piece
                whole.flush()
            else:
                with temporary.open("wb") as file:
                    np.save(file, margin, allow_pickle=False)
        return path.name

    def _remove_others(self, trees: int) -> None:
        """Remove all files except those of this number of trees and of the checkpoint before it."""
        before = max((each for each in self._stored() if each < trees), default=trees)
        for path in sorted(self._folder.iterdir(), key=lambda path: path.suffix != _ENDING):  # before what they name
            number = re.match(r"\d+", path.name)
            if number is None or int(number[0]) not in (trees, before):
                path.unlink(missing_ok=True)

    def _stored(self) -> list[int]:
        """The numbers of trees of all checkpoints, the largest first."""
        found = (re.fullmatch(rf"(\d+){_ENDING}", path.name) for path in self._folder.glob("*"))
        return sorted((int(each[1]) for each in found if each), reverse=True)


def _about(line: bytes, file: Path) -> dict[str, Any]:
    try:
        about = json.loads(line)
    except ValueError:
        about = None
    if not isinstance(about, dict):
        raise _damaged(file)
    return cast("dict[str, Any]", about)


def _damaged(file: Path) -> DamagedState:
    return DamagedState(
        f"the checkpoint file {file} is damaged",
        "restore it from a backup; or run train without --resume at the driver: training starts at the first round",
    )
