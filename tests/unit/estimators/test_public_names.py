import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import veilboost

pytestmark = pytest.mark.fast

NAMES = {
    "Federation",
    "HorizontalClassifier",
    "HorizontalRegressor",
    "TrainingConfig",
    "VeilBoostError",
    "VerticalClassifier",
    "VerticalRegressor",
    "__version__",
    "export_xgboost",
    "join",
    "list_datasets",
    "load_dataset",
    "load_model",
    "load_table",
    "make_demo_data",
    "save_model",
    "simulate_training",
}


def test_public_names_are_pinned() -> None:
    assert set(veilboost.__all__) == NAMES
    assert set(dir(veilboost)) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES - {"__version__"}))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(veilboost, name).__name__ == name


def test_type_checkers_see_the_same_names() -> None:
    stub = ast.parse(Path(veilboost.__file__).with_suffix(".pyi").read_text())
    imported = {
        (f"{node.module}", alias.asname)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    declared = {
        node.target.id for node in stub.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert imported == {(getattr(veilboost, name).__module__, name) for name in NAMES - {"__version__"}}
    assert declared == {"__version__"}


def test_version_is_that_of_the_installed_package() -> None:
    assert veilboost.__version__ == version("veilboost")


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'VerticalClasifier'"):
        _ = veilboost.VerticalClasifier  # type: ignore[attr-defined]


def test_import_brings_no_heavy_library() -> None:
    code = "import sys, veilboost; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"numpy", "sklearn", "pyarrow", "pandas", "polars", "scipy", "xgboost"} & set(loaded)
