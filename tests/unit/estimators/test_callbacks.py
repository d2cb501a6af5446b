"""Callbacks between rounds: those of `veilboost.callback`, of XGBoost, and of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_breast_cancer
from xgboost import XGBClassifier

from veilboost import HorizontalClassifier, VerticalClassifier
from veilboost.callback import (
    EarlyStopping,
    EvaluationMonitor,
    LearningRateScheduler,
    TrainingCallback,
    TrainingCheckPoint,
)
from veilboost.errors import InvalidParameter, UnsupportedCombination

pytestmark = pytest.mark.fast
SMALL = {"max_depth": 3, "max_bin": 16}


class Recorder(TrainingCallback):
    def __init__(self, last: int = 10**9) -> None:
        self.calls: list[Any] = []
        self.last = last

    def before_training(self, model: Any) -> Any:
        self.calls.append("begin")
        return model

    def after_training(self, model: Any) -> Any:
        self.calls.append("end")
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self.calls.append(("before", epoch, model.num_boosted_rounds()))
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        log = evals_log.get("validation_0", {}).get("logloss", [])
        self.calls.append(("after", epoch, model.num_boosted_rounds(), len(log)))
        return epoch == self.last


@pytest.fixture(scope="module")
def data() -> Any:
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, :8]
    return (X[:300], y[:300]), (X[300:], y[300:])


def fitted(data: Any, *callbacks: Any, estimator: Any = VerticalClassifier, **changes: Any) -> Any:
    values = {"n_estimators": 6, "eval_metric": "logloss"} | SMALL | changes
    return estimator(callbacks=list(callbacks), **values).fit(*data[0], eval_set=[data[1]])


def test_methods_are_called_in_xgboosts_order(data: Any) -> None:
    recorder = Recorder(last=1)
    model = fitted(data, recorder)
    before = [("before", 0, 0), ("after", 0, 1, 1), ("before", 1, 1), ("after", 1, 2, 2)]
    assert recorder.calls == ["begin", *before, "end"]
    assert model.best_iteration == 1
    assert len(model.evals_result()["validation_0"]["logloss"]) == 2


@pytest.mark.parametrize("module", ["veilboost", "xgboost"])
def test_early_stopping_keeps_the_model_of_early_stopping_rounds(data: Any, module: str) -> None:
    made = {"veilboost": EarlyStopping, "xgboost": xgboost.callback.EarlyStopping}[module](rounds=3)
    settings = {"n_estimators": 200, "learning_rate": 0.5}
    found = fitted(data, made, **settings)
    wanted = fitted(data, early_stopping_rounds=3, **settings)
    assert found.best_iteration < 199
    assert found.model_sha256_ == wanted.model_sha256_
    assert found.best_score == wanted.best_score
    assert found.simulation_.model.sha256() == wanted.model_sha256_


def test_xgboosts_early_stopping_may_save_the_best(data: Any) -> None:
    """It is usual in scripts; the estimator keeps the best rounds with and without it."""
    settings = {"n_estimators": 200, "learning_rate": 0.5}
    saving = xgboost.callback.EarlyStopping(rounds=3, save_best=True)
    found = fitted(data, saving, **settings)
    assert found.model_sha256_ == fitted(data, early_stopping_rounds=3, **settings).model_sha256_
    assert saving.save_best, "the caller's object stays as it is"


@pytest.mark.parametrize("named", [{"metric_name": "auc"}, {"data_name": "validation_7"}])
def test_xgboosts_early_stopping_by_another_metric_is_refused(data: Any, named: Any) -> None:
    settings = {"n_estimators": 5, "eval_metric": ["auc", "logloss"]}
    with pytest.raises(UnsupportedCombination, match="last in eval_metric"):
        fitted(data, xgboost.callback.EarlyStopping(rounds=3, **named), **settings)
    own = {"metric_name": "logloss", "data_name": "validation_0"}
    assert fitted(data, xgboost.callback.EarlyStopping(rounds=3, **own), **settings).best_iteration == 4


def test_a_metric_that_rises_is_maximised(data: Any) -> None:
    settings = {"n_estimators": 30, "eval_metric": "auc"}
    found = fitted(data, EarlyStopping(rounds=2), **settings)
    assert found.model_sha256_ == fitted(data, early_stopping_rounds=2, **settings).model_sha256_


def test_early_stopping_without_a_metric_is_refused(data: Any) -> None:
    model = VerticalClassifier(n_estimators=2, callbacks=[EarlyStopping(rounds=2)], **SMALL)
    with pytest.raises(UnsupportedCombination, match="measured during training"):
        model.fit(*data[0])


def test_the_monitor_prints_as_xgboosts(data: Any, capsys: pytest.CaptureFixture[str]) -> None:
    texts: list[str] = []
    fitted(data, EvaluationMonitor(period=2, logger=texts.append))
    fitted(data, xgboost.callback.EvaluationMonitor(period=2, logger=texts.append), protocol="lattice")
    ours, theirs = texts[:3], [text.rstrip("\n") for text in texts[3:6]]
    assert ours == theirs
    assert ours[1].startswith("[2]\tvalidation_0-logloss:0.")


@pytest.mark.parametrize("rates", [[0.5, 0.5, 0.1, 0.1, 0.1, 0.1], lambda number: 0.5 if number < 2 else 0.1])
def test_rates_are_those_of_trainings_that_are_continued(data: Any, rates: Any) -> None:
    scheduled = fitted(data, LearningRateScheduler(rates))
    first = fitted(data, n_estimators=2, learning_rate=0.5)
    both = VerticalClassifier(n_estimators=4, learning_rate=0.1, eval_metric="logloss", **SMALL)
    assert scheduled.model_sha256_ == both.fit(*data[0], xgb_model=first).model_sha256_
    assert scheduled.model_sha256_ != fitted(data, learning_rate=0.5).model_sha256_


def test_xgboosts_schedule_gives_the_rates_that_xgboost_has(data: Any) -> None:
    """XGBoost sets the rate after a round, so that its first round has the parameter's."""
    rates = [0.4, 0.3, 0.2, 0.1, 0.05, 0.01]
    theirs = fitted(data, xgboost.callback.LearningRateScheduler(rates), learning_rate=0.9)
    ours = fitted(data, LearningRateScheduler([0.9, *rates[:-1]]))
    assert theirs.model_sha256_ == ours.model_sha256_


def test_too_few_rates_are_refused(data: Any) -> None:
    with pytest.raises(InvalidParameter, match="round 2 has none"):
        fitted(data, LearningRateScheduler([0.5, 0.5]))


def test_checkpoints_are_models(data: Any, tmp_path: Path) -> None:
    model = fitted(data, TrainingCheckPoint(tmp_path, interval=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model_2", "model_4", "model_6"]
    for rounds in (2, 4, 6):
        kept = VerticalClassifier.load(tmp_path / f"model_{rounds}")
        assert kept.best_iteration + 1 == rounds
        want = list(model.staged_predict_proba(data[1][0]))[rounds - 1]
        assert np.array_equal(kept._predicted(kept.joined_.margins(columns(model, data[1][0]))), want[:, 1])


def columns(model: Any, X: Any) -> list[Any]:
    return [column for table in model._new_tables(X).values() for column in table.columns]


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("callbacks", [[object()], [Recorder], "text", [EvaluationMonitor(), None]])
def test_objects_that_are_no_callbacks_are_refused(data: Any, callbacks: Any) -> None:
    with pytest.raises(InvalidParameter, match="no callback"):
        VerticalClassifier(callbacks=callbacks, **SMALL).fit(*data[0])


def test_other_parameters_cannot_change(data: Any) -> None:
    class Deeper(TrainingCallback):
        def before_training(self, model: Any) -> Any:
            model.set_param({"max_depth": 9})
            return model

    with pytest.raises(UnsupportedCombination, match="max_depth"):
        fitted(data, Deeper())


def test_sealed_takes_callbacks_that_only_observe(data: Any) -> None:
    """What ends training, or changes it by what it sees, would let labels out."""
    sealed = {"protocol": "sealed", "objective": "binary", "n_estimators": 2, "max_depth": 2, "options": {"eps": 4.0}}
    for callback in (Recorder(), EarlyStopping(rounds=1), LearningRateScheduler([0.1, 0.1])):
        with pytest.raises(UnsupportedCombination, match="may end training"):
            VerticalClassifier(callbacks=[callback], **sealed).fit(*data[0])
    texts: list[str] = []
    model = VerticalClassifier(callbacks=[EvaluationMonitor(logger=texts.append)], **sealed)
    model.fit(*data[0], eval_set=[data[1]])
    assert len(texts) == 2


def test_horizontal_training_can_end_but_not_change(data: Any, tmp_path: Path) -> None:
    settings = {"estimator": HorizontalClassifier, "participants": 2}
    model = fitted(data, Recorder(last=1), **settings)
    assert model.best_iteration == 1
    stopped = fitted(data, EarlyStopping(rounds=2), n_estimators=60, learning_rate=0.9, **settings)
    same = fitted(data, early_stopping_rounds=2, n_estimators=60, learning_rate=0.9, **settings)
    assert stopped.model_sha256_ == same.model_sha256_
    with pytest.raises(UnsupportedCombination, match="learning_rate"):
        fitted(data, LearningRateScheduler([0.1] * 6), **settings)
    with pytest.raises(UnsupportedCombination, match="complete at the end"):
        fitted(data, TrainingCheckPoint(tmp_path, interval=1), **settings)


def test_callbacks_see_what_xgboosts_see(data: Any) -> None:
    """The same class, unchanged, in both libraries."""

    class Both(xgboost.callback.TrainingCallback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            self.seen.append((epoch, model.num_boosted_rounds(), list(evals_log), list(evals_log["validation_0"])))
            return epoch == 2

    ours, theirs = Both(), Both()
    fitted(data, ours)
    XGBClassifier(n_estimators=6, eval_metric="logloss", callbacks=[theirs]).fit(
        *data[0], eval_set=[data[1]], verbose=False
    )
    assert ours.seen == theirs.seen
