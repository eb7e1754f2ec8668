"""Weights in a cluster: who is asked for, who is a replica, what is learnt after a restart (P3, P4, P5, T10, T11)."""

from mutants.mutant import Mutant

ADOPTION = "rankcore/cluster/adoption.py"
CONCLUDE = "rankcore/cluster/conclude.py"
DEMAND = "rankcore/cluster/demand.py"
PLANNER = "rankcore/cluster/planner.py"
TENURES = "rankcore/cluster/tenures.py"
WORKERS = "rankcore/cluster/workers.py"

TENURES_AND_DEMAND = (
    Mutant(
        "one-for-each-that-waits",
        "P3",
        "demand asks for one more replica with each report",
        DEMAND,
        "        if not entry.target.replicas:\n            targets.write(draft, deployment, entry, 1, Cause.DEMAND)\n",
        "        targets.write(draft, deployment, entry, entry.target.replicas + 1, Cause.DEMAND)\n",
    ),
    Mutant(
        "demand-that-never-expires",
        "P3",
        "a target that demand has raised stays when nobody waits any more",
        DEMAND,
        "    return not demand_for(draft.weights.demands, entry.spec.deployment, draft.clock)\n",
        "    return False\n",
    ),
    Mutant(
        "demand-that-outlives-its-deployment",
        "P3",
        "calls that waited for what was deleted count for what is applied under its name",
        CONCLUDE,
        "    draft.weights = replace(draft.weights, demands=forget(draft.weights.demands, deployment))\n",
        "",
    ),
    Mutant(
        "loaded-for-nobody",
        "D7",
        "who is to have the place of a victim is loaded there though nobody waits for it any more",
        DEMAND,
        "(each.phase is Phase.RESERVING and each.waits_for == leaver)",
        "(each.phase is Phase.RESERVING and not each.waits_for)",
    ),
    Mutant(
        "tried-at-once-after-it-had-no-place",
        "D7",
        "demand counts again at once after those who waited were told that there is no place",
        DEMAND,
        "    elif residency.failed_until <= draft.clock:  # 4\n",
        "    else:\n",
    ),
    Mutant(
        "tried-at-once-after-a-restart",
        "D7",
        "a controller that comes back has loads that had failed for good tried again at once",
        DEMAND,
        " if is_given_up(ranks) and not found else",
        " if False else",
    ),
    Mutant(
        "a-load-may-take-for-ever",
        "D7",
        "a load that does not end is not broken off",
        DEMAND,
        "record.phase is Phase.LOADING and draft.clock >= record.since",
        "record.phase is Phase.LOADING and draft.clock > 2.0**40 + record.since",
    ),
    Mutant(
        "a-replica-before-its-load-has-ended",
        "P4",
        "a claim is a replica of a worker that is not HOT yet",
        TENURES,
        "for each in planner.hot_replicas(model_id(deployment, version)) if each not in taken]",
        "for each in planner.wanted_replicas(model_id(deployment, version))"
        " if each not in taken and planner.replicas[each].node_id]",
    ),
    Mutant(
        "a-stop-beside-an-offload",
        "P4",
        "the stop of a replica that is a tenure goes to the backend",
        TENURES,
        "    StopReplica: on_stop,\n",
        "",
    ),
    Mutant(
        "who-hangs-while-it-leaves-is-not-killed",
        "P4",
        "a replica that hangs while it leaves the GPUs is told to leave once more",
        TENURES,
        "    KillReplica: on_kill,\n",
        "    KillReplica: on_stop,\n",
    ),
    Mutant(
        "who-copies-has-no-more-time-than-calls-have",
        "P4",
        "a worker is killed in the middle of the copy of its weights to CPU memory",
        TENURES,
        "+ spec.load_timeout_s\n",
        "\n",
    ),
    Mutant(
        "a-rank-is-free-before-the-offload-ends",
        "R7",
        "a replica has stopped once its worker was told to leave the GPUs",
        TENURES,
        "        draft.worklist.add(PLANNER, release(entry, worker_id, draft.clock))\n\n\ndef on_kill",
        "        draft.worklist.add(PLANNER, release(entry, worker_id, draft.clock))\n"
        "        end_tenure(draft, worker_id)\n"
        "        draft.worklist.add(deployment, ReplicaStopped(replica_id=stop.replica_id, at=draft.clock))\n\n\ndef on_kill",
    ),
    Mutant(
        "a-replica-that-ended-keeps-its-gpus",
        "T10",
        "a worker whose replica has ended, and that lives, is let go only where too many are wanted",
        TENURES,
        "        end_tenure(draft, worker_id)\n"
        "        if is_serving(draft.weights.planner, worker_id):\n"
        "            draft.worklist.add(PLANNER, release(entry, worker_id, draft.clock))\n",
        "        end_tenure(draft, worker_id)\n",
    ),
    Mutant(
        "the-place-of-the-lost-is-anybodys",
        "T3",
        "memory that a replica gives up is free for all before its successor is tried there",
        WORKERS,
        "    tenures.end_with(draft, worker_id, because)\n    draft.vacated.append(Vacancy(deployment, lost))\n",
        "    tenures.end_with(draft, worker_id, because)\n    draft.worklist.add(PLANNER, lost)\n",
    ),
    Mutant(
        "a-victim-is-lowered-twice",
        "R9",
        "the target falls once more for a victim that its ranks have let go already",
        PLANNER,
        "replica is not None and replica.state is not DRAINING:",
        "replica is not None:",
    ),
    Mutant(
        "offload-before-the-routes-are-gone",
        "P5",
        "what the planner commands goes out beside what the ranks of that deployment command, and not behind it",
        PLANNER,
        "    if entry is None:\n        draft.released",
        "    if entry is None or moves:\n        draft.released",
    ),
    Mutant(
        "a-node-is-used-before-all-have-reported",
        "T11",
        "a node is told to the planner while a worker that was found there has not reported",
        ADOPTION,
        "worker in here.items()):\n        return\n",
        "worker in here.items()):\n        pass\n",
    ),
    Mutant(
        "who-is-silent-is-waited-for",
        "T11",
        "a worker that was found and does not report is asked again, and its node never used",
        ADOPTION,
        '            kill(draft, worker_id, f"it has not reported',
        '            draft.note(ClusterNoteKind.LATE, "T11", because=f"it has not reported',
    ),
    Mutant(
        "unknown-is-zero",
        "T11",
        "right after a restart nobody waits, as far as is known, so what loads for those who wait is let go",
        ADOPTION,
        "replace(draft.weights, unknown_until=draft.clock + UNKNOWN_S)",
        "replace(draft.weights, unknown_until=None)",
    ),
    Mutant(
        "a-load-under-way-is-begun-again",
        "T11",
        "a load of the last controller is not counted for the replica that asks for one",
        TENURES,
        "each.report.phase in (Phase.LOADING, Phase.SERVING) for each in mine)\n",
        "each.report.phase is Phase.SERVING for each in mine)\n",
    ),
    Mutant(
        "who-is-hot-without-a-rank-is-passed-over",
        "T11",
        "a worker that was found HOT, and is no replica, is not counted for the replica that asks for one",
        TENURES,
        "each.report.phase in (Phase.LOADING, Phase.SERVING) for each in mine)\n",
        "each.report.phase is Phase.LOADING for each in mine)\n",
    ),
    Mutant(
        "a-frame-of-the-last-tenure",
        "P4",
        "a worker takes what was meant for a tenure that it has left",
        "rankcore/replica/messages.py",
        "    if replica is not None and message.replica_id == replica.replica_id:\n",
        "    if replica is not None:\n",
    ),
    Mutant(
        "a-tenure-twice",
        "P4",
        "a worker takes a tenure that it has left, or has said that it does not have",
        "rankcore/replica/worker.py",
        "    if age <= worker.newest:  # 1\n",
        "    if worker.replica is not None:\n",
    ),
    Mutant(
        "user-code-of-the-last-tenure-counts",
        "P4",
        "what user code of a tenure that was left comes to is said of the present one",
        "rankcore/replica/messages.py",
        "    if replica is None or replica.running is not ran.command:\n",
        "    if replica is None:\n",
    ),
)
