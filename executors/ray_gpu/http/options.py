"""What a user can choose about HTTP."""

from typing import Literal, TypeAlias

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.http.access import AccessOptions
from rankcore.checks import is_route_prefix

Location: TypeAlias = Literal["HeadOnly", "EveryNode", "Disabled"]
LOCATIONS: tuple[Location, ...] = ("HeadOnly", "EveryNode", "Disabled")

SECONDS = (
    "request_timeout_s",
    "header_timeout_s",
    "stall_timeout_s",
    "keep_alive_timeout_s",
    "drain_timeout_s",
    "websocket_accept_timeout_s",
)
INTEGERS = (
    ("port", 1, 65535),
    ("max_body_bytes", 0, 2**40),
    ("max_header_bytes", 256, 2**24),
    ("hold_body_bytes", 0, 2**30),
    ("max_buffered_bytes", 2**20, 2**40),
    ("max_open_bodies_per_client", 1, 2**31),
    ("max_connections", 1, 2**31),
)
"""With the least and the most that they may be."""


@attrs.frozen(kw_only=True)
class HttpOptions(AccessOptions):
    """How proxies serve. `AccessOptions` has those of TLS and of the token.

    Attributes:
        host: Address to listen on; "0.0.0.0": all of the node's.
        port: The same on every node.
        location: "HeadOnly": one proxy, on the head node; "EveryNode": one on each; "Disabled": none. None: nobody says, and
            that is on the head node, but for `start`, which begins them on every node.
        request_timeout_s: A request is answered with 504 after so long; None: what the deployment says.
        max_body_bytes: A larger request is answered with 413.
        max_header_bytes: Request line and headers; more is answered with 431.
        header_timeout_s: A connection that has not sent a whole header after so long is closed.
        stall_timeout_s: So long a client may send nothing in the middle of its body (408), or take nothing of its response.
        min_body_bytes_per_s: A body may be waited for as long as `stall_timeout_s`, and a second more for so many bytes of it
            that have come; slower ones are answered with 408. Time in which nobody reads it does not count. 0: any speed.
        hold_body_bytes: A replica is asked once the body is here; of a larger one, once so much of it is, and the rest is
            streamed. 0: at once, however slowly the body comes.
        max_open_bodies_per_client: So many bodies that have not come as a whole a client's address may have; more are
            answered with 429.
        max_buffered_bytes: What bodies and messages of websockets may take of a proxy's memory, all together; beyond it new
            ones are refused, with 503 or a close of 1013.
        max_connections: So many a proxy has open at once; more are answered with 503 and closed.
        websocket_accept_timeout_s: A websocket that is not accepted after so long is refused with 504.
        keep_alive_timeout_s: So long a connection may stay open between two requests.
        drain_timeout_s: So long requests under way may take when a proxy ends in order.
        ssl_keyfile_password: Of the private key; None: it is not encrypted.
        root_path: Where a proxy in front of ours mounts all of it, and takes that away again: applications see it before each
            path, and in ASGI's `root_path`. "": nowhere.
        root_url: What the log line of an application that is ready begins its address with. "": host, port and `root_path`.
        debug: Whether a traceback goes to the client, and not to the log alone.

    Raises:
        InvalidDeploymentError: Names the option, what was found and what is allowed.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    location: Location | None = None
    request_timeout_s: float | None = None
    max_body_bytes: int = 100 * 1024 * 1024
    max_header_bytes: int = 64 * 1024
    header_timeout_s: float = 10.0
    stall_timeout_s: float = 60.0
    min_body_bytes_per_s: float = 500.0
    hold_body_bytes: int = 1024 * 1024
    max_open_bodies_per_client: int = 128
    max_buffered_bytes: int = 256 * 1024 * 1024
    max_connections: int = 20_000
    websocket_accept_timeout_s: float = 30.0
    keep_alive_timeout_s: float = 90.0
    drain_timeout_s: float = 10.0
    ssl_keyfile_password: str | None = attrs.field(default=None, repr=False)
    root_path: str = ""
    root_url: str = ""
    debug: bool = False

    def __attrs_post_init__(self) -> None:
        if type(self.host) is not str or not self.host:
            raise _wrong("host", self.host, "an address, such as '127.0.0.1'")
        if self.location not in (None, *LOCATIONS):
            raise _wrong("location", self.location, "one of " + ", ".join(repr(each) for each in LOCATIONS))
        for name, least, most in INTEGERS:
            if type(getattr(self, name)) is not int or not least <= getattr(self, name) <= most:
                raise _wrong(name, getattr(self, name), f"an integer from {least} to {most}")
        slowest = self.min_body_bytes_per_s
        if type(slowest) not in (int, float) or not 0 <= slowest < float("inf"):
            raise _wrong("min_body_bytes_per_s", slowest, "a number from 0 on")
        if self.root_path != "" and (
            type(self.root_path) is not str or not is_route_prefix(self.root_path) or self.root_path == "/"
        ):
            raise _wrong("root_path", self.root_path, "a path such as '/base', or ''")
        if type(self.root_url) is not str:
            raise _wrong("root_url", self.root_url, "an address such as 'https://example.com', or ''")
        for name in SECONDS:
            value = getattr(self, name)
            if value is None and name == "request_timeout_s":
                continue
            if type(value) not in (int, float) or not 0 < value < float("inf"):
                raise _wrong(name, value, "a number of seconds above 0")
        if type(self.debug) is not bool:
            raise _wrong("debug", self.debug, "True or False")
        self.check_access("http")
        if self.ssl_keyfile_password is not None and (type(self.ssl_keyfile_password) is not str or not self.ssl_keyfile):
            raise InvalidDeploymentError("http option ssl_keyfile_password must be a string, and needs ssl_keyfile beside it")

    @property
    def shown_url(self) -> str:
        """What addresses of applications begin with, as they are shown."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.root_url or f"{'https' if self.ssl_certfile else 'http'}://{host}:{self.port}{self.root_path}"


def checked_prefix(prefix: object) -> str:
    """A route prefix as it is kept: "/", or "/a/b" without a slash at its end.

    Raises:
        InvalidDeploymentError: It is none.
    """
    is_path = type(prefix) is str and prefix.startswith("/")
    kept = "/" + "/".join(part for part in str(prefix).split("/") if part)
    if not is_path or not is_route_prefix(kept):
        raise InvalidDeploymentError(f"route_prefix must be a path such as '/' or '/llm', got {prefix!r:.80}")
    if kept == "/-" or kept.startswith("/-/"):
        raise InvalidDeploymentError(f"route_prefix {prefix!r} is taken: /-/healthz and /-/routes are the proxy's own")
    return kept


def _wrong(name: str, found: object, allowed: str) -> InvalidDeploymentError:
    return InvalidDeploymentError(f"http option {name} must be {allowed}, got {found!r:.80}")
