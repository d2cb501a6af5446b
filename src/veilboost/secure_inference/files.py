"""What a daemon keeps of a secure service, under RUNS/RUN/service: keys, a directory, encrypted nodes."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost.errors import CheckpointFailed, UnknownRun
from veilboost.party.identity import make_private_folder, write_private
from veilboost.secure_inference.attributes import Directory
from veilboost.secure_inference.messages import EncryptedNodes
from veilboost.secure_inference.scheme import KnownService
from veilboost.types import PartyName


class ServiceFolder:
    """One service at one daemon. Everything is for its owner's eyes only."""

    def __init__(self, runs: Path, run: str) -> None:
        if not run or Path(run).name != run or run.startswith("."):
            raise UnknownRun(f"{run!r} is not the name of a run")
        self.path = runs / run / "service"

    def write(self, name: str, content: bytes) -> None:
        try:
            make_private_folder(self.path)
            write_private(self.path / name, content, force=True)
        except OSError as error:
            raise CheckpointFailed(f"{name} cannot be written ({error.strerror})") from None

    def read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except OSError:
            raise UnknownRun(
                f"there is no service {self.path.parent.name!r} here", "the active party runs `veilboost user publish`"
            ) from None

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def write_json(self, name: str, values: dict[str, Any]) -> None:
        self.write(name, json.dumps(values).encode())

    def read_json(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.read(name)))

    def save_known(self, known: KnownService) -> None:
        self.write_json(
            "service.json",
            {"attributes": known.directory.to_json(), "scheme": known.scheme, "key": known.key.hex()},
        )

    def known(self) -> KnownService:
        kept = self.read_json("service.json")
        return KnownService(Directory.from_json(kept["attributes"]), kept["scheme"], bytes.fromhex(kept["key"]))

    def save_nodes(self, party: PartyName, nodes: EncryptedNodes) -> None:
        held = BytesIO()
        np.savez(held, tree=nodes.tree, node=nodes.node, vectors=nodes.vectors, key=nodes.key)
        self.write(f"nodes-{party}.npz", held.getvalue())

    def nodes(self, party: PartyName) -> EncryptedNodes:
        with np.load(BytesIO(self.read(f"nodes-{party}.npz")), allow_pickle=False) as held:
            return EncryptedNodes(held["tree"], held["node"], held["vectors"], held["key"])
