"""Scores with labels, for an evaluation: from a score file, a run, or a saved model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from veilboost.data.load import load_table
from veilboost.data.table import PartyTable, drawn_rows
from veilboost.errors import MissingLabel, UnknownRun, UnsupportedCombination
from veilboost.evaluation.evaluate import Scored, scored_rows
from veilboost.experiment.problem import files_by_party
from veilboost.experiment.saved import SavedPredictor
from veilboost.infer.scores import ROW_NUMBER, ModelInfo, Scores, read_scores
from veilboost.party.deployments import Scored as Answer
from veilboost.party.deployments import Unknown
from veilboost.party.job import read_job
from veilboost.party.predicting import KEEP, Prediction
from veilboost.party.runs import RunFolder
from veilboost.party.scorer import open_scorer
from veilboost.party.settings import PartySettings


@dataclass(frozen=True)
class Roles:
    """The columns of a table that an evaluation reads; `segment` divides the rows."""

    id: str | None
    label: str | None
    weight: str | None = None
    segment: str | None = None


def load_labels(source: object, roles: Roles) -> PartyTable:
    """Labels by id, with the column of segments if there is one."""
    if roles.label is None:
        raise MissingLabel("the label column is not named", "name it with --label")
    features = () if roles.segment is None else (roles.segment,)
    return load_table(source, id=roles.id, label=roles.label, weight=roles.weight, features=features, rules=KEEP)


def of_files(scores: Path, data: str, roles: Roles, objective: str | None) -> Scored:
    """The scores of a file that `veilboost predict` wrote, and the labels of another, matched by id."""
    found = read_scores(scores, roles.id)
    # Without an id, both files have the same rows in the same order.
    name = None if found.id_name == ROW_NUMBER and roles.id is None else found.id_name
    return scored_rows(found, load_labels(data, replace(roles, id=name)), objective, roles.segment)


def of_saved(folder: Path, data: Sequence[str], roles: Roles) -> Scored:
    """Predictions of a saved model. The labels are in the first of the files."""
    opened = SavedPredictor(folder, roles.id)
    rows = opened.load(data)
    labels = load_labels(next(iter(files_by_party(data, "--data").values())), roles)
    return _scored(opened.predict(rows), labels, opened.info, roles.segment)


def of_run(
    settings: PartySettings,
    folder: Path,
    data: str | None,
    segment: str | None,
    deployment: str | None = None,
    unknown: Unknown = "error",
) -> Scored:
    """Predictions of a finished run together with the other parties: of new rows, or of its validation rows.

    Columns have the roles that the party's settings give them. `deployment` and `unknown` are those of `open_scorer`.
    """
    own, folder = settings.own_data, folder.resolve()
    with open_scorer(settings, folder, deployment, unknown) as opened:
        if data is None:
            labels = rows = _held_out(settings, RunFolder.open(folder.parent, folder.name))
        else:
            labels, rows = load_labels(data, Roles(own.id, own.label, own.weight, segment)), opened.load(data)
        return _scored(opened.predict(rows.without_label()), labels, opened.info, segment)


def _held_out(settings: PartySettings, run: RunFolder) -> PartyTable:
    """The rows that a run held out for validation."""
    job, table = read_job(run.job_text), settings.own_data.load()
    if not job.validation:
        raise UnsupportedCombination(
            f"the job {job.name!r} held out no rows for validation", "give labelled rows with --data"
        )
    if job.spec.setting == "vertical":
        positions = run.alignment
        if positions is None or not len(positions) or positions.max() >= table.rows:
            raise UnknownRun(
                f"the aligned rows of {job.name!r} are missing, or the table has changed", "give rows with --data"
            )
        table = table.take(positions)
    return table.take(drawn_rows(table.ids, job.validation, job.training.random_state))


def _scored(found: Prediction | Answer, labels: PartyTable, info: ModelInfo, segment: str | None) -> Scored:
    return scored_rows(Scores(found.ids, found.scores, info.classes), labels, info.objective, segment)
