"""Responses as arguments of other calls: a call begins when all that it waits for is there, and blocks nobody until then.

References to objects of Ray are sent as they are; the replica waits for them, and the method gets the objects.
"""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import ray

from executors.ray_gpu.errors import CallCancelledError
from executors.ray_gpu.requests.call import Answer, Call, Submits
from executors.ray_gpu.requests.frames import LARGE
from executors.ray_gpu.requests.packing import Arguments, Reference
from executors.ray_gpu.requests.response import DeploymentResponse, open_answer

NOT_YET = (DeploymentResponse, ray.ObjectRef)
"""What stands for a value that may not be there yet."""


def submit(call: Call, arguments: Arguments, router: Submits) -> None:
    """Begin a call, at once or when the responses among its arguments are there; one that fails fails this call too."""
    args, kwargs = arguments
    if not any(isinstance(each, NOT_YET) for each in (*args, *kwargs.values())):
        call.pack(arguments)
        router.submit(call)
        return
    _Waiting(call, arguments, router)


class _Waiting:
    """A call whose arguments are not all there yet."""

    def __init__(self, call: Call, arguments: Arguments, router: Submits) -> None:
        self._call = call
        self._arguments = arguments
        self._router = router
        self._lock = threading.Lock()
        args, kwargs = arguments
        responses = [each for each in (*args, *kwargs.values()) if isinstance(each, DeploymentResponse)]
        self._missing = len(responses)
        if not responses:
            self._begin()
        for response in responses:
            response.call.answer.add_done_callback(self._come)

    def _come(self, _: "Future[Answer]") -> None:
        with self._lock:
            self._missing -= 1
            if self._missing:
                return
        # Unpacking and packing may be much work: not on the routers' thread, where answers come in.
        _workers().submit(self._begin)

    def _begin(self) -> None:
        args, kwargs = self._arguments
        self._arguments = (), {}  # their answers hold this, as whom they tell
        try:
            there = tuple(_result(each) for each in args), {key: _result(each) for key, each in kwargs.items()}
            self._call.pack(there)
        except Exception as error:
            self._call.fail(error)
            return
        self._router.submit(self._call)


def _result(value: Any) -> Any:
    if isinstance(value, ray.ObjectRef):
        return Reference(value)
    if not isinstance(value, DeploymentResponse):
        return value
    if value.call.given_up:
        raise CallCancelledError("a call whose response is an argument of this one was cancelled")
    answer = value.call.answer.result(0)
    return Reference(answer.payload.reference) if answer.kind == LARGE else open_answer(answer)


_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _workers() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="composition")
        return _pool
