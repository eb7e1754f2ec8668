"""Deployments from before applications had names of their own: their replicas keep bare ids until the deployment is deleted.

The core calls each deployment `application/deployment`, and its replicas after it. What such a deployment is called in Ray's
names is the part of the id before the '#' of its replicas, and nothing else differs: it is put in place of the other where
commands leave for Ray and where news comes in.
"""

from typing import Any, TypeVar

import attrs

T = TypeVar("T")


def renamed(message: T, before: str, after: str) -> T:
    """A command or event with the replicas' ids of another deployment's name."""
    if before == after:
        return message
    found: Any = message
    ids: dict[str, Any] = {each: getattr(found, each) for each in ("replica_id", "added", "removed") if hasattr(found, each)}
    changed = {
        field: renamed_id(value, before, after)
        if isinstance(value, str)
        else tuple(renamed_id(each, before, after) for each in value)
        for field, value in ids.items()
    }
    renamed_message: T = attrs.evolve(found, **changed) if changed else found
    return renamed_message


def renamed_id(replica_id: str, before: str, after: str) -> str:
    """The id of a replica; one of another deployment stays."""
    owner, _, serial = replica_id.rpartition("#")
    return f"{after}#{serial}" if owner == before else replica_id
