"""The parties of one small job as processes of their own over mutual TLS, forked from one that has loaded everything.

A fork starts in a tenth of a second and runs the command `veilboost` as a terminal would. `shim.c` and two wrappers
strike it at a chosen file operation or message; the product knows nothing of either.
"""

from __future__ import annotations

import ctypes
import os
import random
import resource
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer.main
from lies import Changes

import veilboost.cli.main
import veilboost.party.daemon
import veilboost.party.federation
import veilboost.party.session
from veilboost.config import TrainingConfig
from veilboost.crypto import csprng
from veilboost.errors import UnsupportedCombination
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.job import Job, JobParty
from veilboost.party.policy import Policy
from veilboost.party.runs import RunFolder
from veilboost.party.sections import commented_toml
from veilboost.party.settings import CertificateSettings, DataSettings, Limits, PartySettings, PeerSettings
from veilboost.privacy.ledger import Ledger
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.wire import rpc
from veilboost.wire.message import Message, encode

JOB = "credit"
ROWS = 300
DRIVERS = {"vertical": "bank", "horizontal": "hub"}
OWNERS = {"vertical": ("bank", "shop", "telecom"), "horizontal": ("north", "south", "east")}
HELPERS = {"vertical": {"ta": "authority", "csp": "csp"}, "horizontal": {"judge": "comparer", "notary": "authority"}}
LIMITS = Limits(connect_seconds=2.0, request_seconds=8.0, wait_seconds=6.0)
# The longest that any of these deadlines adds up to within one command, on a machine that is busy with other work.
BOUND = 60.0
KILL = -1  # in place of an errno
SHORT_KEYS = {"paillier": {"key_bits": 512, "allow_insecure_key": True}}
# What a party loads when it first needs it. Loaded here once, so that no fork has to.
_LATE = """dp_accounting.pld.privacy_loss_distribution grpc._channel grpc._server grpc.experimental pandas
pyarrow.compute pydantic.main typer._adapters veilboost.party.horizontal veilboost.party.vertical
veilboost.party.vertical_session"""
for _name in _LATE.split():
    import_module(_name)
_LIBC = ctypes.CDLL(None)


@cache
def build_command() -> None:
    """Build the command once, so that no fork has to."""
    veilboost.cli.main.app = typer.main.get_command(veilboost.cli.main.app)  # type: ignore[assignment]


@dataclass(frozen=True)
class Fault:
    """What happens to one process; `at` counts its file operations, `message` the packets that it sends or receives.

    At the message it gets `signal`; without one, the thread that handles the message stops. `lie` is the number of a
    message that it sends with one field changed. `descriptors` and `megabytes` are what it may use beyond what it uses
    when it starts.
    """

    at: int = 0
    errno: int = 0
    jump: int = 0
    message: int = 0
    signal: int = signal.SIGKILL
    lie: int = 0
    descriptors: int | None = None
    megabytes: int | None = None


NONE = Fault()


class Process:
    """One forked command. `name` is that of its logs; a process that ends keeps them."""

    def __init__(self, town: Town, name: str, party: str, arguments: tuple[str, ...], fault: Fault = NONE) -> None:
        self.party, self.code = party, None
        self._logs = town.logs / name
        for kind in ("out", "err", "events"):
            self._file(kind).write_bytes(b"")
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self._become(town.folder, arguments, fault)
                veilboost.cli.main.run()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def _file(self, kind: str) -> Path:
        return self._logs.with_name(f"{self._logs.name}.{kind}")

    def _become(self, folder: Path, arguments: tuple[str, ...], fault: Fault) -> None:
        _LIBC.prctl(1, signal.SIGKILL)  # it ends with the drill
        os.closerange(3, 4096)
        for stream, kind in ((1, "out"), (2, "err")):
            os.dup2(os.open(self._file(kind), os.O_WRONLY | os.O_APPEND), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        _repeat_noise(self.party)
        log = os.open(self._file("events"), os.O_WRONLY | os.O_APPEND)
        _count_messages(log, fault)
        if fault.lie:
            _lie(log, Changes(fault.lie, random.Random(fault.lie)))
        if fault.descriptors is not None:
            used = max(map(int, os.listdir("/proc/self/fd")))
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + fault.descriptors,) * 2)
        if fault.megabytes is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (fault.megabytes << 20),) * 2)
        sys.argv = ["veilboost", *arguments]
        events = bytes(self._file("events"))
        _LIBC.drill_arm(bytes(folder), events, ctypes.c_long(fault.at), fault.errno, ctypes.c_long(fault.jump))

    # --- seen from outside ------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def kill(self) -> None:
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    @property
    def out(self) -> str:
        return self._file("out").read_text()

    @property
    def err(self) -> str:
        return self._file("err").read_text()

    @property
    def events(self) -> list[tuple[str, str]]:
        """What it did so far, in order: "file", "idle" (see `shim.c`), "message" or "lie", and a text about it."""
        lines = self._file("events").read_text().splitlines()
        return [(what, about) for what, _, about in (line.partition(" ") for line in lines)]

    @property
    def files(self) -> list[str]:
        """Its file operations so far."""
        return [about for what, about in self.events if what in {"file", "idle"}]

    @property
    def messages(self) -> list[str]:
        return [about for what, about in self.events if what == "message"]


def _repeat_noise(party: str) -> None:
    """A job that starts again draws the same noise, so that every protocol has one model to compare with."""

    class Repeated(csprng.JobRandomness):
        def __init__(self, key: bytes | None = None) -> None:
            super().__init__(csprng.unsafe_key(0, party) if key is None else key)

    for module in list(sys.modules.values()):
        if getattr(module, "JobRandomness", None) is csprng.JobRandomness and module is not csprng:
            module.JobRandomness = Repeated  # type: ignore[attr-defined]


def _count_messages(log: int, fault: Fault) -> None:
    count, envelope, read = 0, rpc.Packet.envelope, rpc.read_envelope

    def seen(what: str) -> None:
        nonlocal count
        count += 1
        os.write(log, f"message {count} {what}\n".encode())
        if count == fault.message:
            if not fault.signal:
                threading.Event().wait()
            os.kill(os.getpid(), fault.signal)

    def sending(packet: rpc.Packet) -> bytes:
        seen(f"send {packet.kind.name} {packet.number}")
        return envelope(packet)

    def receiving(start: Any) -> Any:
        found = read(start)
        seen(f"receive {found[0].name} {found[2]}")
        return found

    rpc.Packet.envelope, rpc.read_envelope = sending, receiving  # type: ignore[method-assign]


def _lie(log: int, change: Changes) -> None:
    def encode_changed(message: Message) -> bytes:
        changed = change(message)
        if changed is not message:
            os.write(log, f"lie about {change.what}\n".encode())
        return encode(changed)

    for module in (rpc, veilboost.party.session):
        module.encode = encode_changed  # type: ignore[attr-defined]


class Town:
    """The files of all parties of one protocol's job, and their processes.

    A vertical job has two passive parties and aligns by PSI with two helpers. A `shorter` one has one passive party,
    finds its rows aligned, and has two trees, not three; keys of Paillier are short in it.
    """

    def __init__(
        self,
        folder: Path,
        protocol: str,
        options: Mapping[str, Any] | None = None,
        *,
        shorter: bool = False,
        engine: str = "local",
    ) -> None:
        build_command()
        self.folder, self.logs, self.protocol = folder, folder.with_name(folder.name + "-logs"), protocol
        self.spec = protocol_named(protocol)
        setting = self.spec.setting
        self.driver, self.owners = DRIVERS[setting], OWNERS[setting][: 2 if shorter else None]
        self._shorter, self._engine = shorter, engine
        alignment = set[str]() if setting == "horizontal" or shorter else {"authority", "csp"}
        wanted = alignment | set(self.spec.helpers)
        self.helpers = {name: role for name, role in HELPERS[setting].items() if role in wanted}
        self.others = tuple(name for name in (*self.helpers, *self.owners) if name != self.driver)
        self.everyone = (self.driver, *self.others)
        self.ports = {name: free_port() for name in (*self.others, "proxy")}
        self.daemons: dict[str, Process] = {}
        self.job = JOB
        self._started = 0
        folder.mkdir(parents=True)
        self.logs.mkdir()
        made = os.fork()  # pyarrow starts threads, which no later fork may inherit
        if made == 0:
            try:
                self._write_files(dict(options or (SHORT_KEYS.get(protocol, {}) if shorter else {})))
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitpid(made, 0)[1] != 0:
            raise RuntimeError(f"the files of {protocol} cannot be written")

    # --- files ------------------------------------------------------------------------------------------

    def _write_files(self, options: Mapping[str, Any]) -> None:
        init_authority(self.folder, "town")
        rng = np.random.default_rng(7)
        values = rng.normal(size=(ROWS, 6)).round(2)
        late = (values @ rng.normal(size=6) + rng.normal(size=ROWS) > 0).astype(np.int64)
        for name in self.everyone:
            issue(self.folder, name, ["localhost", "127.0.0.1"])
            if name in self.owners:
                at = self.owners.index(name)
                if self.spec.setting == "vertical":
                    rows, columns = np.sort(rng.permutation(ROWS)[: ROWS * 9 // 10]), (2 * at, 2 * at + 1)
                    rows = np.arange(ROWS) if self._shorter else rows
                else:
                    rows, columns = np.arange(ROWS)[at :: len(self.owners)], range(3)
                table: dict[str, Any] = {"id": [f"c{row:04d}" for row in rows]}
                table |= {f"n{column}": values[rows, column] for column in columns}
                if name == self.driver or self.spec.setting == "horizontal":
                    table["late"] = late[rows]
                pq.write_table(pa.table(table), self.folder / f"{name}.parquet")
            self.write_settings(name)
        trees = 2 if self._shorter else 3
        config = TrainingConfig(
            objective="binary", n_estimators=trees, max_depth=2, max_bin=8, learning_rate=0.3, options=dict(options)
        )
        config = replace(config, **self.spec.fixed)
        try:
            validate(ResolvedJob(self.spec, config))
        except UnsupportedCombination:
            config = replace(config, categories="ordinal")
        self._config = config
        for proxied in (None, *self.others):
            self._write_job(proxied)

    def write_settings(self, name: str, file: str | None = None, **changes: Any) -> None:
        labelled = name == self.driver or self.spec.setting == "horizontal"
        data = DataSettings(Path(f"{name}.parquet"), id="id", label="late" if labelled else None)
        settings = PartySettings(
            name=name,
            certificates=CertificateSettings(Path(f"{name}.crt"), Path(f"{name}.key"), Path("ca.crt")),
            limits=LIMITS,
            policy=Policy(
                protocols=(self.protocol,),
                allow_unprotected=(self.protocol,),
                min_rows=1,
                predictions_per_day=10**9,
                deploy_to=(self.driver,),
                peers={other: ("any",) for other in self.everyone if other != name},
            ),
            **{
                "data": data if name in self.owners else None,
                "engine": self._engine if name in self.owners else "local",
                "listen": f"127.0.0.1:{self.ports.get(name, 0)}",
                "runs": Path(f"runs-{name}"),
                "n_jobs": 1,
                "peers": {
                    helper: PeerSettings(f"127.0.0.1:{self.ports[helper]}", "in")
                    for helper in self.helpers
                    if helper != name
                },
            }
            | changes,
        )
        (self.folder / (file or f"{name}.toml")).write_text(commented_toml(settings, f"The settings of {name}."))

    def _write_job(self, proxied: str | None) -> None:
        vertical = self.spec.setting == "vertical"
        parties = {self.driver: JobParty(role=self.spec.driver, **({} if vertical else {"connect": "in"}))}
        for name in self.others:
            port = self.ports["proxy" if name == proxied else name]
            parties[name] = JobParty(f"127.0.0.1:{port}", role=self.helpers.get(name, self.spec.data_role))
        how = {"alignment": "prealigned" if self._shorter else "hmac_csp"} if vertical else {}
        job = Job(name=JOB, parties=parties, protocol=self.protocol, training=self._config, **how)
        (self.folder / job_file(proxied)).write_text(commented_toml(job, "A short job."))

    # --- processes --------------------------------------------------------------------------------------

    def command(self, party: str, *arguments: str, fault: Fault = NONE) -> Process:
        self._started += 1
        return Process(self, f"{self._started:03d}-{party}", party, arguments, fault)

    def serve(self, *parties: str, faults: Mapping[str, Fault] | None = None) -> None:
        """Start daemons and wait until each listens, or has ended."""
        for name in parties:
            fault = (faults or {}).get(name, NONE)
            self.daemons[name] = self.command(name, "party", "serve", "--config", f"{name}.toml", "--json", fault=fault)
        for name in parties:
            daemon, end = self.daemons[name], time.monotonic() + BOUND
            while not daemon.ended and "\n" not in daemon.out:
                if time.monotonic() > end:
                    raise TimeoutError(f"the daemon of {name} does not start")
                time.sleep(0.005)

    def train(self, resume: bool = False, fault: Fault = NONE, proxied: str | None = None) -> Process:
        text = (self.folder / job_file(proxied)).read_text()
        (self.folder / "next.toml").write_text(text.replace(f'name = "{JOB}"', f'name = "{self.job}"'))
        options = ("--config", f"{self.driver}.toml", "--json", *(("--resume",) if resume else ()))
        return self.command(self.driver, "train", "next.toml", *options, fault=fault)

    def clear(self, *ended: str) -> None:
        """Forget all runs; end the named daemons, all if none is named."""
        for name in ended or tuple(self.daemons):
            if name in self.daemons:
                self.daemons.pop(name).kill()
        for name in set(self.everyone) - set(self.daemons):  # as at its first start, so that it counts the same
            shutil.rmtree(self.folder / f"runs-{name}", ignore_errors=True)
        for path in (*self.folder.glob("runs-*/*"), *self.folder.glob("kept-*")):
            if path.is_dir():
                shutil.rmtree(path)
            elif "lock" not in path.name:  # a daemon that goes on holds it
                path.unlink()
        (self.folder / "fault").unlink(missing_ok=True)
        self.job = JOB

    # --- what is left -----------------------------------------------------------------------------------

    def run(self, name: str) -> RunFolder:
        return RunFolder(self.folder / f"runs-{name}" / self.job)

    def model(self) -> str:
        """The hash of the model. Raises unless its owners hold shares that belong together."""
        if self.spec.setting == "vertical":
            return join({name: self.run(name).load_share() for name in self.owners}).sha256()
        share = self.run(self.driver).load_share()
        return join({share.party: share}).sha256()

    def released(self) -> dict[str, set[str]]:
        """The releases in the ledger of each owner, whose chain is verified."""
        found: dict[str, set[str]] = {}
        for name in self.owners:
            ledger = Ledger(self.folder / f"runs-{name}" / "ledger.sqlite")
            ledger.verify()
            found[name] = {event.canonical() for event in ledger.events()}
        return found

    def left_files(self) -> list[str]:
        """Temporary files and keys that outlived the job."""
        every = (path for name in self.owners for path in (self.folder / f"runs-{name}").rglob("*"))
        wrong = ("partial", "tmp", "journal", "job.key")
        return sorted(str(path.relative_to(self.folder)) for path in every if any(word in path.name for word in wrong))


def job_file(proxied: str | None) -> str:
    return f"{JOB}.toml" if proxied is None else f"{JOB}-by-{proxied}.toml"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
