"""What requests may say: bodies and queries, checked before anything else sees them. OpenAPI describes these."""

import asyncio
import json
import re
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from executors.ray_gpu.http.protocol import ACCOUNT
from executors.ray_gpu.rest.options import BODY_MAX_BYTES
from executors.ray_gpu.rest.problems import Problem

T = TypeVar("T")

BODY_S = 30.0
DEPTH_MAX = 40
"""As deep as a file of applications may be."""
_PLACE = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<keys>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`")


class EmptyBody(Struct, forbid_unknown_fields=True):
    """Nothing."""


class ScaleBody(Struct, forbid_unknown_fields=True):
    """Another number of replicas, as Ray Serve has it."""

    target_num_replicas: Annotated[int, Meta(ge=0)]
    stop_first: list[str] = []


class RestartBody(Struct, forbid_unknown_fields=True):
    """Another token than the present one, with which nothing happens; null: the time."""

    token: str | None = None


class PromoteBody(Struct, forbid_unknown_fields=True):
    """How many replicas an update is to reach: a number, or a share such as "25%"."""

    replicas: int | str = "100%"


class RetryBody(Struct, forbid_unknown_fields=True):
    """Whose back-off ends; none: of all."""

    ranks: list[Annotated[int, Meta(ge=0)]] = []


class EvictBody(Struct, forbid_unknown_fields=True):
    """Where weights stay: in the node's memory if there is room (WARM), or on disk alone (COLD)."""

    keep: str = "WARM"


class UpdateBody(Struct, forbid_unknown_fields=True):
    """Options of `@deployment` that can change in place."""

    options: dict[str, Any]


class DrainBody(Struct, forbid_unknown_fields=True):
    """Within which time everybody leaves a node; null: there is time."""

    deadline_s: float | None = None
    reason: str = "drain"


class ReplicasBody(Struct, forbid_unknown_fields=True):
    """Replicas by their ids."""

    replica_ids: Annotated[list[str], Meta(min_length=1)]


class ReplaceBody(Struct, forbid_unknown_fields=True):
    """Replicas by their ids, and within which time none of them is there any more; null: there is time."""

    replica_ids: Annotated[list[str], Meta(min_length=1)]
    deadline_s: float | None = None


class NoQuery(Struct, forbid_unknown_fields=True):
    """Nothing."""


class ServeQuery(Struct, forbid_unknown_fields=True):
    """Whose applications: all, those of a config ("declarative"), or those that `run` has deployed ("imperative")."""

    api_type: str | None = None


class ChangeQuery(Struct, forbid_unknown_fields=True):
    """Whether applications that a config does not name go, and whether deployments of other classes may be replaced."""

    prune: bool = True
    replace: bool = False


class RanksQuery(Struct, forbid_unknown_fields=True):
    """Only of this application, or of this deployment of it."""

    application: str | None = None
    deployment: str | None = None


class DefragmentationQuery(Struct, forbid_unknown_fields=True):
    """Of which deployment; none: the largest that waits."""

    deployment: str | None = None


class RequestsQuery(Struct, forbid_unknown_fields=True):
    """Only of this application or deployment, of this name, and at least so old."""

    application: str | None = None
    deployment: str | None = None
    request_id: str | None = None
    older_than_s: Annotated[float, Meta(ge=0)] = 0.0


class CancelQuery(Struct, forbid_unknown_fields=True):
    """Those that wait for this application or deployment."""

    waiting_for: str


class JournalQuery(Struct, forbid_unknown_fields=True):
    """From which place on; none: from the beginning of the newest file. And how many lines at most."""

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class NotesQuery(Struct, forbid_unknown_fields=True):
    """From which place on ("start": of the newest file; none: from now on), and of whom, of which kind."""

    after: str | None = None
    deployment: str | None = None
    kind: str | None = None


async def read_body(request: Request) -> bytes:
    """The whole of a JSON body.

    Raises:
        Problem: It is none, or too large.
    """
    if "content-length" not in request.headers and "transfer-encoding" not in request.headers:
        return b""  # as most readers' requests
    kind = request.headers.get("content-type", "")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_MAX_BYTES:
                    raise Problem(413, f"body: expected {BODY_MAX_BYTES} bytes at most", "body")
                account = request.scope.get(ACCOUNT)
                if account is not None and account.overdrawn:
                    raise Problem(
                        503, "body: others have taken the memory that there is for bodies", "body", {"retry-after": "1"}
                    )
    except TimeoutError:
        raise Problem(408, f"body: expected within {BODY_S:g} s", "body") from None
    if body and kind.partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, f"content-type: expected application/json, found {kind!r:.80}", "content-type")
    return bytes(body)


def body_of(raw: bytes, kind: type[T]) -> T:
    """A body as it may be.

    Raises:
        Problem: It is not, or has a key twice, or is nested too deep; names the field.
    """
    raw = raw or b"{}"
    try:
        _check_depth(json.loads(raw, object_pairs_hook=_once))
        return msgspec.json.decode(raw, type=kind)
    except RecursionError:
        raise _TOO_DEEP from None
    except msgspec.ValidationError as error:
        raise _wrong(error, "body") from None
    except ValueError as error:  # of the bytes, of `json` or of msgspec
        raise Problem(422, f"body: expected JSON, found something else: {error!s:.200}", "body") from None


_TOO_DEEP = Problem(422, f"body: expected values nested at most {DEPTH_MAX} deep, found more", "body")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Problem(422, f"body: expected the key {key!r:.80} once, found it again", key)
        found[key] = value
    return found


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_MAX):
        within = [each.values() if isinstance(each, dict) else each for each in level]
        level = [value for values in within for value in values if isinstance(value, dict | list)]
    if level:
        raise _TOO_DEEP


def query_of(request: Request, kind: type[T]) -> T:
    """A query as it may be.

    Raises:
        Problem: It is not; names the parameter.
    """
    given: dict[str, str] = {}
    for key, value in request.query_params.multi_items():
        if key in given:
            raise Problem(422, f"query: expected {key!r:.80} once, found it again", key)
        given[key] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(error, "query") from None


def _wrong(error: Exception, where: str) -> Problem:
    said = _PLACE.fullmatch(str(error))
    assert said is not None, "it matches any text"
    problem, place = said["problem"], (said["keys"] or "").strip(".")
    named = _FIELD.fullmatch(problem)
    field = ".".join(each for each in (place, named[1] if named is not None else "") if each)
    return Problem(422, f"{field or where}: {problem}", field or where)
