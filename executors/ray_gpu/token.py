"""This user's token for Ray clusters: whoever has it can run code in them as this user."""

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

from ray._private.authentication.authentication_token_generator import generate_new_authentication_token
from ray._raylet import AuthenticationTokenLoader, Config

LOG = logging.getLogger(__name__)
MODE = "RAY_AUTH_MODE"


def show_token(*, make: bool) -> None:
    """Speak to Ray with this user's token (~/.ray/auth_token), unless told otherwise.

    Ray does it by itself for a cluster that it starts, with a warning, but not where it joins one.

    Args:
        make: Whether to make one where there is none, which only this user can read; Ray's own others could read too.
    """
    has_one = AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    if not has_one and not make:
        return
    if MODE not in os.environ:
        os.environ[MODE] = "token"
        Config.initialize("")  # it was read when ray was imported
    if os.environ[MODE].lower() != "token":
        return
    if has_one:
        warn_of_readers()
    else:
        _make()


def warn_of_readers() -> None:
    """Say so where other users can read the token."""
    path = token_file()
    if path is not None and can_be_read_by_others(path):
        LOG.warning("other users can read %s, and run code as you in your Ray clusters with it: chmod 600 %s", path, path)


def token_file() -> Path | None:
    """The file that Ray takes the token from; None: it takes it from the environment."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return None
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"


def can_be_read_by_others(path: Path) -> bool:
    """Whether a file, and all folders on the way to it, let others in."""
    try:
        real = path.resolve(strict=True)
        if not real.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH):
            return False
        return all(folder.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH) for folder in real.parents)
    except OSError:
        return False


def _make() -> None:
    path = Path.home() / ".ray" / "auth_token"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    pending = path.with_name(f".{path.name}.{os.getpid()}")
    pending.unlink(missing_ok=True)
    try:
        with open(os.open(pending, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(generate_new_authentication_token())
        if path.exists() and not path.stat().st_size:  # the disk was full, or a process was killed
            pending.replace(path)
        else:
            with suppress(FileExistsError):  # another process was faster
                os.link(pending, path)
    finally:
        pending.unlink(missing_ok=True)
