"""Which rows of a file count, by what stands in their columns: `where: {column: x, or [x, y], or {min, max}, or {not: x}}`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from executors.simulator.fields import FieldProblem, is_number, shown
from executors.simulator.load.csvfile import plain_float

Test = Callable[[str], bool]

RANGE = ("min", "max")


def check_where(where: object) -> None:
    """Raise `FieldProblem` for what is no such mapping."""
    tests_of(where)


def tests_of(where: object) -> dict[str, Test]:
    """What the cell of each column has to pass.

    Raises:
        FieldProblem: It is no mapping of columns to what these may have.
    """
    if not isinstance(where, Mapping):
        raise FieldProblem(("where",), where, "a mapping of columns to texts")
    return {column: _test(("where", column), wanted) for column, wanted in where.items()}


def such(where: Mapping[str, Any]) -> str:
    """In words, for an error."""
    return "".join(f" with {column} = {shown(wanted)}" for column, wanted in where.items())


def _test(keys: tuple[str, ...], wanted: object) -> Test:
    if isinstance(wanted, list) and wanted:
        tests = [_equals(keys, each) for each in wanted]
        return lambda cell: any(test(cell) for test in tests)
    if isinstance(wanted, Mapping) and list(wanted) == ["not"]:
        test = _test((*keys, "not"), wanted["not"])
        return lambda cell: not test(cell)
    if isinstance(wanted, Mapping) and wanted and set(wanted) <= set(RANGE) and all(map(is_number, wanted.values())):
        least, most = wanted.get("min", -math.inf), wanted.get("max", math.inf)
        return lambda cell: bool(least <= plain_float(cell) <= most)
    return _equals(keys, wanted)


def _equals(keys: tuple[str, ...], wanted: object) -> Test:
    if not isinstance(wanted, bool) and isinstance(wanted, (int, float)) and is_number(wanted):
        return lambda cell: plain_float(cell) == wanted
    if not isinstance(wanted, str):
        raise FieldProblem(keys, wanted, "the text of a cell, a list of texts, {min: number, max: number} or {not: text}")
    text = wanted.strip()
    return lambda cell: cell.strip() == text
