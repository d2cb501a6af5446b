"""The service files: what systemd and a container runtime would start is started here, as they would do it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest
import yaml

from parties import Town, free_port, make_certificates, until
from veilboost.party.settings import PartySettings

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
UNIT = (DEPLOY / "systemd" / "veilboost@.service").read_text()
VEILBOOST = Path(sys.executable).parent / "veilboost"


def entries(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with the command of this checkout."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    path = tmp_path / "veilboost@shop.service"
    path.write_text(UNIT.replace("/opt/veilboost/bin/veilboost", str(VEILBOOST)))
    return path


def test_systemd_accepts_the_unit(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("Type=exec", "Type=exek"))
    wrong = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "exek" in wrong.stderr, "this check can fail"


def test_the_unit_is_hardened(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:]
    page = (REPOSITORY / "docs" / "how-to" / "deploy.md").read_text()
    assert re.findall(r"rates it (\S+) \(OK\)", page) == re.findall(r"exposure level .*: (\S+) OK", done.stdout)


def test_the_command_of_the_unit_serves_with_its_credentials_and_stops(tmp_path: Path) -> None:
    town = Town(tmp_path, make_certificates(tmp_path / "certs"))
    metrics = free_port()
    town.settle("shop", metrics=f"127.0.0.1:{metrics}")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    key = tmp_path / "certs" / "shop.key"
    (credentials / "key").write_bytes(key.read_bytes())
    (credentials / "key").chmod(0o400)
    settings = tmp_path / "shop.toml"
    settings.write_text(settings.read_text().replace(f'"{key}"', '"${CREDENTIALS_DIRECTORY}/key"'))
    (start,) = entries("ExecStart")
    assert entries("LoadCredential") == ["key:/etc/veilboost/%i.key"]
    words = start.replace("/opt/veilboost/bin/veilboost", str(VEILBOOST)).replace(
        "/etc/veilboost/%i", str(tmp_path / "shop")
    )
    process = subprocess.Popen(
        words.split(),
        cwd=tmp_path,
        env=os.environ | {"CREDENTIALS_DIRECTORY": str(credentials)},
        umask=int(entries("UMask")[0], 8),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:

        def ready() -> bool:
            assert process.poll() is None, process.communicate()[1]
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{metrics}/readyz", timeout=5).status == 200
            except OSError:
                return False

        until(ready, "the daemon is ready")
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_containers_run_what_exists() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(compose["services"]) == {"bank", "shop", "telecom"} == set(compose["volumes"])
    container = (DEPLOY / "Containerfile").read_text()
    for service in compose["services"].values():
        assert service["build"]["dockerfile"] == "deploy/Containerfile"
        assert "9464/readyz" in service["healthcheck"]["test"][-1]
    assert "EXPOSE 7400 9464" in container
    assert PartySettings.__dataclass_fields__["listen"].default.endswith(":7400")
    assert json.loads(re.findall(r"^CMD (.*)$", container, re.MULTILINE)[0])[:2] == ["party", "serve"]
    kept = {line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().split() if line.startswith("!")}
    assert all((REPOSITORY / name).exists() for name in kept)


def test_wheels_are_configured_for_the_supported_pythons() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    named = re.findall(r"Python :: 3\.(\d+)", " ".join(project["project"]["classifiers"]))
    wheels = project["tool"]["cibuildwheel"]
    assert wheels["build"].split() == [f"cp3{minor}-*" for minor in named]
    assert wheels["linux"]["archs"] == ["x86_64", "aarch64"]
