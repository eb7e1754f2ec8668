"""docs/promises.md has every promise once, with its rule and its tests; every section and heading that is cited exists."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = ROOT / "docs" / "make_promises.py"
MODULE = runpy.run_path(str(MAKE))


def test_the_page_is_current():
    checked = subprocess.run([sys.executable, MAKE, "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


BEING_BUILT = ("P", "T", "V", "W")
"""Their numbers are those of a design of which some steps are still to come."""


def test_no_number_is_skipped_and_none_used_twice():
    numbers = {}
    for each in MODULE["promises"]():
        numbers.setdefault(each.letter, []).append(each.number)
    assert {"R", "S", "A", "Q", "C", "T", "D"} <= numbers.keys()
    for letter, found in numbers.items():
        if letter in BEING_BUILT:
            assert found == sorted(set(found)), letter
        else:
            assert found == list(range(1, len(found) + 1)), letter


def test_every_mutant_breaks_a_promise_or_a_section_that_exists():
    from mutants.catalogue import ALL, MODELS

    known = {each.name for each in MODULE["promises"]()} | MODULE["sections"]()
    assert {each.name: each.rule for each in (*ALL.values(), *MODELS.values()) if each.rule not in known} == {}


def test_every_section_that_is_cited_exists():
    cited = list(MODULE["cited_sections"]())
    assert len(cited) > 50, "citations are found"
    existing = MODULE["sections"]()
    assert {(path, section) for path, section in cited if section not in existing} == set()


PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_to_headings_that_exist(path):
    for target in re.findall(r"\]\(((?:[\w./-]+\.md)?#[\w-]+|[\w./-]+)\)", path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        page = path.parent / file if file else path
        assert page.exists(), target
        if anchor and page.suffix == ".md":
            assert anchor in _anchors(page), target


def _anchors(page):
    """What a heading is called in a link: small letters, words joined by hyphens, everything else left out."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {*re.findall(r'<a name="([\w-]+)">', text)} | {
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }
