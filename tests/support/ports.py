"""Free loopback ports for the services that tests start."""

from __future__ import annotations

import socket
from contextlib import ExitStack

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return ``count`` different ports that nobody listened on a moment ago.

    All are held open until the last one is known, so the result never names a port twice. Another process may still
    take one before it is used: who starts a service on them tries again with fresh ones (`support.processes.start`).
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]
