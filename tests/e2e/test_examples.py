"""The examples run as they are and print the results that they promise."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *before: str) -> str:
    done = subprocess.run(
        [sys.executable, *before, str(EXAMPLES / name)], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def auc_of(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} +AUC ([0-9.]+)$", text, re.MULTILINE)
    assert found, text
    return float(found[1])


def test_two_parties_in_a_notebook() -> None:
    text = run("two_parties_in_a_notebook.py")
    assert auc_of(text, "together") > auc_of(text, "clinic alone")
    assert auc_of(text, "together") == auc_of(text, "pooled")
    assert "same model as pooled: True" in text


def test_bank_shop_telecom() -> None:
    text = run("bank_shop_telecom.py")
    together = auc_of(text, "bank + shop + telecom")
    assert together > auc_of(text, "bank + shop") > auc_of(text, "bank") + 0.02
    assert together > auc_of(text, "bank + telecom") > auc_of(text, "bank") + 0.02
    assert len(re.findall(r"%$", text, re.MULTILINE)) == 3 + 5


def test_export_to_xgboost() -> None:
    pytest.importorskip("xgboost")
    found = re.search(r"largest relative difference of predictions: (\S+)", run("export_to_xgboost.py"))
    assert found
    assert float(found[1]) < 1e-5


def test_export_without_xgboost_is_polite() -> None:
    hidden = "import runpy, sys; sys.modules['xgboost'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    text = run("export_to_xgboost.py", "-c", hidden)
    assert "xgboost is not installed" in text


def test_hospitals_horizontal() -> None:
    text = run("hospitals_horizontal.py")
    assert auc_of(text, "together, secagg") > max(
        auc_of(text, name) for name in re.findall(r"^(\w+, \d+ patients)", text, re.MULTILINE)
    )
    assert "same model for two participants: True" in text


def test_federation_over_tls() -> None:
    text = run("federation_over_tls.py")
    assert "check: {'bank': None, 'shop': None}" in text
    assert "trained 10 trees" in text
    found = re.search(r"^auc on the validation rows: (0\.\d+)$", text, re.MULTILINE)
    assert found
    assert float(found[1]) > 0.65


def test_sealed_with_audit() -> None:
    lattice, sealed = run("sealed_with_audit.py").split("\nsealed: ")
    assert lattice.startswith("lattice: 5 trees")
    # Labels, from which rows share a node: encryption does not hide them.
    assert re.search(r"^  shop attacks bank: labels .*: (better than chance|succeeded) ", lattice, re.MULTILINE)
    # The left/right assignments of winning splits are protected by neither.
    for text in (lattice, sealed):
        assert re.search(r"^  bank attacks shop: order .*: (better than chance|succeeded) ", text, re.MULTILINE)


def test_search_parameters() -> None:
    text = run("search_parameters.py")
    assert re.search(r"^halving: \[12, 4, 2\] candidates, .*'n_estimators': 45", text, re.MULTILINE), text
    assert auc_of(text, "halving") > 0.97
    if find_spec("optuna"):
        assert re.search(r"^optuna: 12 trials, the best has ", text, re.MULTILINE), text
        assert auc_of(text, "optuna") > 0.97
    else:
        assert "optuna is not installed: pip install optuna" in text


def test_every_example_is_run() -> None:
    tested = set(re.findall(r"run\(\"(\w+\.py)\"", Path(__file__).read_text()))
    assert tested == {path.name for path in EXAMPLES.glob("*.py")}
    for path in EXAMPLES.glob("*.py"):
        assert f"python examples/{path.name}" in path.read_text()
