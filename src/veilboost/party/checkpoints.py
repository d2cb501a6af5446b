"""The checkpoints of a run at one party: one file each, which is the commit point.

A file is a line of JSON (digests, the history, the manifest of the share), then the arrays of the share and, at a
party with labels, the margins of all rows. The last two checkpoints are kept, so that parties that were stopped between
two trees have one in common.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from veilboost import at_rest, durable
from veilboost.boost.booster import Progress, RoundResult
from veilboost.crypto.csprng import JobRandomness
from veilboost.durable import reading
from veilboost.engine.shards import ShardedArray
from veilboost.errors import DamagedState, ModelError, StateDiffers
from veilboost.model.share import ModelShare
from veilboost.model.store import packed, unpacked
from veilboost.party.messages import Accepted
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
    def state(self) -> bytes:
        """What `Checkpoints.save` was given; empty for other parties."""
        try:
            return bytes.fromhex(self.about.get("state", ""))
        except (TypeError, ValueError) as error:
            raise _damaged(self.file) from error

    @property
    def history(self) -> list[RoundResult]:
        return [RoundResult(*values) for values in self.about["history"]]

    def share(self) -> ModelShare:
        try:
            with reading(self.file), at_rest.opened(self.file) as file:
                file.readline()
                content = file.read(self.about["size"])
            return unpacked(self.about["share"], content, self.file, of_run=True)
        except (FileNotFoundError, KeyError, TypeError, ModelError) as error:
            raise _damaged(self.file) from error

    def progress(self) -> tuple[Progress, ModelShare]:
        """What a party with labels needs to continue; a server has no margins."""
        share = self.share()
        try:
            shape = tuple(self.about["margin"])
            with reading(self.file), at_rest.opened(self.file) as file:
                start = _margin_place(len(file.readline()) + self.about["size"])
                # Both raise a `ValueError` if the file is shorter.
                if isinstance(file, BytesIO):  # it was decrypted
                    values = np.frombuffer(file.getvalue(), "<f8", math.prod(shape), start)
                    margin: Float64Array = values.reshape(shape).copy()
                elif not math.prod(shape):
                    margin = np.empty(shape)
                else:
                    margin = np.memmap(self.file, "<f8", "c", start, shape).view(np.ndarray)
        except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
            raise _damaged(self.file) from error
        trees = [] if share.skeleton is None else list(share.skeleton.trees)
        return Progress(trees, margin, self.history), share


class Checkpoints:
    """The folder with the checkpoints of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def kept(self) -> list[StoredCheckpoint]:
        """All checkpoints, newest first."""
        return [found for trees in self._stored() if (found := self._open(trees)) is not None]

    def find(self, trees: int, digest: str) -> StoredCheckpoint:
        for each in self.kept():
            if (each.trees, each.digest) == (trees, digest):
                return each
        raise StateDiffers(f"there is no checkpoint of {trees} trees with this digest")

    def _open(self, trees: int) -> StoredCheckpoint | None:
        path = self._folder / f"{trees}{_ENDING}"
        try:
            with reading(path), at_rest.opened(path) as file:
                about = _about(file.readline(), path)
            return StoredCheckpoint(path, trees, str(about["digest"]), dict(about["peers"]), about)
        except FileNotFoundError:  # a job that is running has removed it since
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path) from error

    def save(
        self,
        share: ModelShare,
        trees: int,
        randomness: JobRandomness,
        peers: Mapping[PartyName, str] | None = None,
        progress: Progress | None = None,
        state: bytes = b"",
    ) -> str:
        """Store a share in progress, and for a party with labels what the next round needs. Returns a digest.

        The digest is of the share and of `state`, a digest of what else must not change. It is keyed: without the job's
        key of this party it tells nothing about them.
        """
        durable.make_folder(self._folder)
        manifest, content = packed(share)
        named = ("digest of a checkpoint", trees, manifest["arrays_sha256"], state)
        digest = randomness.for_request(*named).bytes(16).hex()
        about = {
            "digest": digest,
            "state": state.hex(),
            "peers": dict(peers or {}),
            "size": len(content),
            "margin": [] if progress is None else progress.margin.shape,
            "history": [] if progress is None else [list(vars(result).values()) for result in progress.history],
            "share": manifest,
        }
        head = json.dumps(about).encode() + b"\n" + content
        path = self._folder / f"{trees}{_ENDING}"
        with durable.replacing(path) as temporary, at_rest.writing(temporary, path) as file:
            file.write(head)
            if progress is not None:
                _write_margin(file, _margin_place(len(head)), progress.margin)
        self._remove_others(trees)
        return digest

    def _remove_others(self, trees: int) -> None:
        """Remove all files except the checkpoint of this number of trees and the one before it."""
        before = max((each for each in self._stored() if each < trees), default=trees)
        for path in list(self._folder.iterdir()):
            if path.name not in (f"{trees}{_ENDING}", f"{before}{_ENDING}"):
                path.unlink(missing_ok=True)

    def _stored(self) -> list[int]:
        """The numbers of trees of all checkpoints, the largest first."""
        found = (re.fullmatch(rf"(\d+){_ENDING}", path.name) for path in self._folder.glob("*"))
        return sorted((int(each[1]) for each in found if each), reverse=True)


def agreed(
    driver: PartyName, kept: Sequence[StoredCheckpoint], accepted: Mapping[PartyName, Accepted]
) -> StoredCheckpoint | None:
    """The driver's last checkpoint that all other parties have too; None if the driver has none at all.

    Raises `StateDiffers` if no checkpoint is common.
    """
    for each in kept:
        if all(has(answer, each.trees, each.peers.get(name)) for name, answer in accepted.items()):
            return each
    if kept:
        raise differ(driver, kept[0].trees, accepted)
    return None


def has(answer: Accepted, trees: int, digest: str | None) -> bool:
    """Whether a party has the checkpoint of this number of trees with this digest."""
    return (trees, digest) in list(zip(answer.trees.tolist(), answer.digests, strict=False))


def differ(driver: PartyName, trees: int, accepted: Mapping[PartyName, Accepted]) -> StateDiffers:
    others = (f"{name} has {answer.trees.max(initial=0)}" for name, answer in accepted.items())
    return StateDiffers(
        f"the parties have no checkpoint in common: {driver} has {trees} trees, {', '.join(others)}, or the trees are "
        "of different attempts"
    )


def _margin_place(head: int) -> int:
    """Where margins begin after so many bytes: aligned, so that they can be mapped into memory."""
    return head + -head % 64


def _write_margin(file: BinaryIO, start: int, margin: Float64Array) -> None:
    """Write an array (K, rows) at this place; of a sharded array, one shard is in memory at a time."""
    rows, begin = margin.shape[1], 0
    for piece in margin.chunks() if isinstance(margin, ShardedArray) else [margin]:
        for number, values in enumerate(piece):
            file.seek(start + 8 * (number * rows + begin))
            file.write(np.ascontiguousarray(values, "<f8").data)
        begin += piece.shape[1]


def _about(line: bytes, file: Path) -> dict[str, Any]:
    try:
        about = json.loads(line)
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise _damaged(file)
    return cast("dict[str, Any]", about)


def _damaged(file: Path) -> DamagedState:
    return DamagedState(
        f"the checkpoint file {file} is damaged",
        "restore it from a backup; or run train without --resume at the driver: training starts at the first round",
    )
