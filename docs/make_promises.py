"""Write docs/promises.md: every promise, with its sentence, its rule, its checks, its tests and its mutants.

python docs/make_promises.py           write the page
python docs/make_promises.py --check   say whether it is current (exit status 1 if not)

A promise is a row `| R6 | sentence | ...` of a table in docs/. Everything else is found where the promise is named: the rule in
the modules of rankcore/ (of W: of executors/), the checks in its invariants and checkers, the tests in tests/, the mutants in
mutants/catalogue/.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("promises.md")
sys.path.insert(0, str(ROOT))

ROW = re.compile(r"^\| ([A-Z]{1,2})(\d+) \| ([^|]*) \|(.*)$", re.MULTILINE)
NAME = re.compile(r"\b[A-Z]{1,2}\d+\b")
CHECKS = ("invariants", "testing")
"""Folders and modules of rankcore/ that check promises and do not keep them."""
SHOWN = 4
"""Files that are named in a cell; the others are counted."""

GROUPS = {
    "R": ("Ranks of replicas", "rankcore/"),
    "S": ("Static placement on the bundles of a placement group that is owned elsewhere", "rankcore/"),
    "A": ("Autoscaling", "rankcore/autoscaling/"),
    "Q": ("Requests", "rankcore/routing/"),
    "C": ("Credits: limits that several routers share", "rankcore/routing/"),
    "T": ("Weights on GPUs, in CPU memory and on disk", "rankcore/residency/"),
    "D": ("Those who call weights that may be COLD", "rankcore/"),
    "P": ("One plane for applications and deployments", "rankcore/cluster/"),
    "V": ("Availability", "rankcore/"),
    "W": ("What the simulator answers", "executors/"),
    "TR": ("Gangs of agents that meet in rounds", "rankcore/gang/"),
}
"""Of each letter: what it is about, and the folder from which its table names modules."""

TEXT = """\
# Promises

Every promise of rankcore on one page: {count} of them. Written by `make docs` from the tables of the pages that are linked; a
test checks that it is current, that no letter and number is used twice, and that each promise has a rule and a test.

- **rule**: the modules of `rankcore/` (of W: of `executors/`) that keep it: those that its table names, then those that name it
  themselves.
- **checked by**: the invariants and checkers that look at it after every step, in tests, the simulator and `rankcore check`.
- **tests**: the files that name it, those first that name it most.
- **mutants**: the bugs planted in its rule; which layer of tests catches each stands in
  [verification.md](verification.md#mutants-would-the-tests-notice).

{groups}
"""


class Promise(NamedTuple):
    """One row of a table of promises."""

    letter: str
    number: int
    sentence: str
    rules: tuple[str, ...]
    page: Path

    @property
    def name(self) -> str:
        """Such as R6."""
        return f"{self.letter}{self.number}"


def promises() -> list[Promise]:
    """All of them, in the order of `GROUPS`.

    Raises:
        AssertionError: One is defined twice, or has a letter that no group explains.
    """
    found: dict[str, Promise] = {}
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page == PAGE:
            continue
        for letter, number, sentence, rest in ROW.findall(page.read_text(encoding="utf-8")):
            assert letter in GROUPS, f"{page.name}: {letter}{number} is of no group in {Path(__file__).name}"
            rules = tuple(f"{GROUPS[letter][1]}{module}" for module in re.findall(r"`([\w/]+\.py)`", rest))
            for rule in rules:
                assert (ROOT / rule).exists(), f"{page.name}: {letter}{number} names {rule}, which is not there"
            promise = Promise(letter, int(number), sentence.strip(), rules, page)
            other = found.setdefault(promise.name, promise)
            assert other is promise, f"{promise.name} is promised twice: in {other.page.name} and in {page.name}"
    order = list(GROUPS)
    return sorted(found.values(), key=lambda each: (order.index(each.letter), each.number))


class Sources:
    """The files that may name a promise, read once."""

    def __init__(self) -> None:
        self._named = {
            path.relative_to(ROOT).as_posix(): Counter(NAME.findall(path.read_text(encoding="utf-8")))
            for folder in ("rankcore", "executors", "tests")
            for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in (".py", ".txt")
        }

    def naming(self, promise: str, under: str, *, checks: bool | None = None) -> list[str]:
        """Paths that name it, the most often first."""
        counts = {path: named[promise] for path, named in self._named.items() if path.startswith(under)}
        kept = [path for path, count in counts.items() if count and (checks is None or _is_check(path) == checks)]
        return sorted(kept, key=lambda path: (-counts[path], path))


def _is_check(path: str) -> bool:
    return any(Path(part).stem in CHECKS for part in path.split("/"))


def render() -> str:
    """The page."""
    from mutants.groups import EVERY

    sources, found = Sources(), promises()
    planted: dict[str, list[str]] = {}
    for mutant in EVERY.values():
        planted.setdefault(mutant.rule, []).append(mutant.name)
    groups = []
    for letter, (title, folder) in GROUPS.items():
        package = folder[: folder.index("/") + 1]
        of_group = [each for each in found if each.letter == letter]
        if not of_group:
            continue
        pages = ", ".join(dict.fromkeys(f"[{each.page.name}]({each.page.name})" for each in of_group))
        rows = [f"## {letter}: {title}", "", f"From {pages}.", ""]
        rows += ["| | promise | rule | checked by | tests | mutants |", "|---|---|---|---|---|---|"]
        for each in of_group:
            rule = list(dict.fromkeys((*each.rules, *sources.naming(each.name, package, checks=False))))
            tests = sources.naming(each.name, "tests/")
            assert rule, f"no module of {package} names {each.name}, whose rule it keeps"
            assert tests, f"no test names {each.name}"
            checked = sources.naming(each.name, package, checks=True)
            files = (_files(rule, package), _files(checked, package), _files(tests, "tests/"))
            mutants = _some(planted.get(each.name, [])) or "none"
            rows.append(f"| {each.name} | {_linked(each)} | {' | '.join(files)} | {mutants} |")
        groups.append("\n".join(rows))
    return TEXT.format(count=len(found), groups="\n\n".join(groups))


def _linked(promise: Promise) -> str:
    """Links of a sentence hold on this page too, which lies beside the one it stands on."""
    return re.sub(r"\]\(#", f"]({promise.page.name}#", promise.sentence)


def _files(paths: list[str], prefix: str) -> str:
    return _some([f"`{path.removeprefix(prefix)}`" for path in paths]) or "-"


def _some(shown: list[str]) -> str:
    more = len(shown) - SHOWN
    return ", ".join(shown[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def cited_sections() -> Iterator[tuple[str, str]]:
    """(path, section of the design) for every citation in code, tests and docs."""
    in_words = re.compile(r"\b[Ss]ection (\d(?:\.\d+)?)\b")
    in_notes = re.compile(r"""(?:note\([^()]*|Violation\()\s*"(\d(?:\.\d+)?)",""")
    for folder in ("rankcore", "executors", "mutants", "tests", "docs", "bench", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".md"):
                continue
            text = path.read_text(encoding="utf-8")
            found = in_words.findall(text) + (in_notes.findall(text) if folder == "rankcore" else [])
            for section in found:
                yield path.relative_to(ROOT).as_posix(), section


def sections() -> frozenset[str]:
    """The numbers of the design's sections."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    return frozenset(number.rstrip(".") for number in re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE))


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    page = render()
    if arguments == ["--check"]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page
        print("current" if current else f"{PAGE.name} is old: run `make docs`")
        return 0 if current else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
