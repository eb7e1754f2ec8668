"""The table in docs/verification.md: what each mutant breaks, and which layers catch it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mutants.answers import Answers
from mutants.asking import Outcome
from mutants.layers import Layer
from mutants.mutant import Mutant, MutantError

PAGE = Path("docs/verification.md")
CAUGHT, SURVIVED = "yes", "-"


def left_columns(mutant: Mutant) -> str:
    """What the list of mutants says of one: the beginning of its row."""
    return f"| `{mutant.name}` | {mutant.rule} | {mutant.bug} |"


def table(mutants: Sequence[Mutant], layers: Sequence[Layer], answers: Answers) -> str:
    """The figures and the table, in Markdown.

    Raises:
        MutantError: A layer has not been asked about a mutant.
    """
    marks = {mutant.name: {layer.name: _caught(mutant, layer, answers) for layer in layers} for mutant in mutants}
    lines = [
        f"{sum(any(row.values()) for row in marks.values())} of {len(mutants)} mutants are caught. By layer:",
        "",
        "| layer | | budget | caught | only by it |",
        "|---|---|---:|---:|---:|",
    ]
    for layer in layers:
        caught = sum(row[layer.name] for row in marks.values())
        lines.append(f"| {layer.name} | {layer.about} | {layer.budget_s} s | {caught} | {_only_by(layer, marks)} |")
    names = " | ".join(layer.name for layer in layers)
    lines += ["", f"| mutant | breaks | what the core does then | {names} |", "|---|---|---|" + "---|" * len(layers)]
    for mutant in mutants:
        cells = " | ".join(CAUGHT if marks[mutant.name][layer.name] else SURVIVED for layer in layers)
        lines.append(f"{left_columns(mutant)} {cells} |")
    return "\n".join(lines)


def _caught(mutant: Mutant, layer: Layer, answers: Answers) -> bool:
    answer = answers.get(mutant, layer)
    if answer is None:
        raise MutantError(f"layer {layer.name!r} has not been asked about {mutant.name}: run without --only and --layer first")
    return answer.outcome is Outcome.CAUGHT


def _only_by(layer: Layer, marks: Mapping[str, Mapping[str, bool]]) -> int:
    return sum(row[layer.name] and sum(row.values()) == 1 for row in marks.values())


def publish(checkout: Path, text: str, begin: str, end: str) -> None:
    """Put this between two markers of the page.

    Raises:
        MutantError: The page does not have both, once each and in this order.
    """
    page = (checkout / PAGE).read_text(encoding="utf-8")
    before, _, after = between_markers(page, begin, end)
    (checkout / PAGE).write_text(f"{before}\n\n{text}\n\n{after}", encoding="utf-8")


def between_markers(page: str, begin: str, end: str) -> tuple[str, str, str]:
    """The page up to the table, markers included; the table; and the rest.

    Raises:
        MutantError: The page does not have both markers, once each and in this order.
    """
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise MutantError(f"{PAGE} must have the line {begin!r} once, and {end!r} once after it")
    before, rest = page.split(begin)
    inside, after = rest.split(end)
    return before + begin, inside, end + after
