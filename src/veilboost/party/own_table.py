"""A party's own table: read whole, or left where it is if the engine can read it there."""

from __future__ import annotations

from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL, lasting_engine
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.tables import rows_in_place, table_in_place
from veilboost.errors import AgainstPolicy, UnexpectedMessage
from veilboost.party.policy import EVERY
from veilboost.party.settings import DataSettings, PartySettings
from veilboost.party.vertical.lots import lots_for


def open_table(settings: PartySettings) -> PartyTable:
    """The party's table; it stays in shards where the engine has shards and the table is parquet files."""
    data, engine = _data(settings), lasting_engine(settings.engine, settings.workers)
    source = data.parquet
    if source is None or not isinstance(engine, ShardedEngine):
        return data.load()
    return table_in_place(engine, source, **data.selected)


def open_allowed(settings: PartySettings) -> PartyTable:
    """The same, if the policy allows its columns."""
    return _allowed(settings, open_table(settings))


def load_allowed(settings: PartySettings) -> PartyTable:
    """The party's table in memory, if the policy allows its columns."""
    return _allowed(settings, _data(settings).load())


def wished_lots(settings: PartySettings) -> int:
    """Into how many lots this party needs ids to be dealt. Of its table only the files' heads are read."""
    source = _data(settings).parquet
    return 1 if source is None or settings.engine == LOCAL.name else lots_for(rows_in_place(source))


def _data(settings: PartySettings) -> DataSettings:
    if settings.data is None:
        raise UnexpectedMessage("this party has no table")
    return settings.data


def _allowed(settings: PartySettings, table: PartyTable) -> PartyTable:
    if EVERY not in settings.policy.columns:
        forbidden = sum(name not in settings.policy.columns for name in table.names)
        if forbidden:
            raise AgainstPolicy(f"the policy forbids {forbidden} of the columns", "list them, or leave them out")
    return table
