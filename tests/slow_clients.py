"""A client that never ends its request."""

from __future__ import annotations

import socket

from parties import until


def until_closed(slow: socket.socket) -> bytes:
    """Send single bytes until the server closes the connection; gives what it answered."""
    slow.settimeout(0.05)
    received = b""

    def closed() -> bool:
        nonlocal received
        try:
            slow.sendall(b"x")
            piece = slow.recv(4096)
        except TimeoutError:
            return False
        except OSError:
            return True
        received += piece
        return not piece

    until(closed, "the server closes the connection", 20.0)
    return received
