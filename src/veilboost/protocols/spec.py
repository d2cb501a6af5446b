"""What a protocol is: one description for vertical and horizontal protocols alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.privacy.event import Event
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.cost import Cost, InTurn, Needs, PlannedJob
from veilboost.types import Role
from veilboost.wire.message import Message

if TYPE_CHECKING:
    from veilboost.crypto.csprng import JobRandomness
    from veilboost.privacy.calibrate import CalibrationRequest

Setting = Literal["vertical", "horizontal"]
RoleFactory = Callable[[Any], Any]  # a context of `vertical.roles` or `horizontal.roles` to the role
PlannedReleases = Callable[..., Sequence[Event]]  # of a config, rows, a role and columns, before the job starts


@dataclass(frozen=True)
class Evidence:
    """The attack that a status rests on, and whether it succeeds at default parameters and the size in question.

    `subject` is what the statement calls it, `attack` a name of `audit.attacks` or an entry point `veilboost.attacks`;
    None: `audit.lower_bound` measures a proved epsilon from below. `applies`: the run holds what the attack could use.
    """

    victim: str
    subject: str
    attack: str | None
    succeeds: bool
    applies: bool = True


@dataclass(frozen=True)
class BinSums:
    """What attacks need to know of the sums per bin that an active party reads.

    `counts`: in place of the hessian rows are counted. `noise_bits`: by how many bits noise widens a sum.
    """

    counts: bool = False
    noise_bits: Callable[[TrainingConfig], int] = lambda config: 0


@dataclass(frozen=True)
class Precomputation:
    """The slow part of a driver's encryption, which `veilboost prepare` does before a job that `applies`.

    `make` does it for so many values, and gives what is kept until then; `load` adds that to the job's randomness.
    """

    applies: Callable[[TrainingConfig], bool]
    make: Callable[[TrainingConfig, int], bytes]
    load: Callable[[JobRandomness, bytes], JobRandomness]


@dataclass(frozen=True)
class ProtocolSpec:
    """A protocol: its name, what it claims, and how to make its roles.

    `roles` maps every role's name to what makes it. `driver` is the role that drives the job, `helpers` are those
    without a table; the one that is left, `data_role`, holds tables and answers. `exact`: the model equals that of
    `plain` bit for bit under the same parameters, without noise and on pooled rows where the setting is horizontal.
    `options` are the protocol's own parameters; `fixed` are training parameters that it does not leave open; `refuse`
    raises where a configuration does not fit it. `plan` tells what a job will release, before it starts; `calibrate`
    turns budgets into options; `delta_option` names the option with the delta of all releases of a role's data
    together, if there is one; `exact_messages` are those that show values without noise in rounds from `first` on,
    which the roles book, besides what a protocol books itself; `complete` fills in what depends on the number of rows;
    `security_bits` is the strength of its encryption, where it encrypts; `sets`: it can send sets of categories left;
    `engines` are those that a party's own arithmetic may run on: all of them, unless a role looks at all rows at once;
    `declared_classes`: its claims hold only for a classification whose classes do not come from the labels;
    `counts_rows`: whoever chooses splits knows how many rows a node has, and can honour `min_node_rows`.

    `cost` and `memory` are what `veilboost plan` predicts from; without a `cost` it takes units that all protocols of
    the setting have. `relative_cost` is the seconds of a tree over those of `plain` (`bench/costs.py` measures it).
    `evidence` names the attacks that the statuses rest on, `sums` says what attacks on sums per bin read, `precompute`
    what can be done before a job.
    """

    name: str
    summary: str
    source: str
    statement: Statement
    messages: tuple[type[Message], ...]
    roles: Mapping[str, RoleFactory]
    setting: Setting = "vertical"
    exact: bool = False
    driver: str = Role.ACTIVE
    helpers: tuple[str, ...] = ()
    options: type[ProtocolOptions] = ProtocolOptions
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    refuse: Callable[[TrainingConfig], None] | None = None
    plan: PlannedReleases | None = None
    calibrate: Callable[[CalibrationRequest], Mapping[str, Any]] | None = None
    delta_option: Callable[[TrainingConfig, Role], str | None] = lambda config, role: None
    exact_messages: Callable[[TrainingConfig, int], Sequence[type[Message]]] = lambda config, first: ()
    complete: Callable[[TrainingConfig, int], TrainingConfig] | None = None
    security_bits: Callable[[TrainingConfig], int] | None = None
    sets: bool = True
    engines: tuple[str, ...] = ("local", "disk", "ray")
    declared_classes: bool = False
    counts_rows: bool = True
    cost: Cost | InTurn | None = None
    memory: Callable[[PlannedJob, int], Needs] = lambda job, columns: Needs()
    relative_cost: float | None = None
    evidence: tuple[Evidence, ...] = ()
    sums: BinSums = BinSums()
    precompute: Precomputation | None = None

    @property
    def data_role(self) -> Role:
        """The role of the parties that hold tables and answer."""
        (name,) = (name for name in self.roles if name != self.driver and name not in self.helpers)
        return Role(name)

    @property
    def data_roles(self) -> tuple[str, ...]:
        """All roles with a table. A server has none."""
        return (self.driver, self.data_role) if self.setting == "vertical" else (self.data_role,)

    def settled(self, config: TrainingConfig) -> TrainingConfig:
        """The configuration with what follows from the protocol alone."""
        config = replace(config, **self.fixed)
        if config.categories != "auto":
            return config
        return replace(config, categories="sets" if self.sets else "onehot")

    def completed(self, config: TrainingConfig, rows: int) -> TrainingConfig:
        """The configuration with what the protocol chooses for so many rows; all parties choose alike."""
        config = self.settled(config)
        return config if self.complete is None else self.complete(config, rows)

    def delta(self, config: TrainingConfig, role: Role) -> float | None:
        """The delta for which a job's noise on this role's data is made; None where no option says so."""
        name = self.delta_option(config, role)
        return None if name is None else float(getattr(self.options.from_dict(config.options), name))


of_active = partial(Protection, victim="active", adversary="every passive party")
of_passive = partial(Protection, victim="passive", adversary="the active party")

ROWS_TOGETHER = of_active(
    data="labels, by which rows are together",
    status=Status.BROKEN,
    why="every node's rows are told in the clear, and rows of a leaf have similar labels: a party that "
    "knows a few labels infers most others",
    needs_secrets=False,
)

OWN_SIDES = of_active(
    data="features, by the sides of its winning cuts",
    status=Status.UNPROTECTED,
    why="on which side of each winning cut of the active party's own columns a row lies is told to all who keep rows "
    "by node, but for the last level of a tree: the order of its values shows; columns, cuts and values do not",
)

EXACT_SUMS_OF_FEW_ROWS = of_passive(
    data="features, few rows",
    status=Status.BROKEN,
    why="with ten rows or fewer to every sum of one bin, over all nodes and trees, linear programming and the "
    "sides of winning cuts recover most rows' bins",
    needs_secrets=False,
)

# What these statuses rest on.
OWN_FEATURES = Evidence("active", "features", "active_order", True)
LABELS_BY_NODES = Evidence("active", "labels", "instance_clusters", True)
FEATURES_BY_SUMS = Evidence("passive", "features", "histogram_bins", True)
FEATURES_BY_CUTS = Evidence("passive", "features", "feature_order", True)
