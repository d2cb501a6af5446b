"""`veilboost init` writes files that run: for every protocol, from the commands that `init job` prints to a model."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from parties import free_port
from veilboost.cli.main import app
from veilboost.errors import InvalidParameter
from veilboost.party.certs import init_authority, issue
from veilboost.party.daemon import Daemon
from veilboost.party.federation import Federation
from veilboost.party.job import Job, load_job
from veilboost.party.settings import load_party
from veilboost.protocols.registry import BUILT_IN, protocol_named

ROWS = 160
# What the comments of the written file invite to edit: fewer rounds, and options of a small test.
EDITS = {
    "max_depth = 6": "max_depth = 2",
    "max_bin = 64": "max_bin = 4",
}
OPTIONS = {
    "paillier": {"# key_bits = 2048": "key_bits = 1024", "# allow_insecure_key = false": "allow_insecure_key = true"},
    "elxgb": {"# key_bits = 2048": "key_bits = 1024", "# allow_insecure_key = false": "allow_insecure_key = true"},
}
CSP = ("bank", "shop", "ta:authority", "csp:csp")
CASES = [(spec.name, None) for spec in BUILT_IN] + [("lattice", CSP), ("elxgb", CSP)]


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def write_table(file: Path, party: str, job: Job) -> None:
    """Rows with an id, two features, and a label where the role needs one."""
    rng = np.random.default_rng([len(party), *party.encode()])
    values = rng.normal(size=(ROWS, 2)).round(2)
    names = ("x", "y") if job.spec.setting == "horizontal" else (f"{party}1", f"{party}2")
    columns = {"id": np.arange(ROWS), names[0]: values[:, 0], names[1]: values[:, 1]}
    if job.role_of(party) != "passive":
        columns["late"] = (values.sum(axis=1) + rng.normal(size=ROWS) > 0).astype(np.int64)
    pq.write_table(pa.table(columns), file)


def init_job(protocol: str, parties: tuple[str, ...] | None) -> tuple[Job, str]:
    """The job as `init job` writes it, on free ports, and what the command prints."""
    spec = protocol_named(protocol)
    if parties is None:
        data = ("bank", "shop") if spec.setting == "vertical" else ("hub", "north", "south")
        parties = (*data, *(f"{role}:{role}" for role in spec.helpers))
    given = [f"--party={name}=127.0.0.1:{free_port()}" for name in parties]
    said = run("init", "job", "credit", "--protocol", protocol, *given)
    return load_job("credit.toml"), said


def init_parties(said: str, job: Job) -> None:
    """Run the commands that `init job` printed, with the columns filled in and what is unprotected accepted."""
    init_authority(Path("certs"))
    commands = re.findall(r"^  (veilboost init party .*)$", said, re.MULTILINE)
    assert len(commands) == len(job.parties)
    for command in commands:
        words = shlex.split(command.replace("--id COLUMN", "--id id").replace("--label COLUMN", "--label late"))
        name = words[3]
        issue(Path("certs"), name, ["localhost", "127.0.0.1"])
        if name in job.owners:
            write_table(Path(f"{name}.parquet"), name, job)
            words += ["--allow-unprotected", job.protocol]
        run(*words[1:])


@contextlib.contextmanager
def serving(job: Job) -> Iterator[None]:
    with contextlib.ExitStack() as running:
        for name in job.others:
            running.callback(Daemon(load_party(f"{name}.toml")).stop)
        yield


@pytest.mark.parametrize(("protocol", "parties"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_files_of_init_train_a_model(
    protocol: str, parties: tuple[str, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job, said = init_job(protocol, parties)
    init_parties(said, job)
    text = Path("credit.toml").read_text()
    fixed = job.spec.fixed
    assert {name: getattr(job.training, name) for name in fixed} == fixed  # the file says what is used
    rounds = 'n_estimators = "auto"' if job.spec.chooses_rounds else "n_estimators = 100"
    edits = {rounds: "n_estimators = 2"} | EDITS | OPTIONS.get(protocol, {})
    for line, edited in edits.items():
        if line.split()[0] in fixed:
            continue
        assert text.count(f"\n{line}\n") == 1, f"{line} is not in the file"
        text = text.replace(f"\n{line}\n", f"\n{edited}\n")
    Path("credit.toml").write_text(text)
    if job.spec.setting == "vertical":
        assert job.alignment == ("ecdh" if parties is None else "hmac_csp")
    for name in job.parties:
        settings = Path(f"{name}.toml")
        settings.write_text(settings.read_text().replace('runs = "runs"', f'runs = "runs-{name}"'))
    with serving(job):
        federation = Federation("credit.toml", f"{job.driver}.toml")
        assert federation.check().errors == dict.fromkeys(job.parties)
        done = federation.train(progress=False)
    assert done.rounds == 2


@pytest.mark.parametrize(
    ("parties", "protocol", "alignment"),
    [
        ((), "lattice", "ecdh"),
        (("bank", "shop=s:1"), "lattice", "ecdh"),
        (("shop=s:1", "bank:active"), "lattice", "ecdh"),
        (("bank", "shop=s:1", "ta:authority=t:1", "csp:csp=c:1"), "lattice", "hmac_csp"),
        (("hub:server", "north=n:1", "south=s:1"), "secagg", "prealigned"),
        (("hub", "north:participant=n:1"), "secagg", "prealigned"),
        (("hub", "north=n:1", "judge:comparer=j:1", "ta:authority=t:1"), "mal", "prealigned"),
    ],
)
def test_protocol_and_alignment_follow_from_the_roles(
    parties: tuple[str, ...], protocol: str, alignment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("init", "job", "credit", *(f"--party={each}" for each in parties))
    job = load_job("credit.toml")
    assert (job.protocol, job.alignment) == (protocol, alignment)
    assert job.driver in {"bank", "hub"}
    assert set(job.helpers) == {each.split("=")[0].split(":")[1] for each in parties if each[0] in "tcj"}


@pytest.mark.parametrize(
    ("parties", "said"),
    [
        (("bank", "shop"), "neither shop nor bank has an address.*--party shop=HOST:PORT"),
        (("bank", "shop:judge=s:1"), "there is no role 'judge'; the roles are active, passive"),
        (("bank", "shop:pasive=s:1"), "did you mean passive"),
        (("bank", "shop=s:1", "csp:csp=c:1"), "needs exactly one party with role = 'authority'.*--party NAME:ROLE"),
        (("bank:active", "shop:active=s:1"), "2 parties have role = 'active'"),
        (("bank", "bank=s:1"), "names bank twice"),
    ],
)
def test_what_is_missing_is_said_in_options(
    parties: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameter, match=said):
        run("init", "job", "credit", *(f"--party={each}" for each in parties))
