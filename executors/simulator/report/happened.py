"""The list under the picture: what happened, and what the core decided because of it, in the journal's own words."""

import attrs

from executors.simulator.record.happenings import Happening
from executors.simulator.record.notebook import EVENTFUL, Decision
from executors.simulator.run import RunResult
from rankcore.notes import Note, NoteKind

HAPPENINGS_MAX = 3000


@attrs.frozen
class HappenedRow:
    """One line of the list.

    Attributes:
        until: When it was over; None: it was a moment, or lasted to the end.
        group: What the filter knows it as: "fault", "change", "controller", "status", "decision", "routine".
        deployment: Whom it concerns; None: all.
        what: Of a decision its kind, as in the journal.
        whom: The replica or node that it is about; empty: none, or several.
        ranks: The global rank that it is about, or "3 \u2192 1" for one that changed; empty: none.
        rule: The promise, or the section of the design, that a decision follows.
    """

    at: float
    until: float | None
    group: str
    deployment: str | None
    what: str
    whom: str
    ranks: str
    text: str
    rule: str


def rows_of(result: RunResult) -> tuple[list[HappenedRow], int]:
    """All lines by time, and how many there are no lines for."""
    # What the status became is a decision too, and then with its reason.
    happenings = [happening for happening in result.happenings if happening.kind != "status"]
    shown = _ends(happenings)
    left_out = len(happenings) - len(shown) + result.decisions.left_out
    rows = [_of_happening(happening) for happening in shown] + [_of_decision(each) for each in result.decisions.kept]
    return sorted(rows, key=lambda row: row.at), left_out


def _ends(happenings: list[Happening]) -> list[Happening]:
    half = HAPPENINGS_MAX // 2
    return happenings if len(happenings) <= HAPPENINGS_MAX else happenings[:half] + happenings[-half:]


def _of_happening(happening: Happening) -> HappenedRow:
    return HappenedRow(
        happening.at, happening.until, happening.kind, happening.deployment, happening.kind, "", "", happening.text, ""
    )


def _of_decision(decision: Decision) -> HappenedRow:
    note = decision.note
    return HappenedRow(
        at=decision.at,
        until=None,
        group="status" if note.kind is NoteKind.STATUS_CHANGED else "decision" if note.kind in EVENTFUL else "routine",
        deployment=decision.deployment,
        what=str(note.kind),
        whom=note.replica_id or "",
        ranks=_ranks(note),
        text=note.because,
        rule=note.rule,
    )


def _ranks(note: Note) -> str:
    before, after = note.before, note.after
    if before is not None and after is not None and before.rank != after.rank:
        return f"{before.rank} \u2192 {after.rank}"
    known = after or before
    if known is not None:
        return str(known.rank)
    return "" if note.rank is None else str(note.rank)
