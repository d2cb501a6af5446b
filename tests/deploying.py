"""A town with a trained model and deployments, and a peer that sends what it likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parties import CONFIG, DEADLINE, PARTIES, Town, free_port
from veilboost.boost.objective import make_objective
from veilboost.data.load import load_table
from veilboost.model.joined import JoinedModel, join
from veilboost.party.coordinator import Connections
from veilboost.party.daemon import Daemon
from veilboost.party.deployment_folder import list_deployments
from veilboost.party.deployments import CATALOGUE, Deployment, Scored, Unknown
from veilboost.party.job import read_job
from veilboost.party.settings import PartySettings, load_party
from veilboost.types import Column
from veilboost.wire.channel import Peers
from veilboost.wire.message import Message

PASSIVE = PARTIES[1:]
ROWS = 200


class Deploying:
    """A town with a trained model. Each test has its own tables and deployments."""

    def __init__(self, folder: Path, certificates: Path) -> None:
        self.town = Town(folder, certificates, rows=ROWS)
        self.daemons: dict[str, Daemon] = {}
        self.ports = {party: free_port() for party in PASSIVE}
        for party in PASSIVE:
            self.settle(party)
        self.town.settle("bank", limits={"connect_seconds": 5.0})
        self.start(*PASSIVE)

    def settle(self, party: str, limits: Mapping[str, Any] | None = None, **policy: Any) -> None:
        listen = f"127.0.0.1:{self.ports[party]}"
        self.town.settle(party, policy={"deploy_to": ("bank",)} | policy, listen=listen, limits=limits)

    def start(self, *parties: str) -> None:
        for party in parties:
            self.daemons[party] = Daemon(self.settings(party))

    def stop(self, *parties: str) -> None:
        for party in parties:
            self.daemons.pop(party).stop()

    def settings(self, party: str) -> PartySettings:
        return load_party(self.town.folder / f"{party}.toml")

    @property
    def bank(self) -> PartySettings:
        return self.settings("bank")

    @property
    def run(self) -> Path:
        return self.bank.runs / "credit"

    def train(self) -> None:
        addresses = {party: f"127.0.0.1:{port}" for party, port in self.ports.items()}
        job = self.town.write_job(addresses, config=replace(CONFIG, n_estimators=4))
        self.town.answer("train", job.name, "--config", "bank.toml")

    # --- rows and what they should score ----------------------------------------------------------------

    def table(self, party: str) -> pa.Table:
        return pq.read_table(self.town.folder / f"{party}.parquet")

    def write(self, party: str, table: pa.Table) -> None:
        """Replace a table as an owner does: at once."""
        path = self.town.folder / f"{party}.parquet"
        pq.write_table(table, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def common(self) -> list[str]:
        return sorted(set.intersection(*(set(self.table(party)["id"].to_pylist()) for party in PARTIES)))

    def unknown_at(self, party: str) -> list[str]:
        """People whom the others know."""
        others = [set(self.table(other)["id"].to_pylist()) for other in PARTIES if other != party]
        return sorted(set.intersection(*others) - set(self.table(party)["id"].to_pylist()))

    def rows(self, deployment: Deployment, ids: list[str]) -> Any:
        bank = self.table("bank").drop_columns(["label"])
        place = {id: at for at, id in enumerate(bank["id"].to_pylist())}
        return deployment.load(bank.take([place[id] for id in ids]))

    def columns(self, ids: list[str]) -> list[Column]:
        """The columns of all parties; the values of people whom a party does not know are missing."""
        columns = []
        for party in PARTIES:
            label = {"label": "label"} if party == "bank" else {}
            table = load_table(self.town.folder / f"{party}.parquet", id="id", **label)
            place = {id: at for at, id in enumerate(table.ids.tolist())}
            for column in table.take(np.array([place.get(id, 0) for id in ids])).columns:
                values = column.values.copy()
                values[[id not in place for id in ids]] = -1 if column.categories else np.nan
                columns.append(replace(column, values=values))
        return columns

    @property
    def model(self) -> JoinedModel:
        return join({party: self.town.run_folder(party).load_share() for party in PARTIES})

    def expected(self, ids: list[str]) -> list[float]:
        """What the joined model gives."""
        return make_objective("binary").predict(self.model.margins(self.columns(ids))).tolist()

    def score(self, deployment: Deployment, ids: list[str], unknown: Unknown = "error") -> Scored:
        return deployment.score(self.rows(deployment, ids), unknown, DEADLINE)

    def check(self, deployment: Deployment, ids: list[str]) -> None:
        found = self.score(deployment, ids)
        assert (found.ids.tolist(), found.status) == (ids, ("known",) * len(ids))
        assert found.scores.tolist() == self.expected(ids)

    def trail(self, party: str) -> list[dict[str, Any]]:
        return list(list_deployments(self.settings(party))[0].read_trail())


class Asking:
    """A peer that sends what it likes to one party."""

    def __init__(self, settings: PartySettings, town: Deploying, party: str) -> None:
        job = read_job(town.town.run_folder("bank").job_text)
        self._connections = Connections(settings, job)
        self._caller = self._connections.caller(party, CATALOGUE, seconds=5.0)
        self._party = party

    def __call__(self, message: Message, kind: type[Message] = Message) -> Message:
        return Peers({self._party: self._caller}).ask({self._party: message}, kind)[self._party]

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.close()


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int32)
