"""Under which name Ray shows a replica: `llm#rank3` in place of `Replica`.

Ray's log monitor puts before each line that a driver sees the name that the process has written last, on a line of its own
that begins with `:actor_name:`. Ray writes one when an actor has been made, with its `repr`; written again, it is another name
from there on, so that it follows the rank. Ray's dashboard and `ray list actors` take the `repr` once, when no rank is known
yet, and there is no way to change it: they have the replica's id. The process's title is the class and method of the last
call: Ray writes it anew with each call, over whatever we would write there.
"""

import sys

from ray._private.ray_constants import LOG_PREFIX_ACTOR_NAME

from executors.deployment_ids import DEFAULT_APPLICATION


def shown_name(app_name: str, deployment: str, replica_id: str, rank: int | None) -> str:
    """`llm#rank3`, with the application where it is not the default one; the replica's id while it has no rank."""
    if rank is None:
        return replica_id
    return f"{deployment if app_name == DEFAULT_APPLICATION else f'{app_name}/{deployment}'}#rank{rank}"


def show_as(name: str) -> None:
    """Show this actor so from now on, before its lines at drivers."""
    for stream in (sys.stdout, sys.stderr):
        print(f"{LOG_PREFIX_ACTOR_NAME}{name}", file=stream, flush=True)
