"""Requests for models whose weights may be anywhere: the promises D1 to D11."""

from mutants.mutant import Mutant

DRAFT = "rankcore/dispatching/draft.py"

DISPATCHING = (
    Mutant(
        "answered-twice",
        "D1",
        "who is failed at once, since a load has failed for good, waits for another answer all the same",
        "rankcore/dispatching/core.py",
        "(event.request_id, None, because))\n        return\n    draft",
        "(event.request_id, None, because))\n    if event.model not in draft.models:\n        return\n    draft",
    ),
    Mutant(
        "a-deadline-nobody-watches",
        "D1",
        "no router is woken when the deadline of a request passes",
        DRAFT,
        "                self.set_alarm(AlarmKind.ROUTER, model, command.at)\n",
        "",
    ),
)
