"""docs/dispatching.md: its program runs, and it names every promise, status and option that there is."""

import re
from pathlib import Path
from typing import Any

import attrs

from rankcore.dispatching import DispatchPolicy, StatusKind

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "dispatching.md").read_text()


def test_the_program_on_the_page_gives_the_answers_that_it_says():
    [program] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["answers"] == {"first": 200, "second": 200}
    assert len(names["loads"]) == 1
    assert names["told"] == [
        ("first", StatusKind.LOADING),
        ("second", StatusKind.LOADING),
        ("first", StatusKind.READY),
        ("second", StatusKind.READY),
    ]


def test_the_page_names_every_promise_that_the_code_keeps():
    promises = re.findall(r"^\| (D\d+) \|", PAGE, re.MULTILINE)
    assert promises == [f"D{number}" for number in range(1, 13)]
    code = "".join(path.read_text() for path in (ROOT / "rankcore" / "dispatching").rglob("*.py"))
    assert set(re.findall(r"\bD\d+\b", code)) == set(promises)


def test_the_page_names_every_status_and_most_options():
    for kind in StatusKind:
        assert f"`{kind.name}`" in PAGE
    for field in attrs.fields(DispatchPolicy):
        assert field.name in PAGE or field.name == "newest_weight"
