"""The revision of what users want of a cluster: the same where they want the same; nothing has to be stored.

Who has read what is in force, and decides by it what to write, says which revision that was. Where another writer has come
first, the revision in force is another one, and the request is refused: nobody overwrites what they have not seen.

What proxies serve, and how they log, is a part of it, as `rankcore config` prints it: another token for clients makes no other
revision, since a revision is shown to everybody. What the load, the planner of weights or a rollback by itself decide changes
none.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from executors.ray_gpu.errors import ConflictError
from rankcore.cluster.records import Cause
from rankcore.cluster.state import ClusterState, Entry
from rankcore.codec import to_plain, write_object

DIGITS = 12


def revision_of(state: ClusterState, outside: Mapping[str, Any] | None = None) -> str:
    """The revision in force; `outside` is what is wanted of proxies, without secrets."""
    applications = {name: [each.ingress, each.route_prefix] for name, each in sorted(state.applications.items())}
    deployments = {name: _wanted(entry) for name, entry in sorted(state.deployments.items()) if not entry.deleting}
    proxies = {"outside": dict(outside)} if outside else {}
    text = write_object({"applications": applications, "deployments": deployments, **proxies})
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def check_revision(state: ClusterState, expected: str | None, outside: Mapping[str, Any] | None = None) -> None:
    """Whether what is in force is what a writer has read; None: any will do.

    Raises:
        ConflictError: It is not.
    """
    if expected is not None and (found := revision_of(state, outside)) != expected:
        raise ConflictError(expected, found)


def _wanted(entry: Entry) -> object:
    follows_load = entry.scaler is not None or entry.residency is not None
    target = entry.target.replicas if entry.target.cause is Cause.USER and not follows_load else None
    return [to_plain(entry.spec), target]
