"""`ProtocolSpec`: the description of a protocol, the same for vertical and horizontal protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from veilboost.config import ROUNDS, UNSET_ROUNDS, ProtocolOptions, TrainingConfig
from veilboost.privacy.event import Event
from veilboost.privacy.statement import Protection, Statement, Status
from veilboost.protocols.cost import Cost, InTurn, Needs, PlannedJob
from veilboost.types import Role
from veilboost.wire.message import Message

if TYPE_CHECKING:
    from veilboost.crypto.csprng import JobRandomness
    from veilboost.privacy.calibrate import CalibrationRequest

Setting = Literal["vertical", "horizontal"]
RoleFactory = Callable[[Any], Any]  # takes a context of `vertical.roles` or `horizontal.roles`, returns the role
PlannedReleases = Callable[..., Sequence[Event]]  # takes a config, rows, a role and columns, before the job starts


@dataclass(frozen=True)
class Evidence:
    """The attack that supports a status, and whether it succeeds at default parameters and the stated size.

    `subject` is the subject of the protection in the statement. `attack` is a name in `audit.attacks` or of an entry
    point `veilboost.attacks`; if it is None, `audit.lower_bound` measures a proved epsilon from below. `applies` is
    False if a run contains nothing that the attack could use.
    """

    victim: str
    subject: str
    attack: str | None
    succeeds: bool
    applies: bool = True


@dataclass(frozen=True)
class BinSums:
    """Properties of the sums per bin that the active party reads, for attacks on them.

    `counts`: the second sum is a row count instead of a hessian. `noise_bits`: number of bits that noise adds to a sum.
    """

    counts: bool = False
    noise_bits: Callable[[TrainingConfig], int] = lambda config: 0


@dataclass(frozen=True)
class Precomputation:
    """The slow part of the driver's encryption, which `veilboost prepare` can compute before a job.

    `applies` reports whether a configuration can use it. `make` precomputes the given number of values and returns
    bytes to store; `load` adds the stored bytes to the randomness of the job.
    """

    applies: Callable[[TrainingConfig], bool]
    make: Callable[[TrainingConfig, int], bytes]
    load: Callable[[JobRandomness, bytes], JobRandomness]


@dataclass(frozen=True)
class ProtocolSpec:
    """A protocol: its name, its claims and the factories of its roles.

    Attributes
    ----------
    name, summary, source
        The name, a one-line description and the publication.
    statement
        The claims: which data are protected against whom, and how well.
    messages
        All message classes that the protocol sends.
    roles
        Maps the name of each role to its factory. `driver` is the role that drives the job and `helpers` are the roles
        without a table. The remaining role, `data_role`, holds tables and answers requests.
    setting
        "vertical" or "horizontal".
    exact
        The model equals that of `plain` bit for bit under the same parameters, without noise, and on pooled rows if
        the setting is horizontal.
    options
        The class of the protocol's own parameters.
    fixed
        Training parameters that the protocol sets itself. Other values are refused, except for the defaults of
        `TrainingConfig`.
    refuse
        Raises if a configuration does not fit the protocol.
    plan
        Lists what a job will release, before it starts.
    calibrate
        Turns privacy budgets into options.
    delta_option
        Returns the name of the option that holds the delta of all releases of a role's data together, if there is one.
    exact_messages
        Messages that contain values without noise in rounds from `first` on. The roles book them in the ledger, in
        addition to what the protocol books itself.
    complete
        Fills in parameters that depend on the number of rows.
    security_bits
        Strength of the encryption, if the protocol encrypts.
    limits_splits
        The party that chooses splits scores all candidates from exact sums, so a job can limit them
        (`colsample_bylevel`, monotone and interaction constraints).
    sets
        Whether a split can send a set of categories left.
    by_line
        Whether a job with these parameters adapts to the line between the parties, which is then measured.
    engines
        Engines that can run a party's own arithmetic: all, unless a role needs all rows at once.
    declared_classes
        The claims hold only for a classification whose classes are not taken from the labels.
    chooses_rounds
        `complete` chooses `n_estimators` if nobody did.
    least_participants
        How many of the participants of a horizontal job must be reachable when it starts: all, unless the protocol
        can continue without some.
    counts_rows
        The party that chooses splits knows the number of rows of a node, so it can enforce `min_node_rows`.
    cost, memory
        Inputs of `veilboost plan`. Without a `cost`, `plan` uses units that all protocols of the setting have.
    relative_cost
        Seconds per tree relative to `plain` (measured by `bench/costs.py`).
    evidence
        The attacks that support the statuses.
    sums
        Properties of the sums per bin, for attacks on them.
    precompute
        Work that can be done before a job.
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
    limits_splits: bool = False
    sets: bool = True
    by_line: Callable[[TrainingConfig], bool] = lambda config: False
    engines: tuple[str, ...] = ("local", "disk", "ray")
    declared_classes: bool = False
    chooses_rounds: bool = False
    least_participants: Callable[[TrainingConfig, int], int] = lambda config, participants: participants
    counts_rows: bool = True
    cost: Cost | InTurn | None = None
    memory: Callable[[PlannedJob, int], Needs] = lambda job, columns: Needs()
    relative_cost: float | None = None
    evidence: tuple[Evidence, ...] = ()
    sums: BinSums = BinSums()
    precompute: Precomputation | None = None

    @property
    def data_role(self) -> Role:
        """The role of the parties that hold tables and answer requests."""
        (name,) = (name for name in self.roles if name != self.driver and name not in self.helpers)
        return Role(name)

    @property
    def data_roles(self) -> tuple[str, ...]:
        """All roles with a table. A server has none."""
        return (self.driver, self.data_role) if self.setting == "vertical" else (self.data_role,)

    def settled(self, config: TrainingConfig) -> TrainingConfig:
        """Return the configuration with the parameters that the protocol determines by itself."""
        config = replace(config, **self.fixed)
        if config.n_estimators == UNSET_ROUNDS:
            config = replace(config, n_estimators=self.default_rounds())
        if config.categories != "auto":
            return config
        return replace(config, categories="sets" if self.sets else "onehot")

    def default_rounds(self) -> int:
        """Return what `n_estimators` is if nobody gives it: a number, or `UNSET_ROUNDS` if the protocol chooses."""
        return UNSET_ROUNDS if self.chooses_rounds else ROUNDS

    def completed(self, config: TrainingConfig, rows: int) -> TrainingConfig:
        """Return the configuration that the protocol chooses for this number of rows; all parties choose the same."""
        config = self.settled(config)
        return config if self.complete is None else self.complete(config, rows)

    def delta(self, config: TrainingConfig, role: Role) -> float | None:
        """Return the delta that a job's noise on this role's data is calibrated for; None if no option sets it."""
        name = self.delta_option(config, role)
        return None if name is None else float(getattr(self.options.from_dict(config.options), name))


of_active = partial(Protection, victim="active", adversary="every passive party")
of_passive = partial(Protection, victim="passive", adversary="the active party")

SHARED_NODES = of_active(
    data="labels, through rows that share a node",
    status=Status.BROKEN,
    why="the rows of every node are sent in the clear, and rows of one leaf have similar labels: a party that "
    "knows a few labels infers most others",
    needs_secrets=False,
)

OWN_ASSIGNMENTS = of_active(
    data="features, through the left/right assignments of its winning splits",
    status=Status.UNPROTECTED,
    why="every party that keeps rows by node receives the left/right assignment of each row at each winning split on "
    "the active party's own columns, except at the deepest level that max_depth allows: this reveals the order of the "
    "values, but not columns, thresholds or values",
)

EXACT_SUMS_OF_FEW_ROWS = of_passive(
    data="features, few rows",
    status=Status.BROKEN,
    why="with ten rows or fewer for every sum of one bin, over all nodes and trees, linear programming and the "
    "left/right assignments of winning splits recover the bins of most rows",
    needs_secrets=False,
)

# Evidence for these statuses.
OWN_FEATURES = Evidence("active", "features", "active_order", True)
LABELS_BY_NODES = Evidence("active", "labels", "instance_clusters", True)
FEATURES_BY_SUMS = Evidence("passive", "features", "histogram_bins", True)
FEATURES_BY_CUTS = Evidence("passive", "features", "feature_order", True)
