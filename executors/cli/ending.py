"""How the command ends: quietly when nobody reads on, in one line when the disk is full, cleanly when it is told to stop."""

import os
import signal
import sys
from collections.abc import Callable
from typing import TextIO

BAD_INPUT = 2
BROKEN_PIPE = 128 + signal.SIGPIPE
STOPPING = (signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """Somebody asks this process to end. Like Ctrl-C, so that everything which cleans up after that does so now."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_status_of(command: Callable[[], None]) -> int:
    """Run the command to its end, whatever that is, and say with which status the process should exit.

    A command whose output is read only in part (`| head`) ends as other programs do: quietly, with the status of SIGPIPE.
    One that is stopped by a signal has the status of that signal, and one whose last output cannot be written has 2.
    """
    stopped_by = _listen()
    try:
        command()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.__context__, BrokenPipeError):  # click was here first, and makes a failure of it
            status = BROKEN_PIPE
    except BrokenPipeError:
        status = BROKEN_PIPE
    except OSError as error:
        _say(f"rankcore: error: {error.filename or 'the output'} cannot be used: {error.strerror or error}")
        status = BAD_INPUT
    except KeyboardInterrupt:
        _say("rankcore: interrupted")
        status = 128 + signal.SIGINT
    flushed = [_flush(stream) for stream in (sys.stdout, sys.stderr)]
    if stopped_by:
        return 128 + stopped_by[0]
    return status or next((bad for bad in flushed if bad), 0)


def _listen() -> list[int]:
    """Turn the signals that ask for an end into an exception; returns which of them came, once one has."""
    came: list[int] = []
    owner = os.getpid()

    def stop(number: int, _: object) -> None:
        if os.getpid() != owner:  # a worker that was forked from this process: it has nothing to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        for each in STOPPING:
            signal.signal(each, signal.SIG_IGN)  # once is enough: cleaning up should not be disturbed
        came.append(number)
        raise Stopped(number)

    for number in STOPPING:
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup, SIGHUP is ignored and stays so
            signal.signal(number, stop)
    return came


def _flush(stream: TextIO | None) -> int:
    """Write out what waits, so that the interpreter does not fail at it when it is too late to say so."""
    try:
        if stream is not None:
            stream.flush()
    except BrokenPipeError:
        _silence(stream)
        return BROKEN_PIPE
    except OSError as error:
        _silence(stream)
        _say(f"rankcore: error: the output cannot be written: {error.strerror or error}")
        return BAD_INPUT
    except ValueError:  # closed already
        return 0
    return 0


def _silence(stream: TextIO | None) -> None:
    if stream is None:
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _say(text: str) -> None:
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # closed: there is nobody to tell
        pass
