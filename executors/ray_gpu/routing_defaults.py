"""How a deployment's requests are routed where it does not say it: for who declares one, and for who asks a running one."""

from typing import Any

UNAVAILABLE, TOO_MANY = 503, 429
"""What a request that is turned away is answered with; the first one by default."""
ROUTING_DEFAULTS: dict[str, Any] = {"max_ongoing_requests": 5, "by_credits": True}
"""Where they are not the core's: Ray Serve's limit, and several routers for each replica."""
