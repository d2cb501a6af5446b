"""Every objective by XGBoost's name, between parties over TLS: the model is that of one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import Town, make_certificates
from veilboost.config import LEAF_QUANTILE_OBJECTIVES, LOSS_PARAMETERS, OBJECTIVE_ALIASES, OBJECTIVES, TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.party.daemon import Daemon
from veilboost.party.federation import Federation
from veilboost.party.settings import load_party

pytestmark = pytest.mark.fast
TWO = ("bank", "shop")
PROTOCOLS = ("plain", "lattice")
PARAMETERS = {"quantile": 0.3, "pseudo_huber": 2.0, "tweedie": 1.3}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def town(tmp_path: Path, certificates: Path) -> Iterator[tuple[Town, dict[str, str]]]:
    made = Town(tmp_path, certificates, rows=160)
    for party in TWO:
        peers = {other: ("any",) for other in TWO if other != party}
        policy = {"protocols": (*PROTOCOLS, "sealed"), "allow_unprotected": (*PROTOCOLS, "sealed"), "peers": peers}
        made.settle(party, policy=policy)
    daemon = Daemon(load_party(tmp_path / "shop.toml"))
    yield made, {"shop": f"127.0.0.1:{daemon.port}"}
    daemon.stop()
    made.close()


def write_labels(folder: Path, objective: str) -> None:
    """Labels that suit the objective and depend on the shop's columns too."""
    bank, shop = (pq.read_table(folder / f"{party}.parquet").to_pandas().set_index("id") for party in TWO)
    score = bank["n0"] + shop["n2"].reindex(bank.index).fillna(0.0)
    labels = {"binary": (score > 0).astype(int), "multiclass": np.digitize(score, [-1.0, 1.0])}
    bank["label"] = labels.get(objective, np.exp(score / 2).round(2))
    pq.write_table(pa.Table.from_pandas(bank.reset_index(), preserve_index=False), folder / "bank.parquet")


def config_of(name: str, **changes: Any) -> TrainingConfig:
    objective = OBJECTIVE_ALIASES[name]
    own = {LOSS_PARAMETERS[objective]: PARAMETERS[objective]} if objective in LOSS_PARAMETERS else {}
    return TrainingConfig(objective=name, n_estimators=3, max_depth=3, max_bin=16, **own, **changes)


def test_every_objective_has_a_name_of_xgboost() -> None:
    assert set(OBJECTIVE_ALIASES.values()) == set(OBJECTIVES) - {"auto"}


@pytest.mark.parametrize("name", OBJECTIVE_ALIASES)
def test_the_model_is_that_of_one_process(town: tuple[Town, dict[str, str]], name: str) -> None:
    made, address = town
    objective = OBJECTIVE_ALIASES[name]
    write_labels(made.folder, objective)
    protocols = PROTOCOLS if objective in LEAF_QUANTILE_OBJECTIVES else PROTOCOLS[:1]  # leaves are refitted
    for protocol in protocols:
        file = made.write_job(address, name=protocol, config=config_of(name), protocol=protocol)
        file.write_text(file.read_text().replace(f'objective = "{objective}"', f'objective = "{name}"'))
        assert f'objective = "{name}"' in file.read_text()
        Federation(file, made.folder / "bank.toml").train(progress=False)
        assert made.sha(protocol, TWO) == made.simulated(config_of(name), TWO)
    shares = [made.run_folder(party, protocols[0]).load_share() for party in TWO]
    assert all(share.records.count > 0 for share in shares), "both parties split nodes"
    assert shares[0].skeleton is not None
    assert shares[0].skeleton.objective == objective


def test_an_objective_that_a_protocol_cannot_train_is_refused(town: tuple[Town, dict[str, str]]) -> None:
    made, address = town
    write_labels(made.folder, "absolute_error")
    file = made.write_job(address, config=config_of("reg:absoluteerror"), protocol="sealed")
    with pytest.raises(UnsupportedCombination, match="supports only classification"):
        Federation(file, made.folder / "bank.toml").train(progress=False)
