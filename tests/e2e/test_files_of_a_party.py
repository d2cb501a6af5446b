"""What a party's files show to others: their modes whatever the umask, and their content if it is encrypted."""

from __future__ import annotations

import os
import stat

import pytest

from command_line import call
from two_parties import job_with, make_two, running, settings_of, trained
from veilboost import at_rest
from veilboost.audit.sources import views_of_runs
from veilboost.errors import WrongStorageKey
from veilboost.party.federation import coordinate
from veilboost.party.runs import RunFolder
from veilboost.wire.transcript import Transcript, read_frames

PAYLOADS = 'record = "payload"'


def predict(place, run):
    config, out = place / "bank.toml", place / "out.csv"
    done = call("predict", "--model", run, "--data", place / "new.parquet", "--config", config, "--out", out)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def open_umask():
    old = os.umask(0)
    yield
    os.umask(old)


@pytest.mark.usefixtures("open_umask")
def test_files_are_private_whatever_the_umask(tmp_path):
    make_two(tmp_path / "made" / "deep")
    place = tmp_path / "made" / "deep"
    bank = settings_of(place, "bank")
    with running(settings_of(place, "shop")) as daemon:
        job = job_with(daemon, more=PAYLOADS)
        trained(bank, job)
        predict(place, bank.runs / "first")
    chosen = {
        "new.parquet",
        "bank.parquet",
        "shop.parquet",
        "bank.toml",
        "shop.toml",
        "out.csv",
    }  # by the test and the user
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*") if path.name not in chosen}
    names = {path.name for path in found}
    assert names >= {
        "ledger.sqlite",
        "bank.key",
        "transcript.jsonl",
        "payload.bin",
        "begun.txt",
        "metrics.jsonl",
        "0.npy",
    }
    assert names >= {"arrays.npz", "status.json", "predictions", "alignment", "checkpoint", "share", "runs-shop"}
    wrong = {str(path): oct(mode) for path, mode in found.items() if mode != (0o700 if path.is_dir() else 0o600)}
    assert not wrong
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700


# --- encryption -----------------------------------------------------------------------------------------------------


def storage(file, content):
    file.touch(mode=0o600)
    file.write_bytes(content)
    return f'[storage]\nkey_file = "{file.name}"'


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    """A finished job whose parties encrypt their files, each with its own key."""
    place = make_two(tmp_path_factory.mktemp("encrypted"))
    found = {
        party: settings_of(place, party, more=storage(place / f"{party}.storage", party.encode() * 10))
        for party in ("bank", "shop")
    }
    with running(found["shop"]) as daemon:
        trained(found["bank"], job_with(daemon, more=PAYLOADS))
    return place


@pytest.fixture
def forgetful(monkeypatch):
    """A process that has read no settings yet."""
    monkeypatch.setattr(at_rest, "_key_files", {})


def test_no_payload_or_share_is_readable_on_the_disk(encrypted):
    for party in ("bank", "shop"):
        run = encrypted / f"runs-{party}" / "first"
        files = [path for path in run.rglob("*") if path.is_file()]
        clear = {path.name for path in files if not path.read_bytes().startswith(b"VBSEAL1\n")}
        assert clear == {"job.toml", "status.json", "0.npy", "transcript.jsonl", "ledger.json"} | (
            {"metrics.jsonl"} if party == "bank" else {"begun.txt"}
        )
        assert {path.name for path in files} - clear >= {"payload.bin", "manifest.json", "arrays.npz", "2.checkpoint"}
        assert not [path for path in files if b"x_shop" in path.read_bytes() or b"crimson" in path.read_bytes()]


@pytest.mark.usefixtures("forgetful")
def test_readers_with_the_settings_or_the_key_decrypt(encrypted, monkeypatch):
    runs = [encrypted / f"runs-{party}" / "first" for party in ("bank", "shop")]
    configs = [encrypted / f"{party}.toml" for party in ("bank", "shop")]
    with pytest.raises(WrongStorageKey, match="no key is named"):
        RunFolder(runs[1]).load_share()
    with pytest.raises(WrongStorageKey):
        next(read_frames(runs[1] / "transcript"))
    monkeypatch.setenv("VEILBOOST_STORAGE_KEY_FILE", str(encrypted / "bank.storage"))
    assert RunFolder(runs[0]).load_share().party == "bank"
    with pytest.raises(WrongStorageKey, match="another key"):
        RunFolder(runs[1]).load_share()
    views, truth = views_of_runs(runs, configs)
    assert set(views) == {"bank", "shop"}
    assert {share.party for share in truth.shares.values()} == {"bank", "shop"}
    assert RunFolder(runs[0]).rounds == 2


def test_an_encrypted_job_resumes_and_predicts(tmp_path, monkeypatch):
    place = make_two(tmp_path)
    bank = settings_of(place, "bank", more=storage(place / "bank.storage", b"b" * 32))
    shop = settings_of(place, "shop", more=storage(place / "shop.storage", b"s" * 32))
    with running(shop) as daemon:
        job = job_with(daemon, more=PAYLOADS)
        whole = trained(bank, job_with(daemon, "whole")).load_share()

        class Stop(Exception):
            pass

        def stop(self, result):
            raise Stop

        with monkeypatch.context() as patch, coordinate(bank, job) as coordinator:
            patch.setattr(RunFolder, "add_metric", stop)
            with pytest.raises(Stop):
                coordinator.train()
        assert (bank.runs / "first" / "job.key").read_bytes().startswith(b"VBSEAL1\n")
        with coordinate(bank, job) as coordinator:
            run, _ = coordinator.train(resume=True)
        assert all((a.weight == b.weight).all() for a, b in zip(
            run.load_share().skeleton.trees, whole.skeleton.trees, strict=True))  # fmt: skip
        predict(place, run.path)


def test_a_sealed_file_says_what_is_wrong_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(at_rest, "PIECE", 100)
    key, file = tmp_path / "key", tmp_path / "runs" / "file"
    storage(key, b"k" * 32)
    file.parent.mkdir()
    at_rest.protect(file.parent, key)
    for content in (b"", b"x", b"y" * 100, b"z" * 350):
        at_rest.write(file, content)
        assert at_rest.read(file) == content
    sealed = file.read_bytes()
    for damaged in (
        sealed[:-1],
        sealed[:-128],
        sealed[:30],
        sealed[:24],
        sealed[:-1] + bytes([sealed[-1] ^ 1]),
        sealed + b"\0" * 128,
    ):
        file.write_bytes(damaged)
        with pytest.raises(WrongStorageKey):
            at_rest.read(file)
    first, second = sealed[24:152], sealed[152:280]
    file.write_bytes(sealed[:24] + second + first + sealed[280:])
    with pytest.raises(WrongStorageKey):
        at_rest.read(file)
    at_rest.write(file, b"x")
    key.write_bytes(b"l" * 32)
    with pytest.raises(WrongStorageKey, match="another key"):
        at_rest.read(file)
    key.write_bytes(b"l" * 31)
    with pytest.raises(WrongStorageKey, match="fewer than 32"):
        at_rest.read(file)
    at_rest.protect(file.parent, None)
    with pytest.raises(WrongStorageKey, match="no key"):
        at_rest.read(file)
    at_rest.write(file, b"clear")
    assert file.read_bytes() == at_rest.read(file) == b"clear"


def test_a_transcript_is_encrypted_from_its_beginning_or_not_at_all(tmp_path):
    storage(tmp_path / "key", b"k" * 32)
    for first, then in ((None, tmp_path / "key"), (tmp_path / "key", None)):
        folder = tmp_path / f"runs-{first is None}" / "job" / "transcript"
        at_rest.protect(folder.parents[1], first)
        Transcript("bank", folder, "payload").close()
        with (folder / "payload.bin").open("ab") as file:
            file.write(b"frame")
        Transcript("bank", folder, "payload").close()
        at_rest.protect(folder.parents[1], then)
        with pytest.raises(WrongStorageKey, match="was begun with"):
            Transcript("bank", folder, "payload")
        Transcript("bank", folder).close()
