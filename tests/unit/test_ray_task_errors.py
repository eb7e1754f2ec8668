"""What user code raises is an exception of its class, and a `RayTaskError`, wherever a response is opened."""

import os
import pickle
import traceback

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray.exceptions import RayTaskError

from executors.ray_gpu.errors import DeadlineError
from executors.ray_gpu.requests.packing import pack_error, unpack
from executors.ray_gpu.requests.task_errors import as_task_error


class TooLarge(Exception):
    def __init__(self, size, limit=10):
        super().__init__(f"{size} is more than {limit}")
        self.size, self.limit, self.cause = size, limit, "mine"

    def __reduce__(self):
        return type(self), (self.size, self.limit)


class Terse(ValueError):
    def __str__(self):
        return "terse"


class Final(Exception):
    def __init_subclass__(cls, **_):
        raise TypeError("nobody derives from this")


class Slotted(Exception):
    __slots__ = ("x",)


def missing(path):
    try:
        os.stat(path)
    except OSError as error:
        return error
    return None


def undecodable():
    return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no such byte")


ERRORS = [
    ValueError("not this"),
    KeyError("k"),
    missing("/nowhere/at/all"),
    undecodable(),
    ImportError("no module", name="m", path="/p"),
    AttributeError("no x"),
    ZeroDivisionError(),
    StopAsyncIteration(3),
    TooLarge(12),
    Terse("long"),
    TimeoutError("late"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_it_is_caught_as_both_and_reads_as_what_was_raised(error):
    with pytest.raises(type(error)) as caught:
        unpack(*pack_error(error, "Traceback: there"))
    found = caught.value
    assert isinstance(found, RayTaskError)
    assert (str(found), repr(found), found.args) == (str(error), repr(error), error.args)
    assert type(found).__name__ == type(error).__name__
    for name in ("errno", "strerror", "filename", "reason", "object", "size", "limit"):
        assert getattr(found, name, None) == getattr(error, name, None)
    assert found.traceback_str == "Traceback: there"
    assert "Traceback: there" in "".join(traceback.format_exception(found))


def test_its_cause_is_what_was_raised_unless_that_has_one_of_its_own():
    assert as_task_error(original := ValueError("a"), "").cause is original
    assert as_task_error(TooLarge(12), "").cause == "mine"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_it_goes_on_through_another_replica_that_raises_it_again(error):
    once = as_task_error(error, "there")
    with pytest.raises(RayTaskError) as caught:
        unpack(*pack_error(once, "elsewhere"))
    assert isinstance(caught.value, type(error))
    assert str(pickle.loads(pickle.dumps(once))) == str(error)


@pytest.mark.parametrize("error", [Final("f"), Slotted("s"), DeadlineError("late"), KeyboardInterrupt()], ids=repr)
def test_what_cannot_be_both_stays_what_it_is(error):
    assert as_task_error(error, "there") is error
