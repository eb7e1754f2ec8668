"""What a user can choose about the REST server."""

import json
from collections.abc import Mapping
from typing import Any

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.http.access import AccessOptions, is_loopback
from executors.ray_gpu.http.options import HttpOptions

PORT = 8280
BODY_MAX_BYTES = 4 * 1024 * 1024
CONNECTIONS_MAX = 1000
END_S = 1.0
STALL_S = 30.0
"""So long a client may take nothing of its answer, such as a stream of notes; then it is cut off."""


@attrs.frozen(kw_only=True)
class RestOptions(AccessOptions):
    """Where it listens, and who may ask. `AccessOptions` has those of TLS and of the token.

    Attributes:
        host: Address to listen on, of the node that has the controller; "0.0.0.0": all of that node's.
        port: Likewise.

    Raises:
        InvalidDeploymentError: Names the option, what was found and what is allowed; or others than this machine could ask
            without a token.
    """

    host: str = "127.0.0.1"
    port: int = PORT

    def __attrs_post_init__(self) -> None:
        if type(self.host) is not str or not self.host:
            raise InvalidDeploymentError(f"rest option host must be an address, such as '127.0.0.1', got {self.host!r:.80}")
        if type(self.port) is not int or not 1 <= self.port <= 65535:
            raise InvalidDeploymentError(f"rest option port must be an integer from 1 to 65535, got {self.port!r:.80}")
        self.check_access("rest")
        if self.bearer_token is None and not is_loopback(self.host):
            raise InvalidDeploymentError(
                f"rest option host {self.host!r} lets others than this machine change all that runs: give a bearer_token "
                "(rankcore rest --token-file FILE), or listen on '127.0.0.1'"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "RestOptions":
        """From a dict of its fields.

        Raises:
            InvalidDeploymentError: There is no such field, or it is not what it may be.
        """
        known = [field.name for field in attrs.fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidDeploymentError(f"RestOptions: no option {name!r:.80}; the options are: {', '.join(known)}")
        return cls(**given)

    @property
    def http(self) -> HttpOptions:
        """For the server of proxies, with its limits for what clients may do."""
        return HttpOptions(
            **{name: getattr(self, name) for name in (*attrs.fields_dict(AccessOptions), "host", "port")},
            max_body_bytes=BODY_MAX_BYTES,
            max_connections=CONNECTIONS_MAX,
            drain_timeout_s=END_S,
            stall_timeout_s=STALL_S,
        )

    def to_json(self) -> str:
        """For the actor; has the token."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def of_json(cls, text: str) -> "RestOptions":
        """What `to_json` made of them."""
        return cls(**json.loads(text))
