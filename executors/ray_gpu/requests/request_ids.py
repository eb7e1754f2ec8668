"""What requests are called that nobody has called anything. Replica processes import this.

Asking the system for randomness each time takes longer than a call's whole way: a process asks once, and counts.
"""

import itertools
import uuid

OURS = str(uuid.uuid4())[:24]
"""Begins the names that this process gives."""
_numbers = itertools.count(16**11)  # of twelve digits all of them: to fill them up takes longer than the rest


def made_up() -> str:
    """Another name, in the form of a UUID of version 4."""
    return OURS + hex(next(_numbers))[2:]
