"""How long users' code may take to be imported here: who waits is told how long it takes, and it does not take for ever.

The theory. What a module does as it is imported runs in the main thread, and may wait for what never comes: a network, a lock,
another thread. Three things can end that, each where the one before it cannot:

1. An alarm of the kernel. Python runs its handler in the main thread, in the middle of a sleep, a read or a regular expression;
   what it raises is no `Exception`, so that code that tries everything again does not catch it, and modules that are half there
   are forgotten.
2. A thread. Code that catches that too, or hangs in C, gets GRACE_S more; then the process ends, as nothing else can be done.
3. Another one, once the command wants to end: Python waits for threads that the code has started, which hang as it did.
"""

import os
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from executors.loading import LoadError

BAD_INPUT = 2
TELL_EVERY_S = 10.0
GRACE_S = 5.0
NOT_USERS_CODE = ("<frozen", sysconfig.get_path("stdlib"))


class OutOfTime(BaseException):
    """The code has taken too long; the text says where it is."""


@contextmanager
def within(timeout_s: float | None, target: str) -> Iterator[None]:
    """Import it inside, in the main thread; None: without a limit.

    Raises:
        LoadError: It has taken longer; says which import it is, where that hangs, and what to do.
    """
    if timeout_s is None:
        with told(target):
            yield
        return

    def out_of_time(_: int, frame: FrameType | None) -> None:
        raise OutOfTime(_place(frame))

    before = signal.signal(signal.SIGALRM, out_of_time)
    problem = f"{target} is not imported within {timeout_s:g} s"
    advice = "`--import-timeout SECONDS` gives it more; what takes long belongs into the constructor of a deployment's class"
    try:
        with told(target, timeout_s, f"{problem}; {advice}"):
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    except OutOfTime as error:
        threading.Thread(target=_end_with_main_thread, daemon=True).start()
        raise LoadError(f"{problem}: it waits at {error}; {advice}") from None
    finally:
        signal.signal(signal.SIGALRM, before)


@contextmanager
def told(target: str, timeout_s: float | None = None, last_words: str = "") -> Iterator[None]:
    """While what is inside goes on, standard error says so.

    Args:
        timeout_s: The process ends where it goes on GRACE_S after so long; None: it does not.
        last_words: What is said then.
    """
    is_over = threading.Event()
    ends_s = None if timeout_s is None else timeout_s + GRACE_S
    threading.Thread(target=_tell, args=(target, ends_s, last_words, is_over), daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _tell(target: str, ends_s: float | None, last_words: str, is_over: threading.Event) -> None:
    began = time.monotonic()
    passed = 0.0
    while not is_over.wait(TELL_EVERY_S if ends_s is None else min(TELL_EVERY_S, max(0.0, ends_s - passed))):
        passed = time.monotonic() - began
        if ends_s is not None and passed >= ends_s:
            _say(f"rankcore: error: {last_words}")
            os._exit(BAD_INPUT)
        _say(f"importing {target} ... {passed:.0f} s")


def _say(line: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _end_with_main_thread() -> None:
    threading.main_thread().join()
    time.sleep(GRACE_S)
    os._exit(BAD_INPUT)


def _place(frame: FrameType | None) -> str:
    """The line of users' code that is being run; where there is none, whichever is."""
    of_user = frame
    while of_user is not None and of_user.f_code.co_filename.startswith(NOT_USERS_CODE):
        of_user = of_user.f_back
    at = of_user or frame
    return "an unknown place" if at is None else f"{at.f_code.co_filename}:{at.f_lineno}"
