"""The loggers of one process: a replica's, a worker's or a proxy's.

Users of Ray Serve log to `ray.serve`; what they wrote for it is the same here. All goes to the process's standard error, as
Ray shows it, and to a file of its own, which is made with its first line: a thousand idle replicas have none.
"""

import logging
import logging.handlers
import os
from collections.abc import Callable
from pathlib import Path

import ray

from executors.deployment_ids import escaped
from executors.ray_gpu.logs.access import ACCESS, AccessLog
from executors.ray_gpu.logs.config import LoggingConfig
from executors.ray_gpu.logs.lines import Who, WhoFilter, line_of

LOGGERS = ("ray.serve", "rankcore", "executors")
"""The user's, under the name that it has in Ray Serve and under ours; and that of this package."""
FOLDER = "rankcore"
FILE_BYTES = 100 * 1024 * 1024
FILES_KEPT = 5
END = ".log"
FILE_NAME_BYTES_MAX = 255 - len(f".{FILES_KEPT}")
"""Of a file that is written to: those of before have a number behind that."""


def log_from_here(config: LoggingConfig, kind: str, name: str, who: Callable[[], Who]) -> AccessLog | None:
    """Let this process log as it is asked to; returns what takes the lines of requests, if there are to be such.

    Args:
        kind: What the process is, "replica" or "proxy".
        name: Which one.
        who: What is said of it on each line at the moment.
    """
    line, whom = line_of(config), WhoFilter(who)
    aloud, file = logging.StreamHandler(), _LazyFile(path_of(config, kind, name))
    for handler in (aloud, file):
        handler.setFormatter(line)
        handler.addFilter(whom)
    for each in LOGGERS:
        logger = logging.getLogger(each)
        logger.propagate = False
        logger.setLevel(config.log_level)
        logger.handlers[:] = [aloud, file]
    access = logging.getLogger(ACCESS)
    access.propagate = False  # to the file alone, as in Ray Serve
    access.handlers[:] = [file]
    takes = config.enable_access_log and access.isEnabledFor(logging.INFO)
    return AccessLog(access) if takes else None


def path_of(config: LoggingConfig, kind: str, name: str) -> Path:
    """The file of a process: `replica_APPLICATION%2FDEPLOYMENT%23ID.log` for a replica. No two have the same."""
    folder = Path(config.logs_dir) if config.logs_dir is not None else session_logs() / FOLDER
    begin = f"{kind}_"
    return folder / f"{begin}{escaped(name, FILE_NAME_BYTES_MAX - len(begin) - len(END))}{END}"


def session_logs() -> Path:
    """Where Ray's session on this node has its logs; here, outside of Ray."""
    node = ray._private.worker._global_node
    return Path(node.get_logs_dir_path()) if node is not None else Path(os.curdir)


class _LazyFile(logging.handlers.RotatingFileHandler):
    """A file that is made with its first line, and its folder too. Where it cannot be, standard error has the lines alone."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, delay=True)
        self._folder = path.parent
        self._is_broken = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        if self._is_broken:
            return
        try:
            if self.stream is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self.stream = self._open()
        except OSError as error:
            self._is_broken = True
            logging.getLogger(__name__).warning("no log in %s: %s", self.baseFilename, error)
            return
        super().emit(record)
