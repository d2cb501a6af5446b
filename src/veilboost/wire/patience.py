"""How long a peer that lives may stay silent. A peer that is gone shows by itself, by the keepalive of its link."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Patience:
    """Calls `give_up`, from a thread of its own, when a wait lasts longer than so many seconds."""

    def __init__(self, seconds: float, give_up: Callable[[], None]) -> None:
        self.seconds, self.over = seconds, False
        self._give_up = give_up
        self._since: float | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    @contextmanager
    def waiting(self) -> Generator[None]:
        with self._lock:
            self._since, self.over = time.monotonic(), False  # a timer that came with an answer ended no later wait
            if self._timer is None:
                self._look_in(self.seconds)
        try:
            yield
        finally:
            with self._lock:
                self._since = None

    def close(self) -> None:
        """End the timer and its thread. A later wait starts another."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            timer.join()

    def _look_in(self, seconds: float) -> None:
        # One timer serves many waits: it looks again when it comes too early, and ends when nobody waits.
        self._timer = threading.Timer(seconds, self._look)
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        with self._lock:
            closed, self._timer = self._timer is None, None
            if closed or self._since is None:
                return
            left = self._since + self.seconds - time.monotonic()
            if left > 0:
                self._look_in(left)
                return
            self.over = True
        self._give_up()
