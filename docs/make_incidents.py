"""Write docs/incidents.md from the comments at the head of the files in tests/scenarios/incidents/.

python docs/make_incidents.py           write the page
python docs/make_incidents.py --check   say whether it is current (exit status 1 if not)

A file begins with `# System: what it is about`, then the addresses of the reports, a line each, then `# There: ...` and
`# Here: ...`, each of which may go on over several lines.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "scenarios" / "incidents"
PAGE = Path(__file__).with_name("incidents.md")

TEXT = """\
# Incidents elsewhere, and what rankcore does instead

{count} incidents reported against systems that solve a comparable problem, as scenarios that the tests play: what happened
there, in our words, and what the core answers to the same events. A file has the events, every command that comes of them,
and in its lines `> expect` what must not happen again. Written by `make docs` from the heads of the files; a test checks that
this page is current. [The scenarios' README](../tests/scenarios/README.md) explains the format.

{tables}
"""


class Incident(NamedTuple):
    """One file, as its head tells it."""

    path: Path
    system: str
    title: str
    urls: tuple[str, ...]
    there: str
    here: str

    @property
    def sources(self) -> str:
        """Links to the reports, by repository and number."""
        found = [re.fullmatch(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull)/(\d+)", url) for url in self.urls]
        assert all(found), f"{self.path.name}: not the address of an issue or a pull request: {self.urls}"
        return ", ".join(f"[{each[1]} #{each[2]}]({url})" for each, url in zip(found, self.urls, strict=True) if each)


def read(path: Path) -> Incident:
    """The head of one file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = [line.removeprefix("#").strip() for line in lines[: next(i for i, each in enumerate(lines) if each[:1] != "#")]]
    urls = tuple(line for line in head if line.startswith("https://"))
    shape = re.fullmatch(r"(.+?): (.+?) There: (.+) Here: (.+)", " ".join(line for line in head if line not in urls))
    assert shape, f"{path.name}: its head has to be '# System: title', addresses, '# There: ...', '# Here: ...'"
    assert urls, f"{path.name}: no address of a report"
    assert "|" not in shape[0], f"{path.name}: a | would end a cell of the table"
    title, there, here = (text[0].upper() + text[1:] for text in shape.groups()[1:])
    return Incident(path, shape[1], title, urls, there, here)


def incidents() -> list[Incident]:
    """All of them, by system and number."""
    found = [read(path) for path in sorted(FOLDER.glob("*.txt"))]
    return sorted(found, key=lambda each: (each.system, int(each.urls[0].rsplit("/", 1)[1])))


def page() -> str:
    """The whole page."""
    found = incidents()
    tables = []
    for system in sorted({each.system for each in found}, key=lambda each: (-sum(i.system == each for i in found), each)):
        rows = [
            f"| {each.sources} | **{each.title}.** {each.there} | {each.here} | "
            f"[{each.path.stem}](../{each.path.relative_to(ROOT).as_posix()}) |"
            for each in found
            if each.system == system
        ]
        tables.append("\n".join([f"## {system}\n", "| source | there | here | file |", "|---|---|---|---|", *rows]))
    return TEXT.format(count=len(found), tables="\n\n".join(tables))


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        print(f"{PAGE.name} is {'current' if current else 'out of date: run make docs'}")
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
