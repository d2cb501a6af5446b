"""A passive party in prediction: it says which rows go left at its own nodes, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.infer.messages import AllSplits, AllSplitsRequest, BeginPrediction, RouteAnswer, RouteRequest
from veilboost.model.part import Part
from veilboost.types import Column
from veilboost.wire.message import Done, Message


class PredictionResponder:
    """Answers for the rows of one prediction request."""

    def __init__(self, part: Part, columns: Sequence[Column], rows: int) -> None:
        self._records = part.records
        self._values = part.matrix(columns, rows)

    def handle(self, message: Message) -> Message:
        rows = self._values.shape[1]
        if isinstance(message, BeginPrediction):
            if message.rows != rows:
                raise MalformedMessage("there are another number of rows here")
            return Done()
        if isinstance(message, RouteRequest):
            return self._route(message, rows)
        if isinstance(message, AllSplitsRequest):
            every = np.arange(rows, dtype=np.int32)
            bits = [
                np.packbits(self._records.goes_left(self._values, np.repeat(np.int32(k), rows), every))
                for k in range(self._records.count)
            ]
            left = np.array(bits, dtype=np.uint8).reshape(self._records.count, (rows + 7) // 8)
            return AllSplits(self._records.tree, self._records.node, left)
        raise UnexpectedMessage(f"{message.type_name()} is not a request for a prediction")

    def _route(self, message: RouteRequest, rows: int) -> RouteAnswer:
        nodes = len(message.tree)
        fits = len(message.node) == nodes and len(message.starts) == nodes + 1
        if not fits or message.starts[0] != 0 or message.starts[-1] != len(message.rows):
            raise MalformedMessage("a routing request's arrays do not fit together")
        counts = np.diff(message.starts)
        inside = len(message.rows) == 0 or (message.rows.min() >= 0 and message.rows.max() < rows)
        if (counts < 0).any() or not inside:
            raise MalformedMessage("a routing request names rows that are not there")
        records = self._records.find(message.tree, message.node)
        if (records < 0).any():
            raise MalformedMessage("a routing request names a node that is not split here")
        # So no request asks for more than the splits of all rows.
        if len(np.unique(records)) != nodes or (counts > rows).any():
            raise MalformedMessage("a routing request names a node twice, or more rows at a node than there are")
        left = self._records.goes_left(self._values, np.repeat(records, counts), message.rows)
        return RouteAnswer(np.packbits(left))
