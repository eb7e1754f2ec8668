"""What user code can ask about the request that it answers. Replica processes import this."""

from contextvars import ContextVar

import attrs


@attrs.frozen
class RequestContext:
    """Of one request.

    Attributes:
        request_id: Names it in logs and errors; "": there is no request.
        multiplexed_model_id: The model that the caller asked for; "": none.
    """

    request_id: str = ""
    multiplexed_model_id: str = ""


_current: ContextVar[tuple[str, str]] = ContextVar("rankcore_request", default=("", ""))
"""Its fields: few calls are asked for the object, and each would have to make one."""


def get_request_context() -> RequestContext:
    """The request that this code answers; an empty one outside of any. Follows tasks and threads that the request starts."""
    return RequestContext(*_current.get())


def current_request_id() -> str:
    """Its id alone."""
    return _current.get()[0]


def get_multiplexed_model_id() -> str:
    """The model that the caller of this request asked for, with `handle.options(multiplexed_model_id=...)`; "": none."""
    return _current.get()[1]


def enter(request_id: str, multiplexed_model_id: str) -> None:
    """Let what this task runs from now on answer this request."""
    _current.set((request_id, multiplexed_model_id))
