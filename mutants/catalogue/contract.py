"""Repeats, time-outs, wake-ups and late news: sections 2 and 2.4."""

from mutants.mutant import Mutant

TIMEOUTS = "rankcore/rules/timeouts.py"
CONCLUDE = "rankcore/rules/conclude.py"
BELIEFS = "rankcore/replica/beliefs.py"
REPLICA = "rankcore/replica/replica.py"

CONTRACT = (
    Mutant(
        "a-wake-up-is-noted-and-not-asked-for",
        "2.4",
        "the state waits for a WakeAt that nobody was given",
        CONCLUDE,
        "        draft.commands.append(WakeAt(due, draft.epoch))\n",
        "",
    ),
    Mutant(
        "an-earlier-wake-up-is-not-asked-for",
        "2.4",
        "what falls due before the next wake-up waits until then",
        CONCLUDE,
        "if draft.wake_at is None or due < draft.wake_at:",
        "if draft.wake_at is None:",
    ),
    Mutant(
        "woken-once",
        "2.4",
        "after a wake-up, no other is asked for what is still waiting",
        TIMEOUTS,
        "    draft.wake(next_due(draft))\n",
        "",
    ),
    Mutant(
        "nothing-is-repeated",
        "2.4",
        "a command that is not acknowledged is not repeated",
        TIMEOUTS,
        "        _repeat_one(draft, draft.replicas[queue.first().replica_id])\n",
        "",
    ),
    Mutant(
        "what-is-acknowledged-is-repeated",
        "2.4",
        "a command is repeated although a later one of the same replica has its own time",
        "rankcore/book/replicas.py",
        "draft.unacknowledged = draft.unacknowledged.discard(replica.repeat_timer)\n    number",
        "pass\n    number",
    ),
    Mutant(
        "timers-pile-up",
        "2.4",
        "the timer of a start outlives the start",
        "rankcore/book/replicas.py",
        "    disarm_start_timer(draft, new)\n",
        "",
    ),
    Mutant(
        "the-clock-goes-back",
        "2",
        "late news sets the state's clock back",
        "rankcore/core.py",
        "    if at > draft.clock:\n        draft.clock = at\n",
        "    draft.clock = at\n",
    ),
    Mutant(
        "a-replica-obeys-an-older-epoch",
        "2.4",
        "a change of a replaced controller is carried out",
        BELIEFS,
        "    if epoch < beliefs.epoch:\n        return REFUSED\n",
        "",
    ),
    Mutant(
        "a-replica-goes-back",
        "2.4",
        "a change that arrives after a newer one is carried out",
        BELIEFS,
        "if arrived < stamp or (beliefs.rank is None",
        "if (beliefs.rank is None",
    ),
    Mutant(
        "a-repeated-change-has-another-outcome",
        "2.4",
        "a change that has failed is acknowledged as done when it is repeated",
        REPLICA,
        "    done = Done(command, replica.failure)\n",
        "    done = Done(command, None)\n",
    ),
    Mutant(
        "a-change-that-waits-is-forgotten",
        "2.4",
        "what a replica believes since user code ran is never carried out",
        REPLICA,
        "    if following is not None:  # 3\n",
        "    if following is not None and not replica.ready:  # 3\n",
    ),
)
