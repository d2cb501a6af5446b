"""The user's own client: its row is encrypted before it leaves, and a prediction comes back."""

from __future__ import annotations

from collections.abc import Mapping

from veilboost.errors import MalformedMessage
from veilboost.infer.secure.attributes import Directory
from veilboost.infer.secure.messages import DirectoryRequest, SecureQuery, SecureScores, ServiceDirectory
from veilboost.infer.secure.scheme import fingerprint, public_service
from veilboost.types import Column, Float64Array, Int64Array
from veilboost.wire.channel import Peers


class ServiceUser:
    """Knows the directory and the public key from the authority; `peers` are "authority" and "active"."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        told = peers.ask({"authority": DirectoryRequest()}, ServiceDirectory)["authority"]
        self.directory = Directory.from_json(told.attributes)
        key = told.key.tobytes()
        self._service = public_service(told.scheme, key, self.directory.size)
        self._key = fingerprint(key)

    def predict(self, columns: Mapping[str, Column], rows: int) -> Float64Array:
        """Predictions (rows, classes or 1). Columns that no party registered are left out."""
        values = self.directory.rows_of(columns, rows)
        scores = self._peers.ask({"active": self.query(values)}, SecureScores)["active"].scores
        if len(scores) != rows:
            raise MalformedMessage("there are predictions for another number of rows")
        return scores

    def query(self, values: Int64Array) -> SecureQuery:
        """What leaves this machine: rows as `Directory.rows_of` gives them, encrypted."""
        return SecureQuery(self._service.encrypt_rows(values), self._key)
