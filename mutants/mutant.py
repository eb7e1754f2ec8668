"""One planted bug: a piece of the core's source that is replaced by another."""

from pathlib import Path

import attrs


class MutantError(Exception):
    """A mutant, or what is asked about one, is not what it has to be: one line that says what was found and what is allowed."""


@attrs.frozen
class Mutant:
    """A bug as somebody might write it.

    Attributes:
        name: Words joined by hyphens.
        rule: The promise that it breaks: such as R6, or a section of the design.
        bug: What the core does with it, in a few words.
        path: The file that it is planted in, from the top of the tree.
        old: What stands there: occurs exactly once.
        new: What stands there with the bug.
    """

    name: str
    rule: str
    bug: str
    path: str
    old: str
    new: str

    def source(self, tree: Path) -> str:
        """The source of its file, with the bug.

        Raises:
            MutantError: The file is not there, or the replaced text does not occur in it exactly once.
        """
        try:
            honest = (tree / self.path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise MutantError(f"{self.name}: {self.path} is not there any more: plant it where its code has gone") from None
        found = honest.count(self.old)
        if found != 1:
            first = self.old.strip().splitlines()[0].strip()
            raise MutantError(
                f"{self.name}: the text to replace occurs {found} times in {self.path}, expected once: adapt the mutant to the "
                f"present source; it begins with {first!r}"
            )
        return honest.replace(self.old, self.new)
