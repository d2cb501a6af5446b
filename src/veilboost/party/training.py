"""One party's part in a vertical training job, over given channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from veilboost.boost.booster import Hooks, Progress, Watcher, train
from veilboost.boost.grower import Tree
from veilboost.boost.metrics import metric_for
from veilboost.boost.objective import CustomLoss, objective_of
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL, Engine
from veilboost.errors import RowsDiffer, VeilBoostError
from veilboost.model.share import ColumnInfo, ModelShare, Skeleton, SplitRecords, TrainingOutcome
from veilboost.privacy.event import Account, MemoryAccount
from veilboost.protocols.constraints import check_constraints, of_columns
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.validation import resolve
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.protocols.vertical.roles import ActiveContext, ExactReleases, PassiveContext
from veilboost.types import BoolArray, Column, Float64Array, PartyName, Role
from veilboost.wire.channel import Peers


@dataclass(frozen=True)
class TrainingJob:
    """What the parties train: the protocol, the parameters, and the canonical order of parties.

    `classes` are declared by the active party; no other party learns their names.
    """

    protocol: ProtocolSpec
    config: TrainingConfig
    order: tuple[PartyName, ...]
    custom_loss: CustomLoss | None = None
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Resumed:
    """The state at which a job resumes; no `progress` if no tree is finished.

    `records` are the active party's own; `digests` are those of the passive parties' checkpoints.
    """

    progress: Progress | None
    records: SplitRecords
    digests: Mapping[PartyName, str]


class Keeper(Protocol):
    """Stores a job's progress at the active party."""

    def resumed(self) -> Resumed | None:
        """The state of an interrupted run of this job; None for a new one."""
        ...

    @property
    def digests(self) -> Mapping[PartyName, str]:
        """The digests of the passive parties' checkpoints of the last tree that was kept."""
        ...

    def store(self, trees: int) -> None:
        """Ask the passive parties to store their shares of `trees` trees; `keep` reads their answers.

        Sent together with the last splits of a round. `keep` asks itself for a round that ends before.
        """
        ...

    def chose(self, what: str) -> None:
        """Record what the protocol chose by itself, for the operator."""
        ...

    def keep(self, progress: Progress, records: SplitRecords) -> None: ...
    def bring_back(self, error: VeilBoostError, begin: Callable[[], object]) -> bool:
        """Reconnect the peer whose loss `error` reports; `begin` starts the job again at peers that lost it."""
        ...


def train_active(
    job: TrainingJob,
    party: PartyName,
    table: PartyTable,
    peers: Peers,
    held_out: BoolArray | None = None,
    threads: int = 1,
    keeper: Keeper | None = None,
    watcher: Watcher | None = None,
    randomness: JobRandomness | None = None,
    account: Account | None = None,
    engine: Engine = LOCAL,
    start: Float64Array | None = None,
    rate: Callable[[int], float] | None = None,
    peek: Callable[[Callable[[], ModelShare]], None] | None = None,
) -> TrainingOutcome:
    """Drive a job as its active party. The table's rows are aligned with those of all peers.

    The `keeper` writes checkpoints, returns an earlier one, and decides whether a lost peer can be reconnected.
    Noise is drawn from `randomness`, fresh by default, and recorded in `account`. Row-wise computation runs on
    `engine`. `start` holds the margins (K, rows) before the first tree, `rate` returns the learning rate of a round.
    `peek` receives, after each round, a function that returns this party's share of the model so far.
    """
    account = account or MemoryAccount()
    resolved = resolve(
        job.protocol,
        job.config,
        table,
        engine=engine.name,
        custom_loss=job.custom_loss,
        classes=job.classes,
        started=start is not None,
    )
    table, config = resolved.table or table, resolved.config
    objective = objective_of(
        config.objective if job.custom_loss is None else "custom", config, resolved.kinds, job.custom_loss
    )
    if start is not None and start.shape != (objective.trees_per_round, table.rows):
        raise RowsDiffer(
            f"the margins to start from have shape {start.shape[::-1]}, and there are {table.rows} rows and "
            f"{objective.trees_per_round} trees per round",
            "give one number per row; with several classes, one per row and class",
        )
    metric = metric_for(objective, config)
    config = job.protocol.completed(replace(config, max_delta_step=objective.max_delta_step), table.rows)
    bin_weights = table.weight if config.weighted_bins else None
    block = engine.columns(table.columns, table.rows, config, bin_weights, held_out, threads)
    side: VerticalActive = job.protocol.roles["active"](
        ActiveContext(
            party,
            job.order,
            block,
            table.rows,
            peers,
            config,
            objective.trees_per_round,
            threads,
            randomness or JobRandomness(),
            account,
            1.0 if table.weight is None else float(table.weight.max(initial=0.0)),
            objective.bounded,
            ExactReleases(job.protocol, Role.ACTIVE, account, peers.names),
            None if keeper is None else keeper.store,
            None if keeper is None else keeper.chose,
            of_columns(table.constraints, table.names),
        )
    )
    features = side.begin_training(held_out, bin_weights)
    hooks, progress = Hooks(watch=watcher, rate=rate), None
    if keeper is not None:
        resumed = keeper.resumed()
        if resumed is not None:  # also without a tree: a passive party may have finished the first one
            progress = resumed.progress
            side.resume(resumed.records, len(progress.trees) if progress else 0, resumed.digests)

        def recover(error: VeilBoostError, progress: Progress) -> bool:
            if not keeper.bring_back(error, lambda: side.begin_training(held_out, bin_weights)):
                return False
            side.resume(side.records(), len(progress.trees), keeper.digests)
            return True

        hooks = Hooks(watcher, lambda progress: keeper.keep(progress, side.records()), recover, rate)
    samples = engine.labels(resolved.labels, table.weight, held_out)

    def share_of(trees: Sequence[Tree], base: Float64Array, records: SplitRecords) -> ModelShare:
        skeleton = Skeleton(
            protocol=job.protocol.name,
            objective=objective.name,
            classes=resolved.classes,
            parties=job.order,
            trees_per_round=objective.trees_per_round,
            trees=tuple(trees),
            base_margin=base,
            config=config,
        )
        return make_share(party, table.columns, records, skeleton)

    if peek is not None and keeper is None:
        base = samples.base_margin(objective, config.base_score) * (start is None)

        def keep(done: Progress) -> None:
            peek(lambda: share_of(done.trees, base, side.records()))

        hooks = replace(hooks, keep=keep)
    ensemble = train(side, features, samples, objective, metric, config, hooks, progress, start)
    records = side.end_training(len(ensemble.trees))
    return TrainingOutcome(
        share_of(ensemble.trees, ensemble.base_margin, records), ensemble.history, metric=ensemble.metric
    )


class PassiveSession:
    """A passive party in one training job: it answers requests, and has its share when the job has ended."""

    def __init__(
        self,
        protocol: ProtocolSpec,
        party: PartyName,
        table: PartyTable,
        threads: int = 1,
        agreed: TrainingConfig | None = None,
        randomness: JobRandomness | None = None,
        account: Account | None = None,
        engine: Engine = LOCAL,
        held_out: int | None = None,
        active: PartyName = "the active party",
    ) -> None:
        """`agreed`: the parameters that the owner's policy allowed; the driver may not use others.

        `held_out`: the number of rows that the job holds out for validation, if that is agreed too. `active`: the
        driver's name in the ledger.
        """
        if agreed is not None:
            check_constraints(protocol, agreed, table.constraints, table.columns)
        account = account or MemoryAccount()
        self._party = party
        self._columns = table.columns
        self.side: VerticalPassive = protocol.roles["passive"](
            PassiveContext(
                party,
                table.columns,
                table.rows,
                threads,
                None if agreed is None else protocol.completed(agreed, table.rows),
                randomness or JobRandomness(),
                account,
                engine,
                held_out,
                ExactReleases(protocol, Role.PASSIVE, account, (active,)),
                of_columns(table.constraints, table.names),
            )
        )

    def share(self) -> ModelShare:
        return make_share(self._party, self._columns, self.side.records(), None)


def make_share(
    party: PartyName, columns: Sequence[Column], records: SplitRecords, skeleton: Skeleton | None
) -> ModelShare:
    infos = tuple(ColumnInfo(column.name, column.categories) for column in columns)
    return ModelShare(party, infos, records, skeleton)
