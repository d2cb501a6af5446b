"""Two owners and two third parties in this process over real links, whose tables may be folders of parquet files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from veilboost.align.clear import align_by_id
from veilboost.config import TrainingConfig
from veilboost.data.load import load_table
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings, load_party
from veilboost.party.simulation import simulate_training

OWNERS, HELPERS = ("bank", "shop"), {"ta": "authority", "csp": "csp"}
EVERYONE = (*HELPERS, *OWNERS)
CONFIG = TrainingConfig(objective="binary", n_estimators=3, max_depth=3, max_bin=16)
FILES = 3


def lotted_certificates(folder: Path) -> Path:
    init_authority(folder)
    for name in EVERYONE:
        issue(folder, name, ["localhost"])
    return folder


class Lotted:
    """`settle` writes a party's file and starts its daemon, unless it is the bank, which drives."""

    def __init__(self, folder: Path, certificates: Path, people: int = 420, common: float = 0.8) -> None:
        self.folder, self._certificates = folder, certificates
        self._daemons: dict[str, Daemon] = {}
        self.columns = self._people(people, common)
        for name in OWNERS:
            self.write(name, self.columns[name])
        for name in EVERYONE:
            self.settle(name)

    @staticmethod
    def _people(people: int, common: float) -> dict[str, dict[str, np.ndarray]]:
        rng = np.random.default_rng(5)
        values = rng.normal(size=(people, 4)).round(2)
        label = (values.sum(axis=1) + rng.normal(size=people) > 0).astype(np.int64)
        found = {}
        for number, name in enumerate(OWNERS):
            known = rng.permutation(people)[: round(common * people)]
            found[name] = {"id": np.array([f"c{at}" for at in known])}
            found[name] |= {f"x{k}": values[known, k] for k in (2 * number, 2 * number + 1)}
            found[name] |= {"y": label[known]} if name == "bank" else {"town": np.array(["ulm", "köln"])[known % 2]}
        return found

    def write(self, name: str, columns: dict[str, np.ndarray]) -> None:
        """The table as a folder of files, some of whose groups of rows are smaller than a shard."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for number, rows in enumerate(np.array_split(np.arange(len(columns["id"])), FILES)):
            table = pa.table({key: column[rows] for key, column in columns.items()})
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=31)

    def settle(self, name: str, engine: str = "local", data: str = "", policy: str = "", place: str = "") -> None:
        certs, label = self._certificates, 'label = "y"' if name == "bank" and "label" not in data else ""
        table = f'[data]\n{place or f"path = {str(self.folder / name)!r}"}\nid = "id"\n{label}\n{data}\n'
        ways = "".join(
            f'[peers.{helper}]\naddress = "127.0.0.1:{self._daemons[helper].port}"\nconnect = "in"\n'
            for helper in HELPERS
            if name in OWNERS
        )
        (self.folder / f"{name}.toml").write_text(
            f'name = "{name}"\nlisten = "127.0.0.1:0"\nruns = "runs-{name}"\nn_jobs = 1\nengine = "{engine}"\n{ways}'
            f'[certificates]\ncert = "{certs}/{name}.crt"\nkey = "{certs}/{name}.key"\nca = "{certs}/ca.crt"\n'
            f"{table if name in OWNERS else ''}[limits]\nwait_seconds = 15\n[policy]\n{policy}\n"
            'protocols = ["plain", "lattice"]\nallow_unprotected = ["plain", "lattice"]\n[policy.peers]\n'
            + "".join(f'{other} = ["any"]\n' for other in EVERYONE if other != name)
        )
        if name != "bank":
            self.restart(name)

    def restart(self, name: str) -> None:
        """A daemon that comes again listens where it did."""
        port, settings = 0, self.party(name)
        if name in self._daemons:
            port = self._daemons[name].port
            self._daemons[name].stop()
        self._daemons[name] = Daemon(replace(settings, listen=f"127.0.0.1:{port}"))

    def party(self, name: str) -> PartySettings:
        return load_party(self.folder / f"{name}.toml")

    def driver(
        self,
        name: str,
        alignment: str = "ecdh",
        protocol: str = "plain",
        config: TrainingConfig = CONFIG,
        watch: Watch | None = None,
        **changes: object,
    ) -> Coordinator:
        ways = "".join(
            f'[parties.{other}]\naddress = "127.0.0.1:{self._daemons[other].port}"\n'
            + (f'role = "{HELPERS[other]}"\n' if other in HELPERS else "")
            for other in (["shop", *HELPERS] if alignment == "hmac_csp" else ["shop"])
        )
        file = self.folder / f"{name}.job.toml"
        file.write_text(f'name = "{name}"\nalignment = "{alignment}"\n[parties.bank]\nrole = "active"\n{ways}')
        job = load_job(file)
        job = replace(job, training=config, protocol=protocol, **changes)
        return coordinate(self.party("bank"), job, watch)

    def train(self, name: str, resume: bool = False, **options: object) -> str:
        """Train, and the fingerprint of the model."""
        with self.driver(name, **options) as driver:  # type: ignore[arg-type]
            driver.train(resume)
        return join({owner: self.run(owner, name).load_share() for owner in OWNERS}).sha256()

    def run(self, owner: str, name: str) -> RunFolder:
        return RunFolder.open(self.folder / f"runs-{owner}", name)

    def simulated(self, protocol: str = "plain", config: TrainingConfig = CONFIG) -> str:
        """The model of the same tables in one process."""
        tables = {
            owner: load_table(self.folder / owner, id="id", label="y" if owner == "bank" else None) for owner in OWNERS
        }
        return join(simulate_training(align_by_id(tables), "bank", protocol, config).shares).sha256()

    def close(self) -> None:
        for daemon in self._daemons.values():
            daemon.stop()


def stop_after(rounds: int, stop: Callable[[], BaseException]) -> Watch:
    """A watch that ends a job when so many rounds have ended."""

    def watched(result: object) -> None:
        if getattr(result, "number", 0) + 1 == rounds:
            raise stop()

    return Watch(round=watched)
