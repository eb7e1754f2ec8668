"""Where a controller on Ray writes its journal."""

import logging
from pathlib import Path

import ray

from executors.deployment_ids import escaped
from executors.engine.clusters import CLUSTER
from executors.engine.journal import LenientJournal, lenient_journal
from executors.engine.run_id import RUN, drawn_id
from executors.private_folder import home, made

LOG = logging.getLogger(__name__)

JOURNAL_BYTES_MAX = 64 * 1024 * 1024
"""Of each of the two files of a journal that nobody asked for."""
JOURNALS = ".journals"


def open_journal(namespace: str, path: str) -> LenientJournal | None:
    """Go on with the journal; None: that is not possible, which the log says.

    Args:
        path: Of a file that is to have all; "": in this user's private folder, which is not to fill the disk.
    """
    about = {RUN: drawn_id()}
    if path:
        return lenient_journal(path, kind=CLUSTER, about=about)
    try:
        found = journal_path(namespace, session_name())
    except OSError as error:
        LOG.error("there is no journal: %s", error)
        return None
    return lenient_journal(found, kind=CLUSTER, about=about, bytes_max=JOURNAL_BYTES_MAX)


def journal_path(namespace: str, session: str) -> str:
    """Where the journal is by default: on the controller's node, and not with the logs of the cluster's session, whose folder
    all users can write to.

    Raises:
        PlaceError: There is no folder that only this user can write to.
    """
    folder = made(made(home() / JOURNALS) / session)
    return str(folder / f"rankcore-{escaped(namespace)}.journal.jsonl")


def session_name() -> str:
    """What Ray calls this cluster, from its start to its end."""
    return Path(session_folder()).name


def session_folder() -> str:
    """Where this cluster keeps its files, on this node."""
    return str(ray._private.worker._global_node.get_session_dir_path())
