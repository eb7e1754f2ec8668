"""Ids of deployments, `application/deployment`: their names in the core. What a bare name means, and ids as names of files.

An id has one '/': neither part may have one, nor '#', which begins a replica's serial, nor '@'. Ids of before applications had
names of their own are bare, and may have any of these: see `own_name`.
"""

import hashlib
from collections.abc import Iterable
from urllib.parse import quote, unquote

MARKS = "/#@"
DEFAULT_APPLICATION = "default"
DEFAULT_PREFIX = "/"
"""Where HTTP reaches an application of which nobody says it."""
HASHED = "~"
"""Stands in the names of files that are too long to have all of an id, and in no others."""
HASH_DIGITS = 16
SHORTEST_FILE_NAME = 1 + HASH_DIGITS


def deployment_id(application: str, deployment: str) -> str:
    """What the core calls a deployment of an application."""
    return f"{application}/{deployment}"


def own_name(application: str, found: str) -> str:
    """What a deployment is called in its application, by its id; a bare id is that name."""
    return found.removeprefix(f"{application}/")


def split(found: str) -> tuple[str, str]:
    """The names of application and deployment in an id; a bare id is of the default application."""
    application, slash, deployment = found.partition("/")
    return (application, deployment) if slash else (DEFAULT_APPLICATION, found)


def problem_of(part: object) -> str | None:
    """What an application's or deployment's name must be, where it is not; None: it is."""
    if isinstance(part, str) and part and part == part.strip() and part.isprintable() and not set(part) & set(MARKS):
        return None
    return f"a non-empty string of printable characters without {' '.join(MARKS)} and surrounding blanks"


def as_application(text: str) -> str:
    """A name for an application that is like a text which may be none: a path, or what an application was called before."""
    return "".join("." if each in MARKS else each for each in text) or DEFAULT_APPLICATION


def meant_by(name: str, ids: Iterable[str]) -> list[str]:
    """The ids that a name may mean: the one that it is, else those of all deployments that have it in their applications."""
    known = sorted(ids)
    return [name] if name in known else [each for each in known if each.partition("/")[2] == name]


def is_called(found: str, name: str) -> bool:
    """Whether a deployment has this id, or it or its application has this name."""
    return name in (found, *found.split("/", 1))


def escaped(text: str, bytes_max: int = 255) -> str:
    """A text as the name of a file: no two have the same; what is too long ends with a hash of it.

    Args:
        bytes_max: At least `SHORTEST_FILE_NAME`.
    """
    plain = quote(text, safe="").replace(".", "%2E").replace(HASHED, "%7E")
    if len(plain) <= bytes_max:
        return plain
    hashed = hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]
    return f"{plain[: bytes_max - HASH_DIGITS - 1]}{HASHED}{hashed}"


def unescaped(name: str) -> str | None:
    """The text that a file is named after; None: it was too long."""
    return None if HASHED in name else unquote(name)
