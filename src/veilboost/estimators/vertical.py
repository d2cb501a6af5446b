"""`VerticalClassifier` and `VerticalRegressor`: the same people, columns in different hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from veilboost.config import DEFAULTS
from veilboost.engine.api import check_engine, open_engine
from veilboost.errors import (
    EmptyTable,
    ForeignColumns,
    InvalidParameter,
    MissingLabel,
    RowsDiffer,
    UnsupportedCombination,
)
from veilboost.estimators.base import BoostingParameters, Description, Divided, Federated, class_names
from veilboost.estimators.inputs import (
    Parties,
    Tables,
    Wanted,
    assign_columns,
    check_weights,
    everything,
    find_columns,
    frame_of,
    is_by_party,
    labels_of,
    load_frame,
    named_labels,
    rows_of_active,
    shared_rows,
)
from veilboost.estimators.kinds import Classifier, Regressor
from veilboost.estimators.sklearn_base import check_is_fitted
from veilboost.model.joined import JoinedModel
from veilboost.party.simulation import Simulation, simulate_prediction, simulate_training
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import resolve
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

Frames = dict[PartyName, Any]


@dataclass(kw_only=True, eq=False, repr=False)
class VerticalParameters(BoostingParameters):
    """
    Parameters
    ----------
    protocol : str
        How the parties' columns and the labels are protected; `veilboost protocols` lists the names.
    parties : int or mapping of party name to columns
        Who holds which columns of one matrix: so many parties in equal shares, the first one active; or the
        columns of each, by name or position. Where fit is given a table per party, this is not used.
    active : str, optional
        The party with the labels; unset: the first one.
    id : str, optional
        The column to align rows by, where there is a table per party.
    categorical : sequence
        Columns to take as categories although they hold numbers (text always is categories).
    objective : str or callable
        The loss to minimise, or a user's own `(margin, y) -> (g, h)`.
    classes : sequence, optional
        The classes of a classifier, where they may not come from the labels: `sealed` needs them, unless `objective` is
        "binary" and labels are 0 and 1. A label outside of them is refused; a class that no label has is fine.
    options : mapping, optional
        The protocol's own parameters, as `{"key_bits": 3072}`.
    n_jobs : int
        How many threads a party uses.
    engine : str
        Where parties compute: "local", "disk" or "disk:FOLDER" (rows in files), "ray" (workers on this machine) or
        "ray://HOST:PORT" (a cluster).
    workers : int, optional
        How many workers the engine "ray" has; unset: one per core.

    All other parameters are those of `veilboost.config.TrainingConfig`, with XGBoost's names.
    """

    parties: Parties = 2
    active: PartyName | None = None
    id: str | None = None
    classes: Sequence[Any] | None = None
    proposal: str = DEFAULTS.proposal
    subsample: float = DEFAULTS.subsample
    sampling: str = DEFAULTS.sampling
    top_rate: float = DEFAULTS.top_rate
    other_rate: float = DEFAULTS.other_rate
    weighted_bins: bool = DEFAULTS.weighted_bins
    engine: str = "local"
    workers: int | None = None


class Vertical(Federated, VerticalParameters):
    """Columns in different hands."""

    @property
    def active_(self) -> PartyName:
        """The party with the labels."""
        check_is_fitted(self)
        return next(party for party, share in self.shares_.items() if share.skeleton is not None)

    @classmethod
    def _stored_parameters(cls, model: JoinedModel, told: Description) -> dict[str, Any]:
        return {
            "parties": {share.party: [info.name for info in share.columns] for share in model.shares},
            "active": next(share.party for share in model.shares if share.skeleton is not None),
            "id": told.id,
        }

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Divided:
        check_engine(self.engine, self.workers)
        frames, wanted, names, y = self._open(X, y)
        active = _choose_active(self.active, list(frames))
        tables, target = self._load(frames, wanted, active, y)
        tables, origin = shared_rows(tables, active, self.id is not None)
        weight = check_weights(sample_weight, len(target), origin)
        target = target[origin]
        if weight is not None:
            counts = weight > 0
            tables[active] = replace(tables[active], weight=weight)
            if not counts.all():
                tables, target = {party: table.take(counts) for party, table in tables.items()}, target[counts]
        return Divided(tables, {active: target}, names)

    def _open(self, X: Any, y: Any) -> tuple[Frames, dict[PartyName, Wanted], list[str] | None, Any]:
        """A frame per party, what to take from each, the names of one matrix's columns, and the labels."""
        if is_by_party(X):
            if y is None:
                raise MissingLabel("fit was called without labels", "give y: an array, or a column's name")
            frames = _frames_of(X)
            return frames, everything(frames, self.categorical), None, y if isinstance(y, str) else labels_of(y)
        if isinstance(y, str) or self.id is not None:
            raise UnsupportedCombination(
                "columns for ids and labels are named where there is a table per party",
                "give X as a mapping of party name to table, or y as an array and no id",
            )
        frame, names, target = self._open_matrix(X, y)
        declared = find_columns(self.categorical, names)
        wanted = {
            party: Wanted(tuple(columns), tuple(name for name in columns if name in declared))
            for party, columns in assign_columns(self.parties, names).items()
        }
        return dict.fromkeys(wanted, frame), wanted, names, target

    def _open_new(self, X: Any, parties: Sequence[PartyName], names: Sequence[str] | None) -> Frames:
        """Frames of rows to predict or to validate on."""
        if is_by_party(X):
            absent = [party for party in parties if party not in X]
            if absent:
                raise ForeignColumns(f"there are no rows of {', '.join(absent)}", "give every party's table")
            return _frames_of({party: X[party] for party in parties})
        if names is None:
            raise ForeignColumns("the model was fitted on a table per party", "predict with such a mapping")
        return dict.fromkeys(parties, self._open_new_matrix(X, names))

    def _load(
        self, frames: Frames, wanted: Mapping[PartyName, Wanted], active: PartyName, y: Any
    ) -> tuple[Tables, AnyArray]:
        named = {active: y} if isinstance(y, str) else dict[PartyName, str]()
        tables = {name: load_frame(frames[name], own, self.id, named.get(name)) for name, own in wanted.items()}
        target = named_labels(tables[active]) if named else cast(AnyArray, y)
        if len(target) != tables[active].rows:
            raise RowsDiffer(
                f"{active} has {tables[active].rows} rows but {len(target)} labels", "give a label per row"
            )
        return tables, target

    def _read_new(self, X: Any, y: Any, trained: Divided) -> Divided:
        (active,) = trained.targets
        frames = self._open_new(X, list(trained.tables), trained.names)
        wanted = {party: Wanted.like(table.columns) for party, table in trained.tables.items()}
        tables, target = self._load(frames, wanted, active, y if isinstance(y, str) else labels_of(y))
        tables, origin = shared_rows(tables, active, self.id is not None)
        return Divided(tables, {active: target[origin]}, trained.names)

    def _train(
        self, tables: Tables, held_out: Mapping[PartyName, BoolArray] | None, classes: AnyArray | None
    ) -> Simulation:
        active = _choose_active(self.active, list(tables))
        config = self._config(classes)
        if self.objective == "auto" and classes is not None:
            config = replace(config, objective="auto")  # what the labels decide is not declared
        loss = self.objective if callable(self.objective) else None
        declared = None if self.classes is None else class_names(classes)
        spec = protocol_named(self.protocol)
        resolve(spec, config, tables[active], engine=self.engine, custom_loss=loss, classes=declared)
        with open_engine(self.engine, self.workers) as engine:
            return simulate_training(
                tables,
                active,
                self.protocol,
                config,
                held_out=None if held_out is None else held_out[active],
                threads=self.n_jobs,
                custom_loss=loss,
                classes=declared,
                engine=engine,
            )

    def _margins(self, X: Any) -> Float64Array:
        check_is_fitted(self)
        frames = self._open_new(X, list(self.shares_), self._names)
        tables = {
            party: load_frame(frames[party], Wanted.like(share.columns), self.id, None)
            for party, share in self.shares_.items()
        }
        tables = rows_of_active(tables, self.active_, self.id is not None)
        return simulate_prediction(self.shares_, self.active_, tables)


class VerticalClassifier(Classifier, Vertical):
    __doc__ = f"""A boosted classifier over columns in different hands.

    A user's own `objective` is for two classes; its margin is read as log odds.
    {VerticalParameters.__doc__}"""

    other = "VerticalRegressor"


class VerticalRegressor(Regressor, Vertical):
    __doc__ = f"""A boosted regressor over columns in different hands.

    With a user's own `objective`, predictions are margins.
    {VerticalParameters.__doc__}"""

    other = "VerticalClassifier"


def _frames_of(X: Mapping[PartyName, Any]) -> Frames:
    """A frame for every party; the columns of shop's matrix become shop.0, shop.1, ..."""
    return {party: frame_of(given, party, f"{party}.") for party, given in X.items()}


def _choose_active(active: PartyName | None, parties: Sequence[Any]) -> PartyName:
    """The party that holds the labels: as asked, or the first."""
    if not parties:
        raise EmptyTable("there is no party", "name the parties and their columns")
    if not all(isinstance(party, str) for party in parties):
        raise InvalidParameter("a party's name is not text", "name every party")
    if active is not None and active not in parties:
        raise InvalidParameter(f"active={active!r} is none of the parties {', '.join(parties)}")
    return parties[0] if active is None else active
