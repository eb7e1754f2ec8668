"""What requests are called that nobody has called anything. Replica processes import this.

Such a name is a number, of all calls that this process has begun so, behind what only this process begins names with. Few names
are ever read: the number goes along as the call's id on the connection, whose key has the rest, and either end writes the name
down when somebody asks. To make it and send it as text took 5 % of the calls a second.
"""

import itertools
import os
import uuid

LENGTH = 24
FIRST = 16**11
"""All numbers have twelve digits, and other ids of calls are far below."""
_numbers = itertools.count(FIRST)
_ours = ""


def _renew() -> None:
    global _ours
    _ours = str(uuid.uuid4())[:LENGTH]


_renew()
os.register_at_fork(after_in_child=_renew)  # else parent and child would give the same names


def ours() -> str:
    """Begins the names that this process gives."""
    return _ours


def next_number() -> int:
    """That of another call."""
    return next(_numbers)


def written(beginning: str, number: int) -> str:
    """The name, in the form of a UUID of version 4."""
    return beginning + hex(number)[2:]


def made_up() -> str:
    """Another name at once."""
    return written(_ours, next_number())


def named_on_connection(text: str) -> str:
    """What a connection is called whose calls this process names: `text`, and what its names begin with."""
    return _ours + text


def beginning_in(name: str) -> str:
    """What names of calls begin with on a connection of this name; "": they have none, the caller is of an older release."""
    return name[:LENGTH] if name[8:9] == "-" else ""
