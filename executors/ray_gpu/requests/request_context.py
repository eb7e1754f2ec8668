"""What user code can ask about the request that it answers. Replica processes import this."""

from contextvars import ContextVar

import attrs


@attrs.frozen
class RequestContext:
    """Of one request.

    Attributes:
        request_id: Names it in logs and errors; "": the caller gave it none.
        multiplexed_model_id: The model that the caller asked for; "": none.
    """

    request_id: str = ""
    multiplexed_model_id: str = ""


NO_REQUEST = RequestContext()

_current: ContextVar[RequestContext] = ContextVar("rankcore_request", default=NO_REQUEST)


def get_request_context() -> RequestContext:
    """The request that this code answers; an empty one outside of any. Follows tasks and threads that the request starts."""
    return _current.get()


def get_multiplexed_model_id() -> str:
    """The model that the caller of this request asked for, with `handle.options(multiplexed_model_id=...)`; "": none."""
    return _current.get().multiplexed_model_id


def enter(context: RequestContext) -> None:
    """Let what this task runs from now on answer this request."""
    _current.set(context)
