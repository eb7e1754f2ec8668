"""What the system says about processes. Replica processes import this."""

from pathlib import Path


def stat_of(pid: int) -> list[str] | None:
    """What the system says about a process: its state first, when it started in place 19; None: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def started_at(pid: int) -> int | None:
    """When a process started, in the system's ticks, which with its number names it; None: the system does not say."""
    found = stat_of(pid)
    return int(found[19]) if found is not None else None
