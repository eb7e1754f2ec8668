"""What an agent is told by `--rdzv-conf`."""

import socket
from collections.abc import Mapping

import attrs

from rankcore.errors import RankcoreError

PORT = 29_400
"""Where the coordinator listens unless told otherwise; torchrun's own default."""
PORT_MAX = 65_535


class GangOptionError(RankcoreError):
    """An agent or a coordinator was started with something that it cannot be."""


@attrs.frozen
class AgentOptions:
    """What an agent is told.

    Attributes:
        node_id: Where it is; a successor with the same one gets the rank back. Unless told, the name of the host.
        nproc: How many workers it runs; None: it does not say, and nobody sees when agents differ.
        connect_timeout_s: How long it looks for the coordinator.
    """

    node_id: str
    nproc: int | None = None
    connect_timeout_s: float = 60.0


KEYS = tuple(field.name for field in attrs.fields(AgentOptions))


def options_of(config: Mapping[str, object]) -> AgentOptions:
    """The options of `--rdzv-conf`.

    Raises:
        GangOptionError: A key is not known, or a value is not what it has to be.
    """
    unknown = sorted(set(config) - {*KEYS, "timeout"})  # torchrun adds its own default of `timeout`
    if unknown:
        raise GangOptionError(f"--rdzv-conf has {', '.join(unknown)}, expected some of {', '.join(KEYS)}")
    return AgentOptions(
        node_id=str(config.get("node_id") or socket.gethostname()),
        nproc=int(_number(config, "nproc")) if "nproc" in config else None,
        connect_timeout_s=_number(config, "connect_timeout_s") if "connect_timeout_s" in config else 60.0,
    )


def _number(config: Mapping[str, object], key: str) -> float:
    text = str(config[key])
    try:
        value = int(text) if key == "nproc" else float(text)
    except ValueError:
        value = -1
    if not 0 < value < 1e9:
        raise GangOptionError(f"--rdzv-conf {key} must be a positive number, got {text}")
    return value


def sizes_of(text: str) -> tuple[int, int]:
    """MIN and MAX of `--nnodes MIN:MAX`, or `--nnodes N`.

    Raises:
        GangOptionError: It is neither.
    """
    low, _, high = text.partition(":")
    try:
        sizes = int(low), int(high or low)
    except ValueError:
        sizes = 0, 0
    if not 1 <= sizes[0] <= sizes[1]:
        raise GangOptionError(f"--nnodes must be MIN:MAX with 1 <= MIN <= MAX, got {text}")
    return sizes


def store_port_of(port: int, store_port: int | None) -> int:
    """Where the store is, beside a coordinator at this port: where it was said, else at the next one; 0: at any free one.

    Raises:
        GangOptionError: There is no next one, or it is the coordinator's own.
    """
    if store_port is None and port == PORT_MAX:
        raise GangOptionError(f"--port must be below {PORT_MAX} where no --store-port is given, got {port}")
    if store_port is not None and port and store_port == port:
        raise GangOptionError(f"--store-port must be another port than --port, got {store_port} for both")
    return store_port if store_port is not None else port and port + 1
