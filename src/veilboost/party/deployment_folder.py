"""The folder of a deployment at one party: status, key, index of ids, and the trail of what was asked.

It is `deployments/ID` in the runs folder, where the ID is random. A deployment that has ended keeps its status and its
trail; its key and its index are removed.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from veilboost import at_rest, durable
from veilboost.crypto.csprng import KEY_BYTES, Csprng
from veilboost.durable import keeping, reading
from veilboost.errors import DamagedState, InvalidParameter, StateUnavailable, UnknownDeployment, VeilBoostError
from veilboost.logs import EventLogger, reason
from veilboost.party.runs import FORMAT, date_text
from veilboost.party.settings import PartySettings
from veilboost.types import AnyArray, PartyName

DEPLOYMENTS = "deployments"
LIVE, WITHDRAWN, EXPIRED = "live", "withdrawn", "expired"
STATUS, KEY, INDEX, TRAIL = "status.json", "deployment.key", "index.npz", "trail-"
DAY = 86_400.0  # seconds
_ID = re.compile(r"[0-9a-f]{32}")
_UNFINISHED = 3600.0  # seconds after which a temporary file, or a folder without a status, is of a killed process
_LOG = EventLogger(__name__)
Made = TypeVar("Made")


@dataclass(frozen=True)
class DeploymentStatus:
    """What a party knows about a deployment. `parties`: at the active party the passive ones, otherwise the owner.

    `untold`: those that could not be reached when the active party withdrew it.
    """

    name: str
    version: int
    run: str
    active: PartyName
    parties: tuple[PartyName, ...]
    created: float
    until: float
    trees: int
    digest: str = ""  # of the nodes of a passive party
    state: str = LIVE
    ended: float | None = None
    untold: tuple[PartyName, ...] = ()

    @property
    def now(self) -> str:
        """The state, given the time."""
        return EXPIRED if self.state == LIVE and time.time() >= self.until else self.state

    @property
    def label(self) -> str:
        return f"{self.name} version {self.version}"


class DeploymentFolder:
    """Reads and writes the files of one deployment."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def at(settings: PartySettings, id: str) -> DeploymentFolder:
        """The folder of this id, which a peer may have sent."""
        if _ID.fullmatch(id) is None:
            raise UnknownDeployment("the request does not name a deployment", public=True)
        return DeploymentFolder(settings.runs / DEPLOYMENTS / id)

    @staticmethod
    def create(settings: PartySettings, id: str, status: DeploymentStatus) -> DeploymentFolder:
        """Make the folder, with a key of its own."""
        folder = DeploymentFolder.at(settings, id)
        with keeping("the folder of the deployment cannot be written"):
            durable.make_folder(folder.path)
            at_rest.write(folder.path / KEY, Csprng().bytes(KEY_BYTES))
        folder.write_status(status)
        return folder

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def status_file(self) -> Path:
        return self.path / STATUS

    @property
    def exists(self) -> bool:
        return self.status_file.exists()

    @property
    def status(self) -> DeploymentStatus:
        try:
            with reading(self.status_file):
                found: dict[str, Any] = json.loads(self.status_file.read_bytes())
            found.pop("format")
            found["parties"], found["untold"] = tuple(found["parties"]), tuple(found.get("untold", ()))
            found["created"], found["until"] = float(found["created"]), float(found["until"])
            return DeploymentStatus(**found)
        except FileNotFoundError:
            raise UnknownDeployment(f"there is no deployment in {self.path}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedState(
                f"{self.status_file} cannot be read", "restore it from a backup; or delete the folder, and deploy again"
            ) from error

    def about(self) -> dict[str, Any]:
        """The deployment, for its owner."""
        status = self.status
        return {
            "id": self.id,
            "name": status.name,
            "version": status.version,
            "state": status.now,
            "run": status.run,
            "active": status.active,
            "parties": list(status.parties),
            "created": date_text(status.created),
            "until": date_text(status.until),
        }

    def write_status(self, status: DeploymentStatus) -> None:
        with keeping(f"{STATUS} cannot be written"):
            durable.replace_file(self.status_file, json.dumps({**asdict(status), "format": FORMAT}, indent=2).encode())

    @property
    def key(self) -> bytes:
        try:
            with reading(self.path / KEY):
                found = at_rest.read(self.path / KEY)
        except FileNotFoundError:
            found = b""
        if len(found) != KEY_BYTES:
            raise DamagedState(f"{self.path / KEY} is damaged", "restore it from a backup; or deploy again")
        return found

    def save_index(self, arrays: Mapping[str, AnyArray]) -> None:
        content = BytesIO()
        np.savez(content, allow_pickle=False, **dict(arrays))
        with keeping(f"{INDEX} cannot be written"):
            at_rest.write(self.path / INDEX, content.getvalue())

    def load_index(self, read: Callable[[Mapping[str, AnyArray]], Made]) -> Made | None:
        """What `read` makes of the stored index; None if there is none."""
        try:
            with reading(self.path / INDEX):
                content = at_rest.read(self.path / INDEX)
            with np.load(BytesIO(content), allow_pickle=False) as held:
                return read({name: held[name] for name in held.files})
        except FileNotFoundError:
            return None
        except VeilBoostError:
            raise
        except Exception as error:  # zipfile and NumPy raise many kinds of errors on a damaged file
            raise DamagedState(
                f"{self.path / INDEX} cannot be read", "restore it from a backup; or run veilboost deployments rekey"
            ) from error

    def end(self, state: str, untold: Sequence[PartyName] | None = None) -> None:
        """End the deployment here: nothing is answered any more, and its secrets are gone.

        `untold`: the parties that could not be told; None if nobody was to be told now.
        """
        status = self.status
        if untold is not None and status.untold != tuple(untold):
            status = replace(status, untold=tuple(untold))
            if status.state != LIVE:
                self.write_status(status)
        if status.state == LIVE:
            self.write_status(replace(status, state=state, ended=time.time()))
            _LOG.info(f"deployment_{state}", f"the deployment {status.label} has ended: {state}")
        with keeping("the key of the deployment cannot be removed"):
            durable.remove(self.path / KEY, self.path / INDEX)

    @property
    def has_secrets(self) -> bool:
        return (self.path / KEY).exists() or (self.path / INDEX).exists()

    # --- the trail --------------------------------------------------------------------------------------

    @property
    def trails(self) -> list[Path]:
        """A file for each day, oldest first."""
        return sorted(self.path.glob(f"{TRAIL}*.jsonl"))

    def read_trail(self) -> Iterator[dict[str, Any]]:
        """What was asked, oldest first."""
        for file in self.trails:
            for line in file.read_text(errors="replace").splitlines():
                if (found := _entry(line)) is not None:
                    yield found


def _entry(line: str) -> dict[str, Any] | None:
    """An entry of a trail; None for a line that cannot be read: a killed process may have left half of one."""
    try:
        found = json.loads(line)
        about = found["peer"], found["what"], found["rows"], datetime.fromtimestamp(found["when"], UTC)
    except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        return None
    return found if all(isinstance(each, kind) for each, kind in zip(about, (str, str, int), strict=False)) else None


class Trail:
    """Appends to the trail of a deployment. A line survives a killed process; no request waits for the disk."""

    def __init__(self, folder: DeploymentFolder) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._day = ""
        self._file: IO[str] | None = None

    def add(self, **entry: Any) -> None:
        now = time.time()
        with self._lock, keeping("the trail of the deployment cannot be written"):
            day = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
            if self._file is None or day != self._day:
                self._close()
                self._day, self._file = day, self._open(day)
            self._file.write(json.dumps({"when": round(now, 3), **entry}, separators=(",", ":")) + "\n")

    def close(self) -> None:
        with self._lock:
            self._close()

    def _open(self, day: str) -> IO[str]:
        path = self._folder.path / f"{TRAIL}{day}.jsonl"
        file = durable.open_private(path, "a", encoding="utf-8", buffering=1)
        if path.stat().st_size:
            file.write("\n")  # the last line may have been cut short
        return file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


# --- all deployments of a party -------------------------------------------------------------------------------------


def all_folders(settings: PartySettings) -> list[DeploymentFolder]:
    """The folders of all deployments of a party, also of those whose status cannot be read."""
    return [DeploymentFolder(file.parent) for file in sorted((settings.runs / DEPLOYMENTS).glob(f"*/{STATUS}"))]


def list_deployments(settings: PartySettings) -> list[DeploymentFolder]:
    """All deployments of a party, newest first. One whose status cannot be read is logged, and left out."""
    created = dict[DeploymentFolder, float]()
    for each in all_folders(settings):
        try:
            created[each] = each.status.created
        except UnknownDeployment:  # it was deleted just now
            continue
        except (DamagedState, StateUnavailable) as error:
            _LOG.warning("deployment_damaged", reason(error), error)
    return sorted(created, key=lambda each: -created[each])


def find_deployment(
    settings: PartySettings, name: str, version: int | None = None, *, live: bool = False
) -> DeploymentFolder:
    """The newest deployment of this name or id; `live`: that answers. Raises if several active parties have one."""
    found = [each for each in list_deployments(settings) if name in (each.status.name, each.id)]
    found = [each for each in found if version in (None, each.status.version)]
    found = [each for each in found if each.status.now == LIVE or not live]
    if not found:
        which = f"{name!r}" if version is None else f"{name!r} version {version}"
        raise UnknownDeployment(f"{settings.name} has no {'live ' if live else ''}deployment {which}")
    if len({each.status.active for each in found}) > 1:
        raise InvalidParameter(f"several parties have deployed {name!r}", "give the id of the deployment instead")
    return found[0]


def deployment_of_run(settings: PartySettings, run: Path) -> DeploymentFolder | None:
    """The newest live deployment of the run in this folder, which this party drives."""
    run = run.resolve()
    for each in list_deployments(settings) if run.parent == settings.runs.resolve() else ():
        status = each.status
        if (status.run, status.active, status.now) == (run.name, settings.name, LIVE):
            return each
    return None


def end_expired(settings: PartySettings) -> None:
    """Remove the secrets of deployments that have ended, and what killed processes left unfinished."""
    for each in list_deployments(settings):
        if each.status.now != LIVE and each.has_secrets:  # also an index that was written while it was withdrawn
            each.end(EXPIRED)
        durable.sweep(each.path, _UNFINISHED)
    for path in (settings.runs / DEPLOYMENTS).glob("*"):
        if not DeploymentFolder(path).exists and time.time() - path.stat().st_mtime >= _UNFINISHED:
            with keeping(f"{path} cannot be deleted"):
                shutil.rmtree(path)
