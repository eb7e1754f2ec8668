"""How many tokens an answer says that a call had: as a model server counts them."""

from collections.abc import Iterable, Mapping
from typing import Any

PROMPT = ("prompt_tokens", "input_tokens")
OUTPUT = ("output_tokens", "completion_tokens")
USAGE = "usage"
"""Answers in the form of OpenAI's interface have both under this key."""


def tokens_in(answer: Any) -> tuple[int, int] | None:
    """Of prompt and output; None: it does not say both."""
    said = _field(answer, USAGE)
    said = answer if said is None else said
    prompt, output = _count(said, PROMPT), _count(said, OUTPUT)
    return None if prompt is None or output is None else (prompt, output)


def _count(of: Any, names: Iterable[str]) -> int | None:
    """The first of these that is a number of tokens."""
    found = (_field(of, name) for name in names)
    return next((each for each in found if type(each) is int and each >= 0), None)


def _field(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)
