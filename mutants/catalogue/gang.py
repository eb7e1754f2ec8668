"""Gangs: who keeps a rank, who takes one, when a round closes, and who is sent away (TR1 to TR8)."""

from mutants.mutant import Mutant

STEP = "rankcore/gang/step.py"

GANG = (
    Mutant(
        "survivors-are-renumbered",
        "TR1",
        "a member that lives is released when a round closes, and has the rank that is free then",
        STEP,
        "    table, _ = table.compact()\n",
        "    for member in sorted(gang.arrived):\n        node = table.node_of(member)\n"
        "        table, _ = table.release(member).assign(member, node)\n    table, _ = table.compact()\n",
    ),
    Mutant(
        "whose-node-it-was-does-not-count",
        "TR2",
        "an agent that returns takes any lost rank, and not that of its node",
        STEP,
        "if one.node_id == table.node_of(member)]",
        "if False]",
    ),
    Mutant(
        "the-newest-spare-first",
        "TR3",
        "of the spares the one that came last takes a lost rank",
        STEP,
        "            takers[member] = waiting.pop(0)\n",
        "            takers[member] = waiting.pop()\n",
    ),
    Mutant(
        "holes-stay-open",
        "TR4",
        "a gang that shrinks keeps the ranks of the lost free",
        STEP,
        "    table, _ = table.compact()\n",
        "",
    ),
    Mutant(
        "a-gang-never-grows",
        "TR5",
        "an agent that comes while there is room opens a round and gets no rank",
        STEP,
        "    while waiting and len(table) < gang.max_size:\n",
        "    while waiting and len(table) < gang.min_size:\n",
    ),
    Mutant(
        "one-too-many-restarts-all",
        "TR6",
        "an agent above MAX opens a round, which restarts all that run",
        STEP,
        "    if len(gang.table) < gang.max_size:\n",
        "    if len(gang.table) <= gang.max_size:\n",
    ),
    Mutant(
        "those-that-run-do-not-hear-of-the-end",
        "TR6",
        "when the job is done only those are told who wait",
        STEP,
        "    members = (*gang.living, *(waiting.member for waiting in gang.waiting))\n",
        "    members = tuple(waiting.member for waiting in gang.waiting)\n",
    ),
    Mutant(
        "a-round-closes-without-a-member",
        "TR7",
        "a round closes while a member that lives has not come",
        STEP,
        "    if len(gang.arrived) + len(gang.lost) == len(gang.table) and (full or called):\n",
        "    if full or called:\n",
    ),
    Mutant(
        "a-second-coordinator-believes-to-be-the-first",
        "TR8",
        "a coordinator that was started again gives newcomers ranks that survivors hold",
        STEP,
        "not len(gang.table) and (gang.restarted or believers > 0)",
        "not len(gang.table) and believers > 0",
    ),
    Mutant(
        "who-lapsed-is-back",
        "TR8",
        "an agent whose lease lapsed may come again and keeps its rank",
        STEP,
        "    if member in gang.lost:\n",
        "    if False:\n",
    ),
)
