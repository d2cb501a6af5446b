"""Noise is taken off a model's leaves where a key of it follows from the model or was left in a folder, and only there.

Each leaf of a stump comes out whole by chance with a probability below 1e-5, for each key and guess of both counts; all
guesses together stay below 1e-6.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from parties import Town, make_certificates
from support import make_columns, make_labels, split_among, train
from veilboost.audit.attacks import attack
from veilboost.audit.attacks.noise import seeded_keys, strip_noise
from veilboost.audit.sources import views_of_simulation
from veilboost.boost.split import leaf_weights
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.protocols.sealed import active

pytestmark = pytest.mark.fast

STUMP = TrainingConfig(objective="binary", n_estimators=1, max_depth=1, max_bin=8, random_state=5, options={"eps": 4.0})


def model(config=STUMP, **options):
    columns = make_columns(3, 200, 4)
    tables = split_among(columns, make_labels(3, columns), 2)
    assert tables["p0"].label.sum() == 100
    return train(tables, config, "sealed", **options).outcome.share


def positives(sentence):
    return sum(int(each.split(" of ")[0]) for each in sentence.split(": ")[1].split(", "))


def test_the_noise_of_a_model_stays():
    found = strip_noise(model())
    assert not found.succeeded
    assert (found.value, found.threshold) == (0.0, 0.5)


def test_noise_of_a_known_seed_is_taken_off():
    found = strip_noise(model(unsafe_noise_seed=STUMP.random_state))
    assert found.succeeded
    assert found.value == 1.0
    assert "unsafe_key" in found.sentence
    assert positives(found.sentence) == 100


def old_key(party, unsafe_noise_seed):
    return JobRandomness(hashlib.sha256(f"simulation {STUMP.random_state} {party}".encode()).digest())


def test_noise_from_the_seed_as_in_the_first_release_is_taken_off(monkeypatch):
    monkeypatch.setattr(simulation_module, "_randomness", old_key)
    found = strip_noise(model())
    assert found.succeeded
    assert positives(found.sentence) == 100


def test_noise_by_place_is_taken_off_at_any_depth(monkeypatch):
    """As in the first release: eight leaves have too many counts to guess, but their noise has a place."""

    def by_place(self, current, level, leaves, scale):
        noisy, self._number = level.totals[leaves], getattr(self, "_number", -1) + 1
        generator = self.context.randomness.for_request("leaves", 0, self._number)
        noisy[:, 0] += discrete_gaussian(generator, self._noise.leaf_sigma / scale.g_unit, len(noisy))
        return leaf_weights(noisy, scale, self.config)

    monkeypatch.setattr(simulation_module, "_randomness", old_key)
    monkeypatch.setattr(active.PrivateLeaves, "weights", by_place)
    found = strip_noise(model(replace(STUMP, max_depth=3)))
    assert found.succeeded
    assert positives(found.sentence) == 100


def test_other_models_have_no_noise_to_take_off():
    columns = make_columns(3, 200, 4)
    tables = split_among(columns, make_labels(3, columns), 2)
    assert strip_noise(train(tables, replace(STUMP, options={})).outcome.share) is None
    assert strip_noise(train(tables, STUMP, "sealed").shares["p1"]) is None


def test_it_says_what_was_not_tried():
    found = strip_noise(model(replace(STUMP, max_depth=3)))
    assert not found.succeeded
    assert "not tried" in found.sentence


# --- keys of ciphertexts ----------------------------------------------------------------------------------------

DEEP = replace(STUMP, n_estimators=2, max_depth=3)
PROTOCOLS = pytest.mark.parametrize("protocol", ["lattice", "sealed"])


def opened(protocol, **options):
    columns = make_columns(3, 200, 4)
    tables = split_among(columns, make_labels(3, columns), 2)
    config = DEEP if protocol == "sealed" else replace(DEEP, options={})
    views, truth = views_of_simulation(train(tables, config, protocol, record="payload", **options), tables)
    return attack(seeded_keys, views["p1"], truth, "p0", np.random.default_rng(0))


@PROTOCOLS
def test_ciphertexts_stay_closed(protocol):
    found = opened(protocol)
    assert found.verdict == "resisted"
    assert (found.outcome.value, found.outcome.threshold) == (0.5, 0.75)


@PROTOCOLS
def test_ciphertexts_under_a_key_from_the_seed_tell_every_label(protocol):
    found = opened(protocol, unsafe_noise_seed=STUMP.random_state)
    assert found.verdict == "succeeded"
    assert found.outcome.value == 1.0


@PROTOCOLS
def test_ciphertexts_under_a_key_as_in_the_first_release_tell_every_label(protocol, monkeypatch):
    monkeypatch.setattr(simulation_module, "_randomness", old_key)
    assert opened(protocol).outcome.value == 1.0


# --- run folders ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


def finished(folder, certificates):
    """The bank's run of a job with the shop, over real links."""
    town = Town(folder, certificates, rows=200)
    for party in ("bank", "shop"):
        policy = {"protocols": ("sealed",), "allow_unprotected": ("sealed",)}
        town.settle(party, policy=policy)
    daemon = Daemon(load_party(folder / "shop.toml"))
    try:
        job = load_job(town.write_job({"shop": f"127.0.0.1:{daemon.port}"}, "first"))
        job = replace(job, protocol="sealed", training=STUMP)
        with coordinate(load_party(folder / "bank.toml"), job, None) as driver:
            return driver.train(False)[0]
    finally:
        daemon.stop()


def test_the_folder_of_a_finished_run_takes_no_noise_off(tmp_path, certificates):
    run = finished(tmp_path, certificates)
    assert run.key is None
    assert not strip_noise(run.load_share(), run.path).succeeded


def test_a_key_that_was_left_in_the_folder_takes_the_noise_off(tmp_path, certificates, monkeypatch):
    monkeypatch.setattr(RunFolder, "forget_key", lambda run: None)
    run = finished(tmp_path, certificates)
    found = strip_noise(run.load_share(), run.path)
    assert found.succeeded
    assert found.sentence.startswith("job.key")
