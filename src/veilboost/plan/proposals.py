"""Predicted time and bytes of a job that waits for an approval."""

from __future__ import annotations

from veilboost.errors import UnreadableFile
from veilboost.party.proposals import Subject
from veilboost.plan.calibrate import cache_file, load_calibrations
from veilboost.plan.predict import Prediction, predict
from veilboost.protocols.cost import PlannedJob
from veilboost.protocols.registry import protocol_named


def predicted(proposal: Subject) -> Prediction | None:
    """The predicted cost of a training job on machines like this one, without network time.

    A party knows neither the columns of the others nor the common rows: the prediction assumes that each of them has as
    many columns as this party, and that all rows are common. None for a deployment, and without a readable measurement
    of the protocol by `veilboost plan` on this machine.
    """
    try:
        costs = load_calibrations(cache_file()).get(proposal.protocol)
    except UnreadableFile:
        return None
    size = proposal.size
    if costs is None or size is None or not proposal.columns or not proposal.rows:
        return None
    columns, parties, shape = len(proposal.columns), size["parties"], (size["trees"], size["depth"], size["bins"])
    if protocol_named(proposal.protocol).setting == "vertical":
        job = PlannedJob(proposal.rows, (columns,) * parties, *shape)
    else:
        job = PlannedJob(proposal.rows * parties, (columns,), *shape, parties)
    return predict(proposal.protocol, job, costs)
