"""Plain scalars as YAML 1.2 reads them: `1e-4` is a number, `no` and `2024-01-01` are texts.

What programs disagree about (leading zeros), or cannot hold (numbers without bound), is refused instead of guessed.
"""

import re
from typing import Any

from executors.simulator.fields import shown

INTEGER_MAX = 2**63 - 1
DIGITS_SHOWN_MAX = 40

_INTEGER = re.compile(r"[-+]?[0-9]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE = float("inf")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), _INFINITE),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -_INFINITE),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


class ScalarProblem(ValueError):
    """A scalar is not read; the text says what was found and what is allowed."""


def scalar(text: str) -> Any:
    """The value of a plain scalar.

    Raises:
        ScalarProblem: It looks like a number, and which one is in doubt.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _LEADING_ZERO.fullmatch(text):
        raise _problem("a number without leading zeros, which some programs read as octal, or a text in quotes", text)
    if _INTEGER.fullmatch(text):
        if len(text) > len(str(INTEGER_MAX)) + 1 or abs(int(text)) > INTEGER_MAX:
            raise _problem("an integer of at most 64 bits", text)
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if abs(number) == _INFINITE:
            raise _problem("a number of at most 1.7e308", text)
        return number
    return text


def _problem(allowed: str, text: str) -> ScalarProblem:
    found = shown(text)[1:-1] if len(text) <= DIGITS_SHOWN_MAX else f"{text[:20]}... with {len(text)} digits"
    return ScalarProblem(f"expected {allowed}, found {found}")
