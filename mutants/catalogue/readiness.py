"""Replicas that are unready for a while: off the routes, at no cost, and back (V16)."""

from mutants.mutant import Mutant

UNREADY = "rankcore/rules/unready.py"
BOOK = "rankcore/book/replicas.py"

READINESS = (
    Mutant(
        "an-unready-replica-stays-on-the-routes",
        "V16",
        "who says that it takes no requests is noted down, and gets them all the same",
        BOOK,
        "    draft.unready = draft.unready.set(old.replica_id, old.birth)\n    routes.leave(draft, old)\n",
        "    draft.unready = draft.unready.set(old.replica_id, old.birth)\n",
    ),
    Mutant(
        "older-news-of-readiness-counts",
        "V16",
        "a ReplicaReady from before it became unready brings a replica back",
        UNREADY,
        "    if replica.state not in HEARD or event.at <= replica.readiness_at:\n",
        "    if replica.state not in HEARD:\n",
    ),
    Mutant(
        "readiness-that-overtakes-the-start-is-forgotten",
        "V16",
        "that a replica is unready counts for nothing where its first ReplicaReady comes after that",
        UNREADY,
        "HEARD = slots.RUNNING | {STARTING, ReplicaState.RECOVERING}\n",
        "HEARD = slots.RUNNING\n",
    ),
    Mutant(
        "ready-again-is-available",
        "V16",
        "min_ready_s goes on where it was when a replica is ready again",
        BOOK,
        "    begins = {} if ready.ready_at is None else readiness.begin(draft, ready)\n",
        "    begins: dict[str, Any] = {}\n",
    ),
    Mutant(
        "the-unready-wait-for-the-budget",
        "V16",
        "an update replaces who serves nobody only while enough others are available",
        "rankcore/rules/roll.py",
        "    if draft.unready:\n"
        '        _replace_at_no_cost(draft, draft.those(draft.unready), "it is unready, and costs nothing")\n',
        "",
    ),
    Mutant(
        "the-unready-wait-for-their-config",
        "V16",
        "who serves nobody gets another user_config only while enough others are available",
        "rankcore/rules/configure.py",
        "    if draft.unready:\n        _send_to_each(draft, draft.unready, wanted)\n",
        "",
    ),
    Mutant(
        "a-new-controller-routes-to-all-who-run",
        "V16",
        "what a report says of readiness counts for nothing",
        "rankcore/rules/recovery.py",
        "        **unready.newest_of(replica, event.at, event.unready),\n",
        "        **unready.newest_of(replica, event.at, None),\n",
    ),
)
