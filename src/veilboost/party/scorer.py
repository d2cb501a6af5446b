"""How a run predicts and explains new rows: with a deployment, or in a session for each call."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from veilboost.data.table import PartyTable
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.infer.scores import ModelInfo
from veilboost.model.explanation import Explanation
from veilboost.party.deployment_folder import deployment_of_run, find_deployment
from veilboost.party.deployments import Deployment, Scored, Unknown
from veilboost.party.predicting import Prediction, open_predictor
from veilboost.party.settings import PartySettings


class Scorer(NamedTuple):
    """How a run predicts new rows: about the model, a reader of rows, the prediction and the explanation."""

    info: ModelInfo
    load: Callable[[object], PartyTable]
    predict: Callable[[PartyTable], Prediction | Scored]
    explain: Callable[[PartyTable], tuple[Prediction | Scored, Explanation]]


@contextmanager
def open_scorer(
    settings: PartySettings, folder: Path, name: str | None = None, unknown: Unknown = "error"
) -> Generator[Scorer]:
    """Predict and explain with the named deployment, or that of this run; without one, in a session for each call."""
    found = deployment_of_run(settings, folder) if name is None else find_deployment(settings, name, live=True)
    if found is None:
        if unknown != "error":
            raise UnsupportedCombination(
                f"--unknown {unknown} needs a deployment", f"run veilboost deploy {folder} --config FILE first"
            )
        opened = open_predictor(settings, folder)
        yield Scorer(opened.info, opened.load, opened.predict, opened.explain)
        return
    if found.status.run != folder.resolve().name:
        raise InvalidParameter(
            f"the deployment {found.status.label} is of the run {found.status.run!r}", "give its run folder as --model"
        )
    seconds = settings.limits.connect_seconds
    with Deployment(settings, found) as deployed:
        options = {"unknown": unknown, "seconds": seconds}
        score, explain = partial(deployed.score, **options), partial(deployed.explain, **options)
        yield Scorer(deployed.info, deployed.load, score, explain)
