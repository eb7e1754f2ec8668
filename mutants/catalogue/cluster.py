"""Applications of deployments in one machine: the save barrier and the recovery (P2), isolation (P6), targets, nodes."""

from mutants.mutant import Mutant

CONCLUDE = "rankcore/cluster/conclude.py"
OUTBOX = "rankcore/cluster/outbox.py"
RECOVERY = "rankcore/cluster/recovery.py"
SCALING = "rankcore/cluster/scaling.py"
STEP = "rankcore/cluster/step.py"
TARGETS = "rankcore/cluster/targets.py"

CLUSTER = (
    Mutant(
        "only-the-first-record-is-waited-for",
        "P2",
        "once a record of a deployment is saved, commands go out beside the next ones and not after them",
        CONCLUDE,
        "        if box.is_open:\n            _let_go",
        "        if box.saved:\n            _let_go",
    ),
    Mutant(
        "saves-come-last",
        "P2",
        "the records of a step are given to the store after its commands",
        "rankcore/cluster/draft.py",
        "        commands: list[ClusterCommand] = list(self.saves)\n"
        "        for released in self.released.values():\n"
        "            commands.extend(released)\n",
        "        commands: list[ClusterCommand] = []\n"
        "        for released in self.released.values():\n"
        "            commands.extend(released)\n"
        "        commands.extend(self.saves)\n",
    ),
    Mutant(
        "an-earlier-acknowledgement-stands-for-all",
        "P2",
        "that an earlier record is saved lets out what waits for the last one",
        OUTBOX,
        "    saved = max(outbox.saved, number)\n",
        "    saved = max(outbox.saved, outbox.sent)\n",
    ),
    Mutant(
        "a-scale-is-saved-lazily",
        "P2",
        "a target that a user wrote is saved like one that follows load: nothing waits for it",
        OUTBOX,
        " and after.cause is Cause.USER:",
        " and after.cause is Cause.LEAVE:",
    ),
    Mutant(
        "a-steady-change-puts-the-save-off",
        "P2",
        "a lazy save is put off by each further change",
        OUTBOX,
        "at + LAZY_S if outbox.due_at is None else min(outbox.due_at, at + LAZY_S)",
        "at + LAZY_S",
    ),
    Mutant(
        "a-save-is-given-once",
        "P2",
        "a record that the store has not acknowledged is not given to it again",
        OUTBOX,
        "due_at=at + REPEAT_S, unsaved_since=since",
        "due_at=None, unsaved_since=since",
    ),
    Mutant(
        "records-are-not-numbered-by-epoch",
        "P2",
        "a new controller numbers its records from the greatest that it has read, and not from its epoch",
        RECOVERY,
        "revision=epoch << EPOCH_BITS",
        "revision=max((each.number for each in adopted.values()), default=0)",
    ),
    Mutant(
        "a-late-put-of-an-old-epoch-wins",
        "P2",
        "what is adopted keeps the number that it had, and is not above what an earlier controller still puts",
        "rankcore/cluster/adoption.py",
        "attrs.evolve(record, number=draft.next_number())",
        "record",
    ),
    Mutant(
        "the-last-record-read-counts",
        "P2",
        "of several records of a deployment the one that is read last counts",
        "rankcore/cluster/records.py",
        "if before is None or record.number > before.number:",
        "if before is None or record.number != before.number:",
    ),
    Mutant(
        "the-deleted-come-back",
        "P2",
        "a record that says deleted is adopted like any other",
        RECOVERY,
        "if deployment in left_alone or record.deleted:",
        "if deployment in left_alone:",
    ),
    Mutant(
        "those-left-alone-are-killed",
        "P2",
        "replicas of a deployment whose record cannot be read are killed by the next controller",
        RECOVERY,
        '        if deployment in left_alone:\n            draft.note(ClusterNoteKind.LEFT_ALONE, "P2"',
        '        if deployment in draft.entries:\n            draft.note(ClusterNoteKind.LEFT_ALONE, "P2"',
    ),
    Mutant(
        "those-left-alone-are-killed-at-their-news",
        "P2",
        "a replica of a deployment whose record cannot be read is killed once it is heard of",
        STEP,
        "    elif deployment in draft.state.left_alone:\n",
        "    elif deployment in draft.gone:\n",
    ),
    Mutant(
        "the-older-keeps-the-prefix",
        "P2",
        "of two records with one route prefix the older keeps it",
        RECOVERY,
        "key=lambda each: -adopted[each].number",
        "key=lambda each: adopted[each].number",
    ),
    Mutant(
        "the-old-alarm-stays",
        "P2",
        "a deployment that is to be woken at another time is woken at the old one too",
        CONCLUDE,
        "    if entry.alarm_at is not None:\n"
        "        draft.alarms = draft.alarms.discard((entry.alarm_at, deployment))\n"
        "    if due is not None:\n",
        "    if due is not None:\n",
    ),
    Mutant(
        "the-alarm-is-not-moved",
        "P2",
        "a deployment that has an alarm is not woken earlier than that",
        CONCLUDE,
        "    if due == entry.alarm_at:\n",
        "    if due == entry.alarm_at or (due is not None and entry.alarm_at is not None and due < entry.alarm_at):\n",
    ),
    Mutant(
        "a-namesake-has-the-same-ids",
        "P2",
        "a deployment of a deleted one's name counts its replicas from the beginning",
        CONCLUDE,
        "    draft.first_serial = max(draft.first_serial, entry.ranks.tables.next_serial)\n",
        "",
    ),
    Mutant(
        "the-frozen-get-news",
        "P6",
        "a frozen deployment gets the news of its replicas",
        STEP,
        "    if entry.frozen:\n",
        "    if entry.frozen and type(news) in _PARTS:\n",
    ),
    Mutant(
        "the-broken-are-not-frozen",
        "P6",
        "a deployment is not frozen where its bug shows: it is passed over for one step",
        "rankcore/cluster/isolation.py",
        "            draft.put(deployment, replace(entry, frozen=why))\n",
        "            draft.put(deployment, entry)\n",
    ),
    Mutant(
        "an-answer-about-an-earlier-target-counts",
        "A8",
        "what a user's policy says of a target that was written since is followed",
        TARGETS,
        "    return target.number == number\n",
        "    return target.number >= number\n",
    ),
    Mutant(
        "a-process-that-comes-back-is-not-heard",
        "A6",
        "a process that was started again counts from where the old one was",
        SCALING,
        "(event.incarnation, event.seq) <= (known.incarnation, known.seq)",
        "event.seq <= known.seq",
    ),
    Mutant(
        "an-apply-is-compared-with-the-present-target",
        "R9",
        "the same file again takes back what was written since",
        TARGETS,
        "before.ranks.target_replicas == spec.ranks.target_replicas\n",
        "target.replicas == spec.ranks.target_replicas\n",
    ),
    Mutant(
        "routed-before-it-is-ready",
        "P5",
        "calls are routed to a replica once it has a place",
        "rankcore/rules/news.py",
        "    nodes.join(draft, placed)\n",
        "    nodes.join(draft, placed)\n    draft.routes_added[placed.replica_id] = None\n",
    ),
    Mutant(
        "many-deployments-are-a-step-without-an-end",
        "P6",
        "a step is broken off at a number of events that does not grow with the deployments that it concerns",
        "rankcore/kernel.py",
        "handled > EVENTS_MAX + EVENTS_MAX_PER_PART * len(counts)",
        "handled > EVENTS_MAX",
    ),
    Mutant(
        "a-node-is-told-to-all",
        "P6",
        "what a node offers is told to each deployment, also those that nodes do not concern",
        "rankcore/cluster/nodes.py",
        "        draft.renewed[event.node_id] = None\n    for deployment in draft.ranked:\n",
        "        draft.renewed[event.node_id] = None\n    for deployment in sorted(draft.state.deployments):\n",
    ),
)
