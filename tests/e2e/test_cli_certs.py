"""`veilboost certs` and `veilboost init`, as a person types them."""

from __future__ import annotations

import json
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import Result, call
from veilboost.party.identity import load_identity, load_revoked
from veilboost.party.job import load_job
from veilboost.party.policy import Policy
from veilboost.party.settings import PeerSettings, load_party

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def veilboost(folder: Path, *arguments: object) -> Result:
    return call(*arguments, folder=folder, env={"COLUMNS": "120"})


def succeed(folder: Path, *arguments: object) -> str:
    done = veilboost(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer(folder: Path, *arguments: object) -> dict[str, Any]:
    return json.loads(succeed(folder, *arguments, "--json"))


def refused(folder: Path, *arguments: object) -> str:
    """The code of the one line that a refusal is."""
    done = veilboost(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    assert re.fullmatch(r"VB-\d{4}: [^\n]+; [^\n]+\n", done.stderr), done.stderr
    return done.stderr[:7]


# --- certs ------------------------------------------------------------------------------------------------


def test_an_authority_issues_shows_and_revokes(tmp_path: Path) -> None:
    made = answer(tmp_path, "certs", "init", "--name", "Town")
    assert made == {"certificate": "certs/ca.crt", "key": "certs/ca.key", "revoked": "certs/revoked.crl"}
    bank = answer(tmp_path, "certs", "issue", "bank", "--host", "bank.example", "--host", "10.0.0.7")
    assert (bank["party"], bank["issuer"], bank["hosts"]) == ("bank", "Town", ["bank.example", "10.0.0.7"])
    shop = succeed(tmp_path, "certs", "issue", "shop")
    assert "certs/shop.key" in shop
    for file in (*(tmp_path / "certs").iterdir(), tmp_path / "certs"):
        assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600)
    shown = answer(tmp_path, "certs", "show", "certs")["certificates"]
    assert [entry["file"] for entry in shown] == ["certs/bank.crt", "certs/ca.crt", "certs/shop.crt"]
    assert [entry["state"] for entry in shown] == ["valid"] * 3
    assert shown[2]["hosts"] == ["localhost", "127.0.0.1", "::1"]
    assert shown[0]["fingerprint"] == bank["fingerprint"]
    text = succeed(tmp_path, "certs", "show", "certs/bank.crt")
    assert bank["fingerprint"] in text
    assert "bank.example, 10.0.0.7" in text
    assert [entry["state"] for entry in answer(tmp_path, "certs", "revoke", "bank")["revoked"]] == ["revoked"]
    assert shown[2]["fingerprint"] in succeed(tmp_path, "certs", "revoke", shown[2]["fingerprint"])
    states = {entry["party"]: entry["state"] for entry in answer(tmp_path, "certs", "show", "certs")["certificates"]}
    assert states == {"bank": "revoked", "shop": "revoked", None: "valid"}
    assert len(load_revoked(tmp_path / "certs" / "revoked.crl", tmp_path / "certs" / "ca.crt")) == 2


def test_a_key_is_replaced_only_by_force(tmp_path: Path) -> None:
    succeed(tmp_path, "certs", "init", "--folder", "a")
    succeed(tmp_path, "certs", "issue", "bank", "--folder", "a")
    key = (tmp_path / "a" / "bank.key").read_bytes()
    assert refused(tmp_path, "certs", "issue", "bank", "--folder", "a") == "VB-1609"
    assert refused(tmp_path, "certs", "init", "--folder", "a") == "VB-1609"
    assert (tmp_path / "a" / "bank.key").read_bytes() == key
    succeed(tmp_path, "certs", "issue", "bank", "--folder", "a", "--force")
    assert (tmp_path / "a" / "bank.key").read_bytes() != key
    succeed(tmp_path, "certs", "init", "--folder", "a", "--force")


def test_what_certs_refuses_is_one_coded_line(tmp_path: Path) -> None:
    assert refused(tmp_path, "certs", "issue", "bank") == "VB-1601"
    assert refused(tmp_path, "certs", "show", "none.crt") == "VB-1601"
    assert refused(tmp_path, "certs", "show", tmp_path) == "VB-1601"
    (tmp_path / "odd.crt").write_text("hello")
    assert refused(tmp_path, "certs", "show", "odd.crt") == "VB-1602"
    assert refused(tmp_path, "certs", "init", "--folder", tmp_path / "odd.crt") == "VB-1101"
    succeed(tmp_path, "certs", "init")
    assert refused(tmp_path, "certs", "issue", "the bank") == "VB-1002"
    assert refused(tmp_path, "certs", "issue", "bank", "--host", "bank:7400") == "VB-1002"
    assert refused(tmp_path, "certs", "issue", "bank", "--days", 0) == "VB-1002"
    assert refused(tmp_path, "certs", "revoke", "bank") == "VB-1601"
    (tmp_path / "certs" / "ca.key").chmod(0o644)
    assert refused(tmp_path, "certs", "issue", "bank") == "VB-1605"


# --- init -------------------------------------------------------------------------------------------------


def test_a_partys_file_loads_as_it_is_written(tmp_path: Path) -> None:
    assert succeed(tmp_path, "init", "party", "bank") == "wrote bank.toml\n"
    found = load_party(tmp_path / "bank.toml")
    assert found.name == "bank"
    assert found.policy == Policy()
    assert found.data is not None
    assert found.data.path == tmp_path / "bank.parquet"
    succeed(tmp_path, "certs", "init")
    succeed(tmp_path, "certs", "issue", "bank")
    files = found.certificates
    assert load_identity(files.cert, files.key, files.ca).party == "bank"
    assert files.revoked is not None
    assert load_revoked(files.revoked, files.ca) == frozenset()


def test_what_is_said_to_init_is_in_the_file(tmp_path: Path) -> None:
    written = answer(
        tmp_path, "init", "party", "shop", "--data", "s.csv", "--id", "who", "--listen", "0.0.0.0:7401",
        "--peer", "bank=bank.example:7400", "--peer", "telecom", "--protocol", "plain", "--allow-unprotected", "plain",
        "--certs", "/c", "--out", "sub.toml",
    )  # fmt: skip
    assert written == {"file": "sub.toml"}
    found = load_party(tmp_path / "sub.toml")
    assert found.peers == {"bank": PeerSettings("bank.example:7400"), "telecom": PeerSettings(connect="in")}
    assert found.policy == Policy(
        protocols=("plain",), allow_unprotected=("plain",), peers={"bank": ("any",), "telecom": ("any",)}
    )
    assert (found.listen, found.certificates.key) == ("0.0.0.0:7401", Path("/c/shop.key"))
    assert found.data is not None
    assert (found.data.path, found.data.id) == (tmp_path / "s.csv", "who")
    succeed(tmp_path, "init", "party", "csp", "--no-data")
    assert load_party(tmp_path / "csp.toml").data is None


def test_a_jobs_file_loads_as_it_is_written(tmp_path: Path) -> None:
    succeed(tmp_path, "init", "job", "credit")
    found = load_job(tmp_path / "credit.toml")
    assert (found.driver, found.owners, found.protocol, found.alignment) == (
        "bank",
        ("bank", "shop"),
        "lattice",
        "ecdh",
    )
    succeed(
        tmp_path, "init", "job", "x", "--party", "a=a:1", "--party", "b", "--protocol", "lattice", "--out", "j.toml"
    )
    found = load_job(tmp_path / "j.toml")
    assert (found.name, found.driver, found.protocol) == ("x", "a", "lattice")
    assert (found.parties["a"].address, found.parties["b"].connect) == ("a:1", "in")


def test_what_init_refuses_is_one_coded_line(tmp_path: Path) -> None:
    succeed(tmp_path, "init", "party", "bank")
    before = (tmp_path / "bank.toml").read_bytes()
    assert refused(tmp_path, "init", "party", "bank", "--protocol", "plain") == "VB-1609"
    assert (tmp_path / "bank.toml").read_bytes() == before
    succeed(tmp_path, "init", "party", "bank", "--protocol", "plain", "--force")
    assert (tmp_path / "bank.toml").read_bytes() != before
    assert refused(tmp_path, "init", "party", "the bank") == "VB-1002"
    assert refused(tmp_path, "init", "party", "shop", "--listen", "here") == "VB-1002"
    assert refused(tmp_path, "init", "party", "shop", "--peer", "shop") == "VB-1002"
    assert refused(tmp_path, "init", "party", "shop", "--peer", "=a:1") == "VB-1002"
    assert refused(tmp_path, "init", "party", "shop", "--no-data", "--id", "x") == "VB-1004"
    assert refused(tmp_path, "init", "job", "x", "--party", "a", "--party", "b") == "VB-1002"
    assert refused(tmp_path, "init", "job", "x", "--out", tmp_path / "no" / "where.toml") == "VB-1101"


# --- help and documentation -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["certs", "certs init", "certs issue", "certs show", "certs revoke", "init", "init party", "init job"]
)
def test_every_command_teaches(command: str, tmp_path: Path) -> None:
    text = succeed(tmp_path, *command.split(), "--help")
    assert f"veilboost {command}" in text.split("Examples:")[1]
    assert "--json" in text or "Commands" in text
    assert "[bold]" not in text


def test_help_loads_no_heavy_library() -> None:
    code = "import sys, veilboost.cli.main; print('cryptography' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize("page", ["certificates.md", "policies.md"])
def test_the_commands_of_the_how_to_pages_do_what_they_say(page: str, tmp_path: Path) -> None:
    text = (HOW_TO / page).read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S) for line in block.splitlines()]
    commands = [shlex.split(line.removeprefix("$ ")) for line in lines if line.startswith("$ veilboost ")]
    assert len(commands) > 3
    (tmp_path / "bank.pass").touch(mode=0o600)
    (tmp_path / "bank.pass").write_text("open sesame\n")
    for command in commands:
        succeed(tmp_path, *command[1:])
