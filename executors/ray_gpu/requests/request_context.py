"""What user code can ask about the request that it answers. Replica processes import this."""

from contextvars import ContextVar

import attrs

from executors.ray_gpu.requests.request_ids import written


@attrs.frozen
class RequestContext:
    """Of one request.

    Attributes:
        request_id: Names it in logs and errors; "": there is no request.
        multiplexed_model_id: The model that the caller asked for; "": none.
    """

    request_id: str = ""
    multiplexed_model_id: str = ""


_current: ContextVar[tuple[str, str, int]] = ContextVar("rankcore_request", default=("", "", 0))
"""Its fields, and the number that belongs to the id, where that is not written yet: few calls are asked for any of it."""


def get_request_context() -> RequestContext:
    """The request that this code answers; an empty one outside of any. It follows tasks, and `asyncio.to_thread`."""
    return RequestContext(current_request_id(), _current.get()[1])


def current_request_id() -> str:
    """Its id alone."""
    text, _, number = _current.get()
    return written(text, number) if number else text


def get_multiplexed_model_id() -> str:
    """The model that the caller of this request asked for, with `handle.options(multiplexed_model_id=...)`; "": none."""
    return _current.get()[1]


def enter(request_id: str, multiplexed_model_id: str, number: int = 0) -> None:
    """Let what this task runs from now on answer this request.

    Args:
        number: What its id ends with, if `request_id` is what that begins with; 0: `request_id` is all of it.
    """
    _current.set((request_id, multiplexed_model_id, number))
