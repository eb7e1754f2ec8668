"""What may be tried against a socket by its name."""

import os
import socket
from pathlib import Path


def refusals(*attempts):
    """For each attempt the error that stopped it; None: nothing did."""
    found = []
    for attempt in attempts:
        try:
            attempt()
        except OSError as error:
            found.append(type(error).__name__)
        else:
            found.append(None)
    return found


def every_way_in(path):
    """What may be tried against a socket: everything from looking at it to moving a folder above it away."""
    path = Path(path)
    attempts = [lambda: os.listdir(path.parent), lambda: socket.socket(socket.AF_UNIX).connect(str(path))]
    for each in (path, *path.parents[:-1]):
        attempts += [
            lambda each=each: os.rename(each, f"{each}.away"),
            lambda each=each: (os.unlink if each == path else os.rmdir)(each),
            lambda each=each: os.symlink("/nowhere", each),
            lambda each=each: os.chmod(each, 0o777),
        ]
    return refusals(*attempts)
