"""Checks of what comes in from outside: identifiers, numbers and times. Each raises the error class it is given.

Strings and numbers have to be Python's own: what only derives from them (an enum's members, numpy's numbers) would be taken,
and could not be written into a journal.
"""

from rankcore.errors import FieldError, UnknownDeploymentError

NAME_LENGTH_MAX = 253
DEPLOYMENT_LENGTH_MAX = 213
"""Of a deployment's name: the ids of its replicas have #epoch.serial behind it, up to 40 characters."""
COUNT_MAX = 10_000_000
REPLICAS_MAX = 100_000
"""Of one deployment in a cluster: a step that starts ten times as many takes its controller half a minute."""
REVISION_MAX = 2**63 - 1
"""Epochs and revisions: 64-bit, so that every executor can carry them."""
SECONDS_MAX = 1e12


def identifier(error: type[FieldError], field: str, value: object, most: int = NAME_LENGTH_MAX) -> None:
    """A name or an id: 1 to `most` printable characters, no blank at either end."""
    if type(value) is str and 0 < len(value) <= most and value.isprintable() and value == value.strip():
        return
    raise error(field, value, f"a string of 1 to {most} printable characters without surrounding blanks")


def of_deployment(name: str, field: str, replica_id: str) -> None:
    """An id that the core made says whose it is; one that was made elsewhere may be anybody's."""
    owner, separator, _ = replica_id.rpartition("#")
    if separator and owner != name:
        raise UnknownDeploymentError(field, replica_id, f"an id of deployment {name!r}")


def is_route_prefix(value: object) -> bool:
    """Whether requests can be told by it: "/", or a path such as "/a/b", without what no request's path has."""
    if type(value) is not str or not value.startswith("/") or any(each in value for each in ("?", "#", "{", "//")):
        return False
    return value == "/" or not value.endswith("/")


def text(error: type[FieldError], field: str, value: object) -> None:
    """Free text, such as the reason of a failure; it can be written as UTF-8."""
    if type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise error(field, value, "text without lone surrogates") from None
    else:
        raise error(field, value, "a string")


def count(error: type[FieldError], field: str, value: object, least: int, most: int = COUNT_MAX) -> None:
    """An int (a bool is none) from `least` to `most`, both included."""
    if type(value) is not int or not least <= value <= most:
        raise error(field, value, f"an integer from {least} to {most}")


def is_number(value: object) -> bool:
    """An int or a float; a bool is none."""
    return type(value) is float or type(value) is int


def flag(error: type[FieldError], field: str, value: object) -> None:
    """True or False, nothing that merely looks like it."""
    if type(value) is not bool:
        raise error(field, value, "true or false")


def seconds(error: type[FieldError], field: str, value: object, *, least: float = 0.0, above: float | None = None) -> None:
    """A finite number of seconds, at least `least`, or greater than `above`."""
    if (type(value) is float or type(value) is int) and value <= SECONDS_MAX:
        if value > above if above is not None else value >= least:
            return
    floor = f"above {above:g}" if above is not None else f"at least {least:g}"
    raise error(field, value, f"a finite number of seconds, {floor}")
