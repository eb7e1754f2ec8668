"""Who may ask a proxy: TLS and a bearer token, as options of HTTP and of gRPC, and what is said where there is neither.

A token is compared in constant time: how long that takes does not say how much of a wrong one was right. It is in no `repr`,
message or status; it is in the options that the cluster's storage keeps, for the next controller.
"""

import hmac
from ipaddress import ip_address

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError

TOKEN_MIN = 16
SECRETS = ("bearer_token", "ssl_keyfile_password")
"""Options, also of HTTP alone, that nothing prints."""
KEPT = "(kept)"
"""What stands for a secret in the place of itself: the one that is in force. No token is so short."""


@attrs.frozen(kw_only=True)
class AccessOptions:
    """What HTTP and gRPC have in common.

    Attributes:
        ssl_certfile, ssl_keyfile: Certificate chain and private key, as PEM files on every node that has a proxy; both or
            neither. With them nothing is served without TLS.
        ssl_ca_certs: Clients have to show a certificate that one of these has signed; None: no certificate is asked for.
        bearer_token: Requests have to have it, as `authorization: Bearer ...`; None: all are let in.
    """

    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_ca_certs: str | None = None
    bearer_token: str | None = attrs.field(default=None, repr=False)

    def check_access(self, protocol: str) -> None:
        """Check what is chosen here.

        Raises:
            InvalidDeploymentError: Names the option; never shows a secret.
        """
        for name in ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs"):
            path = getattr(self, name)
            if path is not None and (type(path) is not str or not path):
                raise InvalidDeploymentError(f"{protocol} option {name} must be the path of a file, got {path!r:.80}")
        given = [name for name in ("ssl_certfile", "ssl_keyfile") if getattr(self, name) is not None]
        if len(given) == 1:
            raise InvalidDeploymentError(f"{protocol} options ssl_certfile and ssl_keyfile go together, got {given[0]} alone")
        if self.ssl_ca_certs is not None and not given:
            raise InvalidDeploymentError(f"{protocol} option ssl_ca_certs needs ssl_certfile and ssl_keyfile beside it")
        token = self.bearer_token
        if token is not None and not (type(token) is str and len(token) >= TOKEN_MIN and is_plain(token)):
            found = f"one of {len(token)}" if type(token) is str else f"a {type(token).__name__}"
            allowed = f"a string of {TOKEN_MIN} or more ASCII characters without blanks"
            raise InvalidDeploymentError(f"{protocol} option bearer_token must be {allowed}, got {found}")

    def open_door(self, protocol: str, host: str, port: int) -> str:
        """What to warn of, in one line; "": only this machine can connect, or there is TLS, and what tells clients apart."""
        tells_apart = self.bearer_token is not None or self.ssl_ca_certs is not None
        missing = [what for what, there in (("TLS", self.ssl_certfile), ("a bearer token", tells_apart)) if not there]
        if not missing or is_loopback(host):
            return ""
        without = " and without ".join(missing)
        return f"{protocol} listens on {host}:{port} without {without}: whoever reaches it can use it, or read what it says"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to this address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_let_in(token: str, authorization: str | bytes) -> bool:
    """Whether what a client sends as `authorization` has this token; it takes as long, whatever of it is right."""
    said = authorization if isinstance(authorization, bytes) else authorization.encode("latin-1", "replace")
    scheme, _, found = said.partition(b" ")
    return hmac.compare_digest(found.strip(), token.encode()) and scheme.lower() == b"bearer"


def is_plain(token: str) -> bool:
    """Whether a token can stand in a header."""
    return token.isascii() and token.isprintable() and " " not in token
