"""A protocol that is added as the page on it tells: by a package that is installed, and by a folder of our own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import parties
import veilboost as veilboost_package
from parties import CONFIG, PARTIES, Town, make_certificates
from veilboost import _native

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "add-a-protocol.md"
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHEEL = "coarse_protocol-1.0-py3-none-any.whl"
INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: coarse-protocol\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "entry_points.txt": "[veilboost.protocols]\ncoarse = coarse_protocol.spec:SPEC\n"
    "[veilboost.attacks]\ncoarse_signs = coarse_protocol.attacks:coarse_signs\n",
    "RECORD": "",
}
TESTS = """
from coarse_protocol.spec import SPEC
from veilboost.testing.contract import VerticalContract


class TestCoarse(VerticalContract):
    spec = SPEC
"""


def files_of(module: str) -> dict[str, str]:
    """The page's code up to the spec as one module, its attack, and LEAKAGE.md of what its messages reveal."""
    blocks = CODE.findall(PAGE.read_text(encoding="utf-8"))
    last = next(at for at, block in enumerate(blocks) if "SPEC = ProtocolSpec(" in block)
    code = "\n".join(blocks[: last + 1])
    attack = f"from {module} import CoarseRound\n{blocks[last + 1]}"
    found: dict[str, Any] = {"__name__": module}
    exec(compile(code, "spec.py", "exec", dont_inherit=True), found)  # noqa: S102 - the page's own code
    told = [f"{message.type_name()}: {item.what}" for message in found["SPEC"].messages for item in message.reveals]
    told += [message.type_name() for message in found["SPEC"].messages]
    return {"__init__.py": "", "spec.py": code, "attacks.py": attack, "LEAKAGE.md": "\n".join(told)}


def write_package(folder: Path) -> Path:
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for name, text in files_of("coarse_protocol.spec").items():
            wheel.writestr(f"coarse_protocol/{name}", text)
        for name, text in INFO.items():
            wheel.writestr(f"coarse_protocol-1.0.dist-info/{name}", text)
    return folder / WHEEL


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own that sees everything in ours, with the package installed into it."""
    folder = tmp_path_factory.mktemp("external")
    wheel = write_package(folder)
    venv.create(folder / "venv")
    made = folder / "venv" / "bin" / "python"
    library = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    ours = sysconfig.get_path("purelib")
    (Path(library) / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    script = made.with_name("veilboost")
    script.write_text(f"#!{made}\nfrom veilboost.cli.main import run\n\nrun()\n")
    script.chmod(0o755)
    run(made, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-index", "--no-deps", wheel)
    return made


def run(program: Path, *words: object, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(program), *map(str, words)], capture_output=True, text=True, cwd=cwd, timeout=parties.DEADLINE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def veilboost(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return lambda *words: json.loads(run(python.with_name("veilboost"), *words, "--json", cwd=tmp_path))


SIMULATE = ("simulate", "--dataset", "breast_cancer", "--protocol", "coarse", "--trees", "3", "--depth", "3")


def test_it_is_listed_with_its_statuses(veilboost: Any) -> None:
    (told,) = [each for each in veilboost("protocols")["protocols"] if each["name"] == "coarse"]
    assert {way["decisive_attack"] for way in told["directions"]} == {
        "signs of rounded gradients",
        "bins from sums",
    }


def test_it_is_simulated_and_attacked_also_with_rows_on_disk(veilboost: Any) -> None:
    here = veilboost(*SIMULATE, "--no-baselines", "--audit")
    found = {item["attack"]: item["verdict"] for item in here["findings"]}
    assert found["signs of rounded gradients"] == "succeeded"
    assert "bins from sums" in found
    there = veilboost(*SIMULATE, "--no-baselines", "--engine", "disk")
    assert (there["engine"], there["model_sha256"]) == ("disk", here["model_sha256"])


def test_it_is_planned_without_a_cost_model_of_its_own(veilboost: Any) -> None:
    found = veilboost("plan", "--rows", "1e5", "--features", "5,5", "--trees", "10", "--protocol", "coarse")
    (told,) = found["predictions"]
    assert 10 * 8e5 < told["bytes_sent"] < 1.5 * 10 * 8e5  # eight bytes of every row in every tree, and sides
    assert told["seconds"] > 0


def test_the_public_contract_passes(python: Path, tmp_path: Path) -> None:
    (tmp_path / "test_coarse.py").write_text(TESTS)
    told = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path)
    assert " passed" in told


@pytest.fixture
def town(python: Path, tmp_path: Path) -> Iterator[Town]:
    def start(*words: object, folder: Path) -> Any:
        command = [str(python.with_name("veilboost")), *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=folder, text=True, start_new_session=True, **pipes)

    made = Town(tmp_path, make_certificates(tmp_path / "certs"), start=start)
    yield made
    made.close()


def test_real_parties_train_with_it_over_tls(town: Town) -> None:
    for party in PARTIES:
        town.settle(
            party,
            {"protocols": ("coarse",), "allow_unprotected": ("coarse",)},
            engine="disk" if party == "shop" else "local",
        )
    config = replace(CONFIG, n_estimators=3)
    job = town.write_job(town.serve("shop", "telecom"), config=config)
    # Only the parties' environment has the protocol, this process has not.
    job.write_text(job.read_text().replace('protocol = "plain"', 'protocol = "coarse"'))
    out, _ = town.trained(town.train(job, "--json"))  # a process of the other environment, which has the protocol
    done = json.loads(out)
    assert done["rounds"] == 3


def test_in_our_own_package_a_folder_and_the_list_of_protocols_are_enough(tmp_path: Path) -> None:
    """A copy of the package with both, in an environment that sees our libraries but not our package."""
    copy = tmp_path / "veilboost"
    shutil.copytree(Path(veilboost_package.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(_native.__file__, copy)
    folder, registry = copy / "protocols" / "coarse", copy / "protocols" / "registry.py"
    folder.mkdir()
    for name, text in files_of("veilboost.protocols.coarse.spec").items():
        (folder / name).write_text(text, encoding="utf-8")
    before, after = registry.read_text(encoding="utf-8").split('_OURS = "plain ')
    registry.write_text(f'{before}_OURS = "coarse plain {after}', encoding="utf-8")
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    library = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")})
    (Path(library) / "paths.pth").write_text(f"{tmp_path}\n{sysconfig.get_path('purelib')}\n")
    veilboost = (python, "-m", "veilboost")
    told = json.loads(run(*veilboost, "protocols", "--json", cwd=tmp_path))
    assert told["protocols"][0]["name"] == "coarse"
    found = run(*veilboost, *SIMULATE, "--no-baselines", "--audit", "--engine", "disk", "--json", cwd=tmp_path)
    assert "bins from sums" in {item["attack"] for item in json.loads(found)["findings"]}
    (tmp_path / "test_coarse.py").write_text(TESTS.replace("coarse_protocol", "veilboost.protocols.coarse"))
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, "-k", "declared or reveals")
    assert " passed" in run(python, "-m", "pytest", *options, tmp_path / "test_coarse.py")
