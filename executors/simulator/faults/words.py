"""Faults and changes in words, whatever the kind of run: a list of forms is read, and names are looked up in the world."""

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from executors.simulator.fields import FieldProblem
from executors.simulator.scenario.faults import ControllerCrash, Fault, NodeLoss
from executors.simulator.scenario.model import Change
from executors.simulator.scenario.moments import Moment
from executors.simulator.times import moment, parse_seconds

PREFIX_MIN = 4
"""So much of a node's name stands for all of it, where no other begins so."""

LASTS = r"(?: for (?P<for>[0-9][\w.:]*))?"
"""The end of a form that may say how long."""

Happens: TypeAlias = Fault | Change
Words: TypeAlias = dict[str, str]
Forms: TypeAlias = tuple[tuple[str, str, Callable[[Moment, Words], Happens]], ...]
"""What can be said, how it is read, and what is made of it."""

_AT = re.compile(r"(?P<what>.*?) at (?P<at>(?:[0-9]+d )?[0-9][\w.:]*)")


class FaultWordsError(ValueError):
    """Words that say no fault, or one of what the world does not have; says what was expected and found."""


def lasts(words: Words) -> float | None:
    """For how many seconds, where the words say so."""
    return parse_seconds(words["for"]) if words.get("for") else None


def _changed(field: str, value: Callable[[str], Any]) -> Callable[[Moment, Words], Change]:
    return lambda at, words: Change(at=at, deployment=words["of"], fields={field: value(words["to"])})


NODE_LOST: Forms = (
    (
        "node N lost [for TIME]",
        rf"node (?P<node>\S+) (?:is )?lost{LASTS}",
        lambda at, words: NodeLoss(at=at, node=words["node"], back_after_s=lasts(words)),
    ),
)
CONTROLLER_CRASHES: Forms = (
    (
        "controller crashes for TIME",
        r"(?:the )?controller crashes for (?P<for>\S+)",
        lambda at, words: ControllerCrash(at=at, restart_after_s=parse_seconds(words["for"])),
    ),
)
CHANGES: Forms = (
    ("NAME scaled to 4", r"(?P<of>\S+) (?:is )?scaled to (?P<to>[0-9]{1,9})", _changed("target_replicas", int)),
    ("NAME updated to VERSION", r"(?P<of>\S+) (?:is )?updated to (?P<to>\S+)", _changed("version", str)),
    ("NAME deleted", r"(?P<of>\S+) (?:is )?deleted", lambda at, words: Change(at=at, deployment=words["of"], delete=True)),
)


def read_words(forms: Forms, text: str, at: float) -> Happens:
    """Read a fault or change; `at` is when it comes, unless its words end in `at TIME`, which is later.

    Raises:
        FaultWordsError: The words say none.
    """
    words = " ".join(text.split())
    try:
        timed = _AT.fullmatch(words)
        when = parse_seconds(timed["at"]) if timed is not None else at
        if when < at:
            raise ValueError(f"expected a time from {moment(at, None)} on, when the fork begins, found {moment(when, None)}")
        for _, pattern, make in forms:
            match = re.fullmatch(pattern, timed["what"] if timed is not None else words, re.IGNORECASE)
            if match is not None:
                found = {key: value for key, value in match.groupdict().items() if value is not None}
                if "of_any" in found:
                    found["of"] = found.pop("of_any")
                return make(Moment(offset_s=when), found)
    except FieldProblem as problem:
        raise FaultWordsError(f"{text!r}: {problem}") from None
    except ValueError as error:
        raise FaultWordsError(f"{text!r}: {error}") from None
    raise FaultWordsError(f"{text!r}: expected one of: {'; '.join(form for form, _, _ in forms)}; each may end in: at TIME")


def whole(found: str, names: Iterable[str]) -> str:
    """The name that begins so, if only one does: executors have names that nobody types to their end."""
    meant = [name for name in names if name.startswith(found)]
    return meant[0] if len(meant) == 1 and len(found) >= PREFIX_MIN else found


def check_known(text: str, what: str, found: str, known: Iterable[str]) -> None:
    """Raise `FaultWordsError` for a name that the world does not have."""
    names = list(known)
    if found in names:
        return
    near = difflib.get_close_matches(found, names, n=1, cutoff=0.5)
    shown = ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    meant = f" (did you mean {near[0]}?)" if near else ""
    raise FaultWordsError(f"{text!r}: expected a {what}: {shown or 'there is none'}, found {found}{meant}")
