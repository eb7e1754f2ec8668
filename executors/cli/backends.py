"""Which executors a command can use."""

import os
from enum import StrEnum


class Backend(StrEnum):
    """What replicas are."""

    RAY = "ray"
    LOCAL = "local"


def default_namespace() -> str:
    """The namespace that is meant where none is named."""
    return os.environ.get("RANKCORE_NAMESPACE") or "rankcore"
