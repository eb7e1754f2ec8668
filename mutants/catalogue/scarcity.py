"""Bugs of ranks where there is room for fewer replicas than are wanted: who has which rank, and who moves (V18)."""

from mutants.mutant import Mutant

BIND = "rankcore/rules/bind.py"
NEWS = "rankcore/rules/news.py"
RULE = "rankcore/rules/scarcity.py"
SLOTS = "rankcore/book/slots.py"

SCARCITY = (
    Mutant(
        "who-has-a-place-keeps-its-number",
        "V18",
        "a replica that is placed is initialised with the rank that it was asked for, whichever lower one waits for a place",
        BIND,
        "if draft.spec.placement is None and draft.placed:",
        "if draft.spec.placement is None and draft.placed and draft.rollout.arrived.size:",
    ),
    Mutant(
        "a-starved-rank-is-left-alone",
        "V18",
        "a lower rank stays without a place for ever while a higher one runs",
        RULE,
        "if draft.clock < starved_at:",
        "if draft.clock < starved_at + 1e9:",
    ),
    Mutant(
        "the-lowest-that-runs-is-moved",
        "V18",
        "a starved rank is taken by one below k, whose own rank has to be filled then",
        RULE,
        "takewhile(places.__le__, draft",
        "filter(places.__gt__, draft",
    ),
    Mutant(
        "moved-before-it-is-starved",
        "V18",
        "a replica is moved as soon as a lower rank has no place, though its replacement would have come up",
        RULE,
        "starved_at = slots.roomless_since(slot, holder) + after_s",
        "starved_at = slots.roomless_since(slot, holder)",
    ),
    Mutant(
        "nobody-is-woken-for-the-starved",
        "V18",
        "a starved rank is noticed only when something else happens",
        RULE,
        "            return draft.wake(starved_at)\n",
        "            return\n",
    ),
    Mutant(
        "a-rank-is-starved-while-it-rests",
        "V18",
        "the wait after a failed start counts as lack of room",
        SLOTS,
        "return max(slot.unplaced_at, slot.retry_at, found_none_at or 0.0)",
        "return max(slot.unplaced_at, found_none_at or 0.0)",
    ),
    Mutant(
        "unplaced-since-the-first-start",
        "V18",
        "how long a rank has had no place counts from when it was opened",
        SLOTS,
        "at = slot.unplaced_at if holder.state is REQUESTED else draft.clock",
        "at = slot.unplaced_at",
    ),
    Mutant(
        "ranks-that-were-not-found-are-not-wanted",
        "V18",
        "where ranks are packed and no node has room, a rank that a recovery has not found is never starved",
        RULE,
        "if packs and draft.taken.lowest_free() < places:",
        "if packs and places < 0:",
    ),
    Mutant(
        "a-start-that-takes-long-is-starved",
        "V18",
        "who is merely requested counts as without room: a replica that runs is moved while an environment is installed",
        SLOTS,
        "        if holder.no_room_since is not None:\n",
        "        if True:\n",
    ),
    Mutant(
        "room-that-is-there-after-all-is-not-noticed",
        "V18",
        "a replica that has found no room once counts as without for as long as its place is made ready",
        NEWS,
        "since = (draft.clock if before is None else before) if event.no_room else None",
        "since = draft.clock if before is None else before",
    ),
    Mutant(
        "older-news-of-room-counts",
        "V18",
        "that there is no room, which comes behind the news that there is some again, is believed",
        NEWS,
        "(known is not None and event.at < known.said_at)",
        "(known is not None and event.at < 0.0)",
    ),
)
