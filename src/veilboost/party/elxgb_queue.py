"""Users that wait while others are served are served together: as many exchanges with the CSP as for one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from veilboost.infer.secure.messages import SecureQuery
from veilboost.infer.secure.server import EncryptedModel
from veilboost.types import Float64Array, UInt8Array


@dataclass
class Waiting:
    """One user's rows, and in the end its scores or what went wrong."""

    rows: UInt8Array
    scores: Float64Array | None = None
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)


class QueuedModel:
    """Whoever finds the model free takes everybody along who waits."""

    def __init__(self, model: EncryptedModel) -> None:
        self._model = model
        self._queue: list[Waiting] = []
        self._adding, self._serving = threading.Lock(), threading.Lock()
        self.batches = 0

    def predict(self, query: SecureQuery) -> Float64Array:
        self._model.check(query)  # one user's broken rows are not everybody's
        mine = Waiting(query.rows)
        with self._adding:
            self._queue.append(mine)
        with self._serving:
            if not mine.done.is_set():
                self._serve()
        if mine.error is not None:
            raise mine.error
        if mine.scores is None:
            raise RuntimeError("a served user has no scores")
        return mine.scores

    def _serve(self) -> None:
        with self._adding:
            batch, self._queue = self._queue, []
        self.batches += 1
        try:
            for waiting, scores in zip(batch, self._model.predict([w.rows for w in batch]), strict=True):
                waiting.scores = scores
        except BaseException as error:  # each of them hears of it
            for waiting in batch:
                waiting.error = error
        for waiting in batch:
            waiting.done.set()
