"""Real parties for tests: certificates, tables, settings, and processes that never outlive their test."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from command_line import call
from forked import Process
from veilboost.align.clear import align_by_id
from veilboost.config import TrainingConfig
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.job import Job, JobParty
from veilboost.party.policy import Policy
from veilboost.party.runs import RunFolder
from veilboost.party.sections import commented_toml
from veilboost.party.settings import (
    CertificateSettings,
    DataSettings,
    Limits,
    PartySettings,
    PeerSettings,
)
from veilboost.party.simulation import simulate_training

PARTIES = ("bank", "shop", "telecom")
DEADLINE = 180.0  # nothing here may take longer, on a machine that is busy with other work too
CONFIG = TrainingConfig(objective="binary", n_estimators=8, max_depth=3, learning_rate=0.2, max_bin=16)


def make_certificates(folder: Path) -> Path:
    init_authority(folder, "town")
    for party in PARTIES:
        issue(folder, party, ["localhost", "127.0.0.1"])
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(true: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    """Look again and again, for a bounded time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.005)


class Town:
    """A folder with the files of three parties, and the processes that a test starts in it."""

    def __init__(
        self,
        folder: Path,
        certificates: Path,
        rows: int = 500,
        overlap: bool = True,
        start: Callable[..., Process] = Process,
    ) -> None:
        """`start`: starts a command in a folder."""
        self.folder = folder
        self._certificates = certificates
        self._start = start
        self._running: list[Process] = []
        self.daemons: dict[str, Process] = {}
        self._settings: dict[str, PartySettings] = {}
        self._write_tables(rows, overlap)
        for party in PARTIES:
            self.settle(party)

    # --- files ------------------------------------------------------------------------------------------

    def _write_tables(self, rows: int, overlap: bool) -> None:
        rng = np.random.default_rng(7)
        values = rng.normal(size=(rows, 6)).round(2)
        label = (values @ rng.normal(size=6) + rng.normal(size=rows) > 0).astype(np.int64)
        shade = np.array(["red", "green", "blue"])[rng.integers(3, size=rows)]
        for number, party in enumerate(PARTIES):
            known = np.sort(rng.permutation(rows)[: round(0.9 * rows)]) if overlap else np.arange(rows)
            if overlap:
                rng.shuffle(known)
            columns: dict[str, Any] = {"id": [f"c{at:05d}" for at in known]}
            for at in (2 * number, 2 * number + 1):
                columns[f"n{at}"] = values[known, at]
            if party == "bank":
                columns["label"] = label[known]
            if party == "shop":
                columns["shade"] = shade[known]
            pq.write_table(pa.table(columns), self.folder / f"{party}.parquet")

    def settle(
        self,
        party: str,
        policy: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        """Write a party's file; what is not said is allowed, short and on any free port."""
        certs = self._certificates
        self._settings[party] = PartySettings(
            name=party,
            certificates=CertificateSettings(certs / f"{party}.crt", certs / f"{party}.key", certs / "ca.crt"),
            policy=Policy(
                **{
                    "protocols": ("plain",),
                    "allow_unprotected": ("plain",),
                    "peers": {other: ("any",) for other in PARTIES if other != party},
                }
                | dict(policy or {})
            ),
            limits=Limits(**{"wait_seconds": 30.0} | dict(limits or {})),
            **{
                "data": DataSettings(Path(f"{party}.parquet"), id="id", label="label" if party == "bank" else None),
                "listen": "127.0.0.1:0",
                "runs": Path(f"runs-{party}"),
                "n_jobs": 1,
            }
            | changes,
        )
        self._write_settings(party)

    def _write_settings(self, party: str) -> None:
        text = commented_toml(self._settings[party], f"The settings of party {party}.")
        (self.folder / f"{party}.toml").write_text(text)

    def write_job(
        self,
        addresses: Mapping[str, str],
        name: str = "credit",
        config: TrainingConfig = CONFIG,
        dialled_by: tuple[str, ...] = (),
        **changes: Any,
    ) -> Path:
        """A job of the bank with the named parties; those of `dialled_by` dial the bank."""
        parties = {"bank": JobParty(self._settings["bank"].listen if dialled_by else None, role="active")}
        parties |= {party: JobParty(address) for party, address in addresses.items()}
        parties |= {party: JobParty(connect="in") for party in dialled_by}
        ordered = {party: parties[party] for party in PARTIES if party in parties}
        job = Job(name=name, parties=ordered, training=config, **{"alignment": "ecdh"} | changes)
        file = self.folder / f"{name}.toml"
        file.write_text(commented_toml(job, f"The job {name}."))
        return file

    def dial_out(self, party: str) -> None:
        """Let a party dial the bank, on a port that the bank now has."""
        if self._settings["bank"].listen.endswith(":0"):
            self._settings["bank"] = replace(self._settings["bank"], listen=f"127.0.0.1:{free_port()}")
            self._write_settings("bank")
        way = PeerSettings(self._settings["bank"].listen, "out")
        self._settings[party] = replace(self._settings[party], peers={"bank": way})
        self._write_settings(party)

    # --- processes --------------------------------------------------------------------------------------

    def spawn(self, *arguments: object) -> Process:
        process = self._start(*arguments, folder=self.folder)
        self._running.append(process)
        return process

    def run(self, *arguments: object) -> tuple[int, str, str]:
        """Run a command within this process; `spawn` starts one of its own."""
        done = call(*arguments, folder=self.folder, env={"COLUMNS": "200"})
        return done.returncode, done.stdout, done.stderr

    def answer(self, *arguments: object) -> dict[str, Any]:
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        found: Any = json.loads(out)
        return found

    def refused(self, *arguments: object) -> str:
        """The last line of a refusal, which bears its code."""
        code, out, err = self.run(*arguments)
        assert (code, out) == (2, ""), out + err
        line = err.splitlines()[-1]
        assert re.match(r"VB-\d{4}: .+; .+", line), err
        return line

    def serve(self, *parties: str) -> dict[str, str]:
        """Start daemons; gives their addresses, which they keep if they are started again."""
        started = {party: self.spawn("party", "serve", "--config", f"{party}.toml", "--json") for party in parties}
        addresses: dict[str, str] = {}
        for party, process in started.items():
            self.daemons[party] = process
            line = process.stdout.readline()  # ends also where the process does
            assert line, process.communicate(timeout=DEADLINE)[1]
            addresses[party] = json.loads(line)["address"]
            self._settings[party] = replace(self._settings[party], listen=addresses[party])
            self._write_settings(party)
        return addresses

    def address(self, party: str) -> str:
        """Where it listens; known once it was started."""
        return self._settings[party].listen

    def train(self, job: Path, *options: str) -> Process:
        return self.spawn("train", job.name, "--config", "bank.toml", *options)

    def trained(self, process: Process) -> tuple[str, str]:
        """What a driver said on stdout and stderr when it ended well."""
        out, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, err
        return out, err

    def kill(self, process: Process) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE)

    def close(self) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            process.communicate(timeout=DEADLINE)

    # --- what is left -----------------------------------------------------------------------------------

    def rounds(self, name: str = "credit") -> int:
        """How many rounds the driver has told of."""
        path = self.folder / "runs-bank" / name / "metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def until_round(self, number: int, driver: Process, name: str = "credit") -> None:
        def there() -> bool:
            assert driver.poll() is None, driver.communicate()[1]
            return self.rounds(name) >= number

        until(there, f"round {number}")

    def run_folder(self, party: str, name: str = "credit") -> RunFolder:
        return RunFolder.open(self.folder / f"runs-{party}", name)

    def sha(self, name: str = "credit", parties: tuple[str, ...] = PARTIES) -> str:
        return join({party: self.run_folder(party, name).load_share() for party in parties}).sha256()

    def simulated(
        self, config: TrainingConfig = CONFIG, parties: tuple[str, ...] = PARTIES, protocol: str = "plain"
    ) -> str:
        """The model of the same tables in one process."""
        tables = {}
        for party in parties:
            data = self._settings[party].data
            assert data is not None
            tables[party] = replace(data, path=self.folder / f"{party}.parquet").load()
        return join(simulate_training(align_by_id(tables), "bank", protocol, config).shares).sha256()
