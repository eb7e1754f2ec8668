"""Who may ask: comes before everything else, so that nothing of a request that may not be is read.

With a token: whoever has it. Without one the server listens on this machine alone, and any program here may ask, but no page
in a browser of this machine: a page of another site is known by its `Origin` or by `Sec-Fetch-Site`, which browsers send also
where there is no `Origin`, and a name that somebody else's DNS brings here by its `Host`.
"""

from typing import Any

from executors.ray_gpu.http.access import is_let_in, is_loopback
from executors.ray_gpu.rest.problems import Problem

HEALTH = "/-/healthz"
PAGES = ("/", "/dashboard")
"""The live page: it has nothing of the cluster in it, and asks for the token itself."""
OWN_SITES = ("none", "same-origin")
"""What browsers say of a request that no page has made, and of one of this server's own."""
UNAUTHENTICATED = Problem(
    401, "authorization: expected 'Bearer TOKEN' with this server's token", "authorization", {"www-authenticate": "Bearer"}
)


def refused(scope: Any, token: str | None) -> Problem | None:
    """Why a request is not let in; None: it is."""
    said = [value for key, value in scope["headers"] if key == b"authorization"]
    if token is not None:
        is_open = scope["path"] in (HEALTH, *PAGES) and scope["method"] == "GET"
        return None if is_open or (len(said) == 1 and is_let_in(token, said[0])) else UNAUTHENTICATED
    headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
    host = headers.get(b"host", "localhost").lower()
    if not is_loopback(_name_of(host)):
        return Problem(403, f"host: expected this machine's own name, such as localhost, found {host!r:.80}", "host")
    origin = headers.get(b"origin")
    if origin is not None and origin.lower().partition("://")[2] != host:
        return Problem(403, f"origin: expected none, or this server's own, found {origin!r:.80}", "origin")
    site = headers.get(b"sec-fetch-site", "none")
    if site not in OWN_SITES:
        return Problem(403, f"sec-fetch-site: expected {' or '.join(OWN_SITES)}, found {site!r:.80}", "sec-fetch-site")
    return None


def _name_of(host: str) -> str:
    """Without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
