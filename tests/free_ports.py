"""Ports of this machine for tests whose subject has to be told one."""

import os
import socket

FIRST, LAST = 20_000, 32_000
"""Below those that Linux gives to whoever asks for none: between a look here and a bind, no other process is given one."""


def free_ports(number: int) -> list[int]:
    """So many ports of 127.0.0.1 that nobody listens at. Processes that look at the same time begin at different ones."""
    found: list[int] = []
    port = FIRST + os.getpid() * 17 % (LAST - FIRST)
    while len(found) < number:
        port = port + 1 if port < LAST else FIRST
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
