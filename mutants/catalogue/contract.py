"""Repeats, time-outs, wake-ups and late news: sections 2 and 2.4."""

from mutants.mutant import Mutant

TIMEOUTS = "rankcore/rules/timeouts.py"
CONCLUDE = "rankcore/rules/conclude.py"

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
        "if due < NEVER and (draft.wake_at is None or due < draft.wake_at):",
        "if due < NEVER and draft.wake_at is None:",
    ),
    Mutant(
        "woken-once",
        "2.4",
        "after a wake-up, no other is asked for what is still waiting",
        TIMEOUTS,
        "    draft.wake_by = min(draft.wake_by, next_due(draft))\n",
        "",
    ),
    Mutant(
        "nothing-is-repeated",
        "2.4",
        "a command that is not acknowledged is not repeated",
        TIMEOUTS,
        "            due[entry.replica_id] = draft.replicas[entry.replica_id]\n",
        "            pass\n",
    ),
    Mutant(
        "what-is-acknowledged-is-repeated",
        "2.4",
        "a command is repeated although a later one of the same replica has its own time",
        TIMEOUTS,
        "return replica is None or replica.pending is None or replica.sent_at != entry.at",
        "return replica is None or replica.pending is None",
    ),
    Mutant(
        "who-does-not-stop-is-not-killed",
        "2.4",
        "a replica that ignores its StopReplica is asked for ever",
        TIMEOUTS,
        "if draft.clock >= replica.since + patience_s:",
        "if draft.clock < replica.since:",
    ),
    Mutant(
        "a-back-off-is-lost-in-a-move",
        "2.3",
        "a slot that backs off and is moved by compaction is never tried again",
        "rankcore/book/replicas.py",
        "    if slot.retry_at > draft.clock:\n",
        "    if slot.retry_at < 0.0:\n",
    ),
    Mutant(
        "a-move-waits-for-the-successor-again",
        "2.3",
        "a successor that was waited for too long, or is placed, is waited for again when its slot moves",
        "rankcore/book/replicas.py",
        "        if stoppable:\n            draft.stoppable = draft.stoppable.add(rank)\n",
        "",
    ),
    Mutant(
        "the-clock-goes-back",
        "2",
        "late news sets the state's clock back",
        "rankcore/core.py",
        "    if event.at > draft.clock:\n        draft.clock = event.at\n",
        "    draft.clock = event.at\n",
    ),
    Mutant(
        "a-lost-node-takes-along-who-came-later",
        "2",
        "NodeLost ends replicas that were placed there after the loss",
        "rankcore/rules/machines.py",
        "gone = [replica for replica in there if replica.seen_at <= event.at]",
        "gone = there",
    ),
    Mutant(
        "placed-at-the-moment-of-the-loss",
        "2",
        "a replica that was placed at the very moment of its node's loss lives on",
        "rankcore/rules/news.py",
        "if node is not None and event.at <= node.lost_at:",
        "if node is not None and event.at < node.lost_at:",
    ),
)
