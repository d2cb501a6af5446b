"""Encryption done before a job: the same model, a stock that is used once, and files for their owner alone."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
from pathlib import Path

import pytest

from parties import CONFIG, Town, make_certificates
from support import SHORT_KEY, make_columns, make_labels, sha, split_among
from veilboost import Federation
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.crypto.paillier.keys import PreparedOwner, PreparedRandomness, generate_key
from veilboost.errors import (
    CheckpointFailed,
    InvalidParameter,
    JobExists,
    MalformedMessage,
    MissingLabel,
    UnsupportedCombination,
)
from veilboost.party import precompute
from veilboost.party.daemon import Daemon
from veilboost.party.job import load_job
from veilboost.party.precompute import prepare, prepare_encryption, prepared_randomness
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.party.simulation import simulate_training

pytestmark = pytest.mark.fast
KEY = generate_key(512, Csprng(), allow_insecure=True)


def test_every_zero_is_used_once_and_what_is_missing_is_encrypted_as_usual():
    owner = PreparedOwner.prepare(KEY, 3, Csprng())
    assert len(set(owner._zeros)) == 3
    numbers = [5, -7, 0, 11, 1 << 200]
    found = owner.encrypt(numbers, Csprng())
    assert owner.left == 0
    assert [value % KEY.public.n for value in numbers] == owner.decrypt(found)
    assert len(set(owner.encrypt([1, 1], Csprng()))) == 2


def test_a_copy_for_another_process_has_no_stock():
    owner = PreparedOwner.prepare(KEY, 3, Csprng())
    copy = pickle.loads(pickle.dumps(owner))  # noqa: S301
    assert (owner.left, copy.left) == (3, 0), "two copies would use the same zeros"
    assert owner.decrypt(copy.encrypt([42], Csprng())) == [42]


def test_what_is_kept_comes_back_and_nonsense_does_not():
    owner = PreparedOwner.prepare(KEY, 2, Csprng())
    again = PreparedOwner.from_bytes(owner.to_bytes())
    assert again._zeros == owner._zeros
    assert again.decrypt(again.encrypt([42], Csprng())) == [42]
    for wrong in (b"", b"nonsense", owner.to_bytes()[:100]):
        with pytest.raises(MalformedMessage):
            PreparedOwner.from_bytes(wrong)


@pytest.mark.parametrize("protocol", ["elxgb", "paillier"])
def test_the_model_is_the_same_and_the_stock_is_used(protocol):
    columns = make_columns(3, rows=60, numeric=4)
    tables = split_among(columns, make_labels(3, columns), 2)
    config = TrainingConfig(n_estimators=3, max_depth=2, max_bin=6, categories="ordinal", options=SHORT_KEY)
    usual = simulate_training(tables, "p0", protocol, config, unsafe_noise_seed=0)
    owner = PreparedOwner.prepare(KEY, 70, Csprng())
    again = simulate_training(tables, "p0", protocol, config, prepared=owner, unsafe_noise_seed=0)
    assert sha(again) == sha(usual)
    assert owner.left == (10 if protocol == "elxgb" else 0)
    longer = dataclasses.replace(config, options={})
    with pytest.raises(InvalidParameter, match="key_bits"):
        simulate_training(tables, "p0", protocol, longer, prepared=owner)


@pytest.fixture
def town(tmp_path: Path):
    town = Town(tmp_path, make_certificates(tmp_path / "certs"), rows=40)
    yield town
    town.close()


def written(town, protocol="elxgb", **options):
    training = dataclasses.replace(CONFIG, categories="ordinal", options=options)
    file = town.write_job({"shop": "127.0.0.1:1"}, config=training, protocol=protocol)
    return load_job(file)


def test_what_was_prepared_is_for_its_owner_alone_and_taken_once(town):
    settings, job = load_party(town.folder / "bank.toml"), written(town, **SHORT_KEY)
    plain = JobRandomness()
    assert prepared_randomness(settings, job, plain) is plain
    made = prepare_encryption(settings, job, trees=2)
    assert (made.encryptions, made.key_bits) == (2 * 36, 512)
    assert made.file == settings.runs / "prepared" / "credit.key"
    assert made.file.stat().st_mode & 0o777 == 0o600
    assert made.file.parent.stat().st_mode & 0o777 == 0o700
    taken = prepared_randomness(settings, job, plain)
    assert isinstance(taken, PreparedRandomness)
    assert (taken.key, taken.owner.left) == (plain.key, 72)
    assert not list(made.file.parent.iterdir())
    assert prepared_randomness(settings, job, plain) is plain


def test_a_job_that_has_changed_to_other_encryption_leaves_nothing_behind(town):
    settings, job = load_party(town.folder / "bank.toml"), written(town, **SHORT_KEY)
    made = prepare_encryption(settings, job)
    plain = JobRandomness()
    assert prepared_randomness(settings, written(town, backend="lattice"), plain) is plain
    assert not made.file.exists()


def test_workers_elsewhere_do_not_get_what_lies_ready_here(town):
    settings, job = load_party(town.folder / "bank.toml"), written(town, "paillier", **SHORT_KEY)
    made, plain = prepare_encryption(settings, job), JobRandomness()
    ray = dataclasses.replace(settings, engine="ray")
    assert prepared_randomness(ray, job, plain) is plain
    assert made.file.exists()
    with pytest.raises(UnsupportedCombination, match="engine ray"):
        prepare(ray, job)


def test_who_cannot_prepare_is_told(town):
    bank, shop = (load_party(town.folder / f"{name}.toml") for name in ("bank", "shop"))
    with pytest.raises(UnsupportedCombination, match="lattice"):
        prepare(bank, written(town, backend="lattice"))
    with pytest.raises(UnsupportedCombination):
        prepare(bank, written(town, "plain"))
    with pytest.raises(MissingLabel, match="bank encrypts"):
        prepare(shop, written(town, **SHORT_KEY), only="encryption")
    with pytest.raises(UnsupportedCombination, match="does not hash ids"):
        prepare(shop, written(town, **SHORT_KEY))
    with pytest.raises(InvalidParameter):
        prepare(bank, written(town, key_bits=512))
    RunFolder.create(bank.runs, "credit").note(state="finished")
    with pytest.raises(JobExists):
        prepare(bank, written(town, **SHORT_KEY))
    shutil.rmtree(bank.runs)
    bank.runs.write_text("no folder")
    with pytest.raises(CheckpointFailed):
        prepare(bank, written(town, **SHORT_KEY))


def test_a_job_without_precomputation_looks_for_none(town, monkeypatch):
    monkeypatch.setattr(precompute, "_Kept", lambda *_: pytest.fail("nothing was prepared here"))
    for name in ("bank", "shop"):
        town.settle(name, policy={"min_rows": 1})
    daemon = Daemon(load_party(town.folder / "shop.toml"))
    try:
        job = town.write_job({"shop": f"127.0.0.1:{daemon.port}"})
        assert Federation(job, town.folder / "bank.toml").train(progress=False).rounds == CONFIG.n_estimators
    finally:
        daemon.stop()
