"""The program in docs/residency.md prints what it says; the picture is that of the table, the limits those of the code."""

import re
from pathlib import Path

from rankcore.residency import cover, displacement, reasons
from rankcore.residency.levels import MOVES, Phase, mermaid

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "residency.md").read_text()


def test_the_program_on_the_page_prints_what_it_says(capsys):
    program, printed = re.search(
        r"^```python\n((?:(?!```).*\n)*)^```\n\nprints\n\n```text\n((?:(?!```).*\n)*)^```", PAGE, re.MULTILINE
    ).groups()
    exec(program, {})
    assert capsys.readouterr().out == printed


def test_the_picture_on_the_page_is_the_table():
    drawn = re.search(r"<!-- life:begin -->\n```mermaid\n(.*?)\n```\n<!-- life:end -->", PAGE, re.DOTALL)
    assert drawn[1] == mermaid(), "docs/residency.md is old: paste rankcore.residency.levels.mermaid()"


def test_every_phase_is_reached_and_left():
    assert {before for before, _ in MOVES} == {after for _, after in MOVES} == set(Phase)


def test_the_limits_on_the_page_are_those_of_the_code():
    limits = (displacement.NODES_MAX, displacement.NODES_SEEN_MAX, cover.STEPS_MAX, cover.CHOICES_MAX, reasons.SHOWN_MAX)
    for limit in limits:
        assert f"{limit:,}" in PAGE
