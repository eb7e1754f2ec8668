"""How the requests of one deployment are routed: `RoutingSpec`, checked when it is made and never changed."""

from typing import Any, Literal, TypeAlias

import attrs

from rankcore import checks
from rankcore.codec_plans import since
from rankcore.errors import InvalidSpecError

Policy: TypeAlias = Literal["least_loaded", "shared_queue", "round_robin", "power_of_two", "affinity"]

POLICIES: tuple[Policy, ...] = ("least_loaded", "shared_queue", "round_robin", "power_of_two", "affinity")
ONGOING_MAX = 100_000
"""Requests that one replica may have in flight; each level of load has a line of replicas."""
LOAD_FACTOR_MAX = 1_000.0


@attrs.frozen(kw_only=True)
class RoutingSpec:
    """How the requests of one deployment are routed.

    Attributes:
        name: Of the deployment.
        max_ongoing_requests: How many requests a replica has in flight at most, 1 to 100,000 (Q2).
        max_queued_requests: How many may wait in this router; what comes beyond is rejected with 503.
        policy: Who gets a request that is for no particular rank, among the replicas that have room:
            "least_loaded", the one with fewest in flight, of equals the one that is so for longest;
            "shared_queue", the one that has had room for longest, so that whoever is idle takes the next;
            "round_robin", one after the other;
            "power_of_two", the less loaded of two that are drawn, from `seed`;
            "affinity", requests of one key who has it ready, where anybody has said so, else one by consistent hashing with
            bounded load, those without a key "least_loaded".
        idempotent: Whether a request may be done twice: what was lost together with its replica is retried only then (Q6).
        max_retries: How often one request is retried because it was lost, before it fails. Refusals do not count.
        request_timeout_s: The deadline of requests that bring none, in seconds after their arrival; None: no deadline.
        retry_after_s: The least Retry-After of a rejected request.
        refusal_backoff_s: For how long a replica that has refused a request is left alone, unless news of it comes.
        load_factor: With "affinity": how many times the average load a replica may have before its keys spill over, above 1.
        by_credits: False: this router is the only one, and may fill each routed replica. True: it has in flight what
            `CreditsGranted` allows, which the replica decides; none at first.
        seed: For "power_of_two".
        router: A user's code names those who may have a request, in the place of the policy: whose code, in words of whoever
            runs it, which the core does not look into; empty: there is none. See `rankcore.routing.proposals`.

    Raises:
        InvalidSpecError: Names the field, what was found and what is allowed.
    """

    __stored__ = True

    name: str
    max_ongoing_requests: int = 8
    max_queued_requests: int = 1_000_000
    policy: Policy = "least_loaded"
    idempotent: bool = False
    max_retries: int = 3
    request_timeout_s: float | None = None
    retry_after_s: float = 1.0
    refusal_backoff_s: float = 0.1
    load_factor: float = 1.25
    by_credits: bool = False
    seed: int = 0
    router: str = attrs.field(default="", metadata=since(5, 4))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in attrs.fields(RoutingSpec)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What a release of before has pickled lacks what came later, which is at its default."""
        for field in attrs.fields(RoutingSpec):
            object.__setattr__(self, field.name, state.get(field.name, field.default))

    def __attrs_post_init__(self) -> None:
        checks.identifier(InvalidSpecError, _path("name"), self.name)
        checks.count(InvalidSpecError, _path("max_ongoing_requests"), self.max_ongoing_requests, 1, ONGOING_MAX)
        for field in ("max_queued_requests", "max_retries"):
            checks.count(InvalidSpecError, _path(field), getattr(self, field), 0)
        checks.count(InvalidSpecError, _path("seed"), self.seed, 0, checks.REVISION_MAX)
        checks.text(InvalidSpecError, _path("router"), self.router)
        if self.policy not in POLICIES:
            raise InvalidSpecError(_path("policy"), self.policy, "one of " + ", ".join(repr(each) for each in POLICIES))
        for field in ("idempotent", "by_credits"):
            checks.flag(InvalidSpecError, _path(field), getattr(self, field))
        for field in ("retry_after_s", "refusal_backoff_s"):
            checks.seconds(InvalidSpecError, _path(field), getattr(self, field), above=0.0)
        if self.request_timeout_s is not None:
            checks.seconds(InvalidSpecError, _path("request_timeout_s"), self.request_timeout_s, above=0.0)
        factor: object = self.load_factor
        if type(factor) not in (int, float) or not 1.0 < self.load_factor <= LOAD_FACTOR_MAX:
            raise InvalidSpecError(_path("load_factor"), factor, f"a number above 1, and at most {LOAD_FACTOR_MAX:g}")


def _path(field: str) -> str:
    return f"RoutingSpec.{field}"
