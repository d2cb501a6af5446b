"""The validation of every job, whether an estimator, a simulation, a driver or a daemon starts it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from veilboost.boost.metrics import check_metric_fits
from veilboost.boost.objective import CustomLoss
from veilboost.config import AUTO_ROUNDS, LEAF_QUANTILE_OBJECTIVES, TrainingConfig
from veilboost.data.schema import check_label_present, check_labels, infer_objective
from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL, check_job
from veilboost.engine.shards import per_row, seen_values
from veilboost.errors import InvalidParameter, LabelOutOfRange, MissingLabel, UnsupportedCombination
from veilboost.protocols.constraints import check_constraints, check_levels, constraints_of
from veilboost.protocols.spec import ProtocolSpec
from veilboost.types import AnyArray, Float64Array

CLASSIFICATIONS = ("binary", "multiclass")  # their gradients are at most 1, whatever the labels
_DEFAULTS = TrainingConfig()
_ZERO_ONE = (None, ("0", "1"), ("0.0", "1.0"))  # names of the classes 0 and 1; None if labels are numbers


@dataclass(frozen=True)
class ResolvedJob:
    """A job with all decisions made that its claims depend on.

    `classes` are the class names at the active party; `declared` means that they were not taken from the labels.
    `started` means that rows start from margins of their own: of an earlier model, or given by the active party.
    `table` is the active party's table, with labels encoded for training. Other parties have neither.
    """

    spec: ProtocolSpec
    config: TrainingConfig
    engine: str = LOCAL.name
    custom_loss: CustomLoss | None = None
    classes: tuple[str, ...] | None = None
    declared: bool = True
    table: PartyTable | None = None
    started: bool = False

    @property
    def labels(self) -> Float64Array:
        if self.table is None or self.table.label is None:
            raise MissingLabel("the active party has no label")
        return self.table.label

    @property
    def kinds(self) -> int:
        """The number of classes; meaningless for regression."""
        return len(self.classes) if self.classes is not None else int(seen_values(self.labels).max(initial=0)) + 1


def resolve(
    spec: ProtocolSpec,
    config: TrainingConfig,
    table: PartyTable,
    *,
    engine: str = LOCAL.name,
    custom_loss: CustomLoss | None = None,
    classes: Sequence[str] | None = None,
    started: bool = False,
) -> ResolvedJob:
    """Resolve what depends on the labels of the active party's `table`, and validate the job.

    `classes` are the classes that its owner declares, in the order of their trees. A class without a label is allowed;
    a label outside the classes is refused.
    """
    if table.label is None:
        raise MissingLabel("the active party has no label")
    if classes is not None:
        table = with_classes(table, classes)
    labels, found = seen_values(cast(Float64Array, table.label)), table.label_classes
    objective = config.objective if config.objective != "auto" else infer_objective(labels, found)
    if custom_loss is None:
        if classes is None:
            check_labels(labels, objective, found)
        elif objective not in CLASSIFICATIONS or (objective == "binary") != (len(classes) == 2):
            raise UnsupportedCombination(
                f"{len(classes)} classes are declared, but objective is {objective!r}",
                'set objective to "binary" for two classes and to "multiclass" for more, or leave it at "auto"',
            )
    if config.eval_metric != "auto":
        check_metric_fits(config.eval_metric, objective if custom_loss is None else "custom")
    declared = classes is not None or (config.objective == "binary" and found in _ZERO_ONE)
    config = replace(config, objective=objective)
    check_constraints(spec, config, table.constraints, table.columns)
    job = ResolvedJob(spec, config, engine, custom_loss, found, declared, table, started)
    validate(job)
    return job


def validate(job: ResolvedJob) -> None:
    """Raise if the protocol, the engine or the protocol's claims do not allow the job."""
    spec, config = job.spec, job.config
    check_config(spec, config)
    check_job(job.engine, spec.name, spec.engines, config, job.custom_loss is not None)
    if job.custom_loss is not None:
        _check_custom_loss(job)
    if spec.declared_classes:
        _check_claims(job)
    if job.started:
        check_start(spec, config)


def check_config(spec: ProtocolSpec, config: TrainingConfig) -> None:
    """Raise if the protocol does not support these parameters."""
    spec.options.from_dict(config.options)
    if config.n_estimators == AUTO_ROUNDS and not spec.chooses_rounds:
        raise UnsupportedCombination(
            f"n_estimators is auto, and {spec.name} has no budget that the number of rounds could follow from",
            "set n_estimators to a number, or leave it out for the usual 100; or use the protocol sealed",
        )
    if config.min_node_rows > 1 and not spec.counts_rows:
        raise UnsupportedCombination(
            f"min_node_rows is {config.min_node_rows}, but in {spec.name} no party knows the number of rows of a node: "
            "the server receives only sums over all participants",
            "set min_node_rows to 1, or use another protocol",
        )
    check_levels(spec, config)
    check_constraints(spec, config, constraints_of(config))
    if config.objective in LEAF_QUANTILE_OBJECTIVES:
        _check_leaf_quantiles(spec, config)
    if spec.refuse is not None:
        spec.refuse(config)


def check_start(spec: ProtocolSpec, config: TrainingConfig) -> None:
    """Raise if the rows of a job may not start from margins of their own."""
    if spec.setting == "horizontal":
        raise UnsupportedCombination(
            f"base_margin and continued models are for vertical protocols, and {spec.name} is horizontal: its rows "
            "start from one number",
            "train a new model without base_margin",
        )
    if spec.declared_classes or config.options.get("private_leaves"):
        raise UnsupportedCombination(
            f"{spec.name}: the claim about labels covers only what this job releases, and margins to start from may "
            "depend on labels",
            "train a new model without base_margin, or use another protocol",
        )


def _check_custom_loss(job: ResolvedJob) -> None:
    """The caller's function exists at the active party only, and nothing bounds what it returns."""
    spec = job.spec
    if spec.setting == "horizontal":
        raise UnsupportedCombination(
            f"{spec.name} takes no custom objective: every participant would have to run the same code",
            "choose an objective by name",
        )
    if spec.declared_classes or job.config.options.get("private_leaves"):
        raise UnsupportedCombination(
            f"{spec.name}: noise is scaled to a known bound on the gradients, which a custom objective does not have",
            "choose an objective by name, or use the protocol lattice",
        )


def _check_leaf_quantiles(spec: ProtocolSpec, config: TrainingConfig) -> None:
    """The active party computes such leaves from labels of its own, without noise."""
    if spec.setting == "horizontal":
        raise UnsupportedCombination(
            f"leaves of objective {config.objective!r} are quantiles of labels, and no party of {spec.name} has the "
            "labels of all rows",
            'set objective to "regression", or use a vertical protocol',
        )
    if config.options.get("private_leaves"):
        raise UnsupportedCombination(
            f"leaves of objective {config.objective!r} are quantiles without noise, which private_leaves excludes",
            'set objective to "binary" or "multiclass", or private_leaves to false',
        )


def settle(spec: ProtocolSpec, config: TrainingConfig) -> TrainingConfig:
    """Return the parameters with those that the protocol fixes; raise, before any work, if it does not support them."""
    for name, value in spec.fixed.items():
        given = getattr(config, name)
        if given not in (value, getattr(_DEFAULTS, name)):
            raise UnsupportedCombination(
                f"{spec.name} trains with {name} = {value!r}, and the job has {name} = {given!r}",
                f"set {name} to {value!r}, or remove it",
            )
    config = spec.settled(config)
    check_config(spec, config)
    return config


def _check_claims(job: ResolvedJob) -> None:
    """The claim limits the influence of one label: the loss must bound it, and labels may not choose the trees."""
    name, objective = job.spec.name, job.config.objective
    if objective == "auto":
        raise UnsupportedCombination(
            f'{name} needs to know the loss before it reads labels, but objective is "auto"',
            'set objective to "binary" or "multiclass" under [training]',
        )
    if objective not in CLASSIFICATIONS:
        raise UnsupportedCombination(
            f"{name} supports only classification, because other labels have no bound; objective is {objective!r}",
            'set objective to "binary" or "multiclass", or use the protocol lattice',
        )
    if not job.declared:
        raise UnsupportedCombination(
            f"{name} needs declared classes: classes taken from the labels would reveal labels", _line(job)
        )
    if objective == "multiclass" and job.table is not None and job.kinds < 3:
        raise UnsupportedCombination(
            f"{name} grows one tree per round for two classes", 'set objective to "binary" instead of "multiclass"'
        )


def _line(job: ResolvedJob) -> str:
    """Return the line to add. It names the owner's classes, so only the owner's own process shows it."""
    if job.config.objective == "binary" and job.classes in _ZERO_ONE:
        return 'add objective = "binary" (in a job: under [training]; to simulate: --objective binary; to an estimator)'
    names = job.classes or tuple(str(code) for code in range(job.kinds))
    return f"add classes = {json.dumps(names, ensure_ascii=False)} (to simulate: --classes {','.join(names)})"


def with_classes(table: PartyTable, classes: Sequence[str]) -> PartyTable:
    """Return the table with its labels encoded by the declared classes."""
    names = tuple(classes)
    if len(names) < 2 or len(set(names)) < len(names):
        raise InvalidParameter(
            "fewer than two classes are declared, or one is declared twice", "declare at least two classes, each once"
        )
    if table.label is None or table.label_classes == names:
        return table
    check_label_present(seen_values(table.label), None)
    if table.label_classes is None:
        try:
            values = np.array([float(name) for name in names])
        except ValueError:
            raise LabelOutOfRange("the labels are numbers, but the declared classes are not") from None
    else:
        position = {name: code for code, name in enumerate(table.label_classes)}
        values = np.array([position.get(name, -1.0 - at) for at, name in enumerate(names)], dtype=np.float64)
    unknown = len(np.setdiff1d(np.unique(seen_values(table.label)), values))
    if unknown:
        raise LabelOutOfRange(
            f"the labels contain {unknown} values outside the declared classes",
            "add them to classes, or drop these rows",
        )
    return replace(table, label=per_row(partial(_coded, values), table.label), label_classes=names)


def _coded(values: Float64Array, label: AnyArray) -> Float64Array:
    order = np.argsort(values)
    return order[np.searchsorted(values[order], label)].astype(np.float64)
