"""The API reference: every parameter is documented with its default, and examples run."""

import doctest
import inspect
import re

import pytest

import veilboost

ESTIMATORS = ("VerticalClassifier", "VerticalRegressor", "HorizontalClassifier", "HorizontalRegressor")
PUBLIC = sorted(set(veilboost.__all__) - {"__version__"})


@pytest.mark.fast
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_documents_every_parameter_with_its_default(name: str) -> None:
    estimator = getattr(veilboost, name)
    text = inspect.getdoc(estimator) or ""
    section = text.partition("Parameters\n----------\n")[2].partition("\n\nAttributes\n")[0]
    documented = dict(re.findall(r"^(\w+) : .*, default=(.+)$", section, flags=re.MULTILINE))
    assert documented == {key: repr(item.default) for key, item in inspect.signature(estimator).parameters.items()}


@pytest.mark.fast
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_documents_its_fitted_attributes(name: str) -> None:
    estimator = getattr(veilboost, name)
    section = (inspect.getdoc(estimator) or "").partition("\n\nAttributes\n")[2].partition("\n\nSee Also\n")[0]
    properties = {key for key, _ in inspect.getmembers(estimator, lambda item: isinstance(item, property))}
    documented = set(re.findall(r"^(\w+_) : ", section, flags=re.MULTILINE))
    assert documented >= {key for key in properties if key.endswith("_") and not key.startswith("_")}


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_run(name: str) -> None:
    public = getattr(veilboost, name)
    assert inspect.getdoc(public)
    for test in doctest.DocTestFinder(recurse=False).find(public, name, globs={}):
        result = doctest.DocTestRunner().run(test)
        assert result.failed == 0
