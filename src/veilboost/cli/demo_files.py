"""What the demonstration needs on disk: certificates, three tables, settings, and rows that nobody trains on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.data.arrow import ArrowTable, pyarrow
from veilboost.data.scenes import ID, LABEL, make_scene
from veilboost.party.certs import init_authority, issue
from veilboost.party.commented import commented_toml
from veilboost.party.job import Job, JobParty
from veilboost.party.keyfiles import make_private_folder, write_private
from veilboost.party.policy import ANY, Policy
from veilboost.party.settings import CertificateSettings, DataSettings, PartySettings
from veilboost.types import AnyArray, BoolArray, PartyName

ACTIVE, JOB = "bank", "credit"
CERTS, NEW = "certs", "new-customers.parquet"
LISTEN = "127.0.0.1:0"  # any free port
TEST_SHARE = 0.25
TRAINING = TrainingConfig(objective="binary", n_estimators=60, max_depth=5, learning_rate=0.1)


def party_file(folder: Path, party: PartyName) -> Path:
    return folder / f"{party}.toml"


def write_parties(folder: Path, protocol: str) -> tuple[PartyName, ...]:
    """Write everything but the job; returns the parties, the active one first."""
    scene = make_scene()
    make_private_folder(folder)
    init_authority(folder / CERTS, "demo")
    # People whom the bank meets only later: the others know them, but with nobody's label they are not trained on.
    later = np.isin(_ids(scene[ACTIVE]), _test_ids(scene))
    _write_rows(scene[ACTIVE], later, folder / NEW)
    for party, table in scene.items():
        _write_rows(table, ~later if party == ACTIVE else None, folder / f"{party}.parquet")
        issue(folder / CERTS, party, ["localhost", "127.0.0.1"])
        settings = _settings(party, [other for other in scene if other != party], protocol)
        title = f"The settings of party {party}. Relative paths start where this file is."
        write_private(party_file(folder, party), commented_toml(settings, title).encode())
    return tuple(scene)


def write_job(folder: Path, protocol: str, addresses: Mapping[PartyName, str]) -> Path:
    """Write the job, now that it is known where the others listen."""
    others = {party: JobParty(address) for party, address in addresses.items()}
    job = Job(
        name=JOB,
        parties={ACTIVE: JobParty(role="active"), **others},
        alignment="ecdh",
        protocol=protocol,
        training=TRAINING,
    )
    file = folder / "job.toml"
    write_private(file, commented_toml(job, f"The training job {JOB}.").encode())
    return file


def _settings(party: PartyName, others: list[PartyName], protocol: str) -> PartySettings:
    certs = Path(CERTS)
    return PartySettings(
        name=party,
        certificates=CertificateSettings(
            certs / f"{party}.crt", certs / f"{party}.key", certs / "ca.crt", certs / "revoked.crl"
        ),
        data=DataSettings(path=Path(f"{party}.parquet"), id=ID, label=LABEL if party == ACTIVE else None),
        listen=LISTEN,
        runs=Path(f"runs-{party}"),
        threads=1,  # three parties share this machine
        policy=Policy(protocols=(protocol,), accept_exposed=(protocol,), peers=dict.fromkeys(others, (ANY,))),
    )


def _write_rows(table: ArrowTable, rows: BoolArray | None, file: Path) -> None:
    kept = table if rows is None else cast(Any, table).filter(pyarrow().array(rows))
    pyarrow("parquet").write_table(kept, file)


def _ids(table: ArrowTable) -> AnyArray:
    return np.asarray(table.column(ID).to_pylist())


def _test_ids(scene: Mapping[PartyName, ArrowTable]) -> AnyArray:
    """A share of the people whom all parties know."""
    shared: AnyArray | None = None
    for table in scene.values():
        ids = _ids(table)
        shared = ids if shared is None else np.intersect1d(shared, ids)
    if shared is None:
        raise TypeError("the scene has no parties")
    return np.random.default_rng(0).choice(shared, round(TEST_SHARE * len(shared)), replace=False)
