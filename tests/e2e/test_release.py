"""A release: its metadata agree, and what is built from the source distribution installs and runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDED = ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "native", "src")  # by a build
ALONGSIDE = {"CHANGELOG.md", "CITATION.cff", "PKG-INFO"}
SECONDS = 900


def run(*command: object, folder: Path) -> str:
    # Nothing of this checkout may be found by the programs that are started.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_version_and_date_agree() -> None:
    version = PROJECT["version"]
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    cited = dict(re.findall(r"^([\w-]+): (\S.*)$", citation, re.MULTILINE))
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == version
    assert cited["license"] == PROJECT["license"]
    released = re.findall(r"^## (\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    assert released[0] == (version, cited["date-released"])


def test_urls_are_of_one_home() -> None:
    assert set(PROJECT["urls"]) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert all(url.startswith(PROJECT["urls"]["Homepage"]) for url in PROJECT["urls"].values())
    assert f"repository-code: {PROJECT['urls']['Source']}\n" in (REPOSITORY / "CITATION.cff").read_text()


def test_a_release_is_built_and_installed_and_trains(tmp_path: Path) -> None:
    """The wheel is built from the source distribution, so that one native build tests both."""
    dist = tmp_path / "dist"
    # A build type without flags: neither optimisation nor debug information, which take most of the time of a build.
    run(sys.executable, "-m", "build", "--outdir", dist, "-C", "cmake.build-type=Plain", REPOSITORY, folder=tmp_path)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    root = f"veilboost-{PROJECT['version']}"
    assert sdist.name == f"{root}.tar.gz"
    assert wheel.name.startswith(f"{root}-cp")

    with tarfile.open(sdist) as archive:
        packed = {name.removeprefix(f"{root}/") for name in archive.getnames()}
    tracked = run("git", "ls-files", *NEEDED, folder=REPOSITORY).split("\n")
    assert packed - ALONGSIDE == set(filter(None, tracked)), "all that a build needs, and nothing else"
    assert sdist.stat().st_size < 3e6

    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    package = {name for name in tracked if name.startswith("src/")}
    assert {name for name in names if ".dist-info/" not in name and not name.endswith(".so")} == {
        name.removeprefix("src/") for name in package
    }
    assert len([name for name in names if name.endswith(".so")]) == 1

    run(sys.executable, "-m", "venv", tmp_path / "fresh", folder=tmp_path)
    binaries = tmp_path / "fresh" / "bin"
    run(binaries / "python", "-m", "pip", "install", "--quiet", "--no-compile", wheel, folder=tmp_path)
    run(binaries / "python", "-m", "pip", "check", folder=tmp_path)
    assert PROJECT["version"] in run(binaries / "veilboost", "--version", folder=tmp_path)
    command = ("simulate", "--demo-data", "--n-estimators", "2", "--json")
    trained = json.loads(run(binaries / "veilboost", *command, folder=tmp_path))
    assert (trained["trees"], trained["protocol"]) == (2, "plain")
    assert trained["auc"] > 0.6
