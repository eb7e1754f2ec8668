"""A scenario that is a recorded run: its deployments, how long things took there, its calls, and what happened to it.

**What.** The journal says when the core asked for something and when it was told that it is done; the request files say when
calls came, and for how long replicas had them. The scenario has just these: each duration as a list of what was measured, each
call with its time and its service, each fault and each change at its time, counted from the deployment on.

**What is taken off.** A duration in a journal includes the ways of messages to the replica and from it, which the simulator
lets pass too: for each the latency of a scenario's network is taken off. A replica that
drains first answers what it has: of that the request files know, so `drain_s` is what is left behind its last answer.

**What cannot be known.** How long a call would have taken whose replica died: it is given the mean of those that took longer
than it had been there. How many GPUs a node has that a journal does not say: as many as anybody wants. A distribution of fewer
than `SAMPLES_MIN` samples is their mean, and one of none the default of scenarios; the file marks both.

**What may differ.** A core of another release may say other things of what it does, and have other states: a recording is read
as long as the core commands the same. Who wants to know whether all is the same has `rankcore replay`.

**Which calls are whose.** Calls of another run fit well enough to be believed. A journal and its request files have the id of
their run; files of releases that gave none are of one run as far as the journal has started whom the calls went to.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from executors.engine.deployments import Entry
from executors.engine.kinds import AnyStep
from executors.engine.reading import JournalError
from executors.engine.request_file import CallTokens, RecordedRequest
from executors.engine.request_reading import NS, RequestFileReader, beside
from executors.engine.run_id import run_of
from executors.simulator.from_journal.durations import Measured
from executors.simulator.from_journal.history import History, read_history
from executors.simulator.from_journal.rank_history import HistoryRecorder, RankChange
from executors.simulator.from_journal.scenario import DURATIONS, nodes_of, routing_of
from executors.simulator.from_journal.specs import fields_of
from executors.simulator.replicas.life import RecordedTimes
from executors.simulator.scenario.hardware import DEFAULT_LATENCY
from executors.simulator.scenario.model import POLICY, SPEC_FIELDS
from rankcore.commands import StartReplica
from rankcore.values import ReplicaId

Plain: TypeAlias = dict[str, Any]

SAMPLES_MIN = 5
"""Fewer say something of a mean, and nothing of how durations spread."""
DONE = "done"
NO_CALLS = "expected a request file with calls of its deployments beside it, found none"


@attrs.frozen
class RecordedCall:
    """A call of a recorded run, in seconds from the deployment on.

    Attributes:
        sent_at: When it went to the replica that answered it; None: to none.
        ended_at: When its caller had the answer, or was told that there is none.
        tokens: Of prompt and output; None: its answer did not say them.
    """

    deployment: str
    replica_id: ReplicaId
    at: float
    sent_at: float | None
    ended_at: float
    outcome: str
    tokens: tuple[int, int] | None = None


@attrs.frozen
class RecordedWorld:
    """What two kinds of files say together.

    Attributes:
        begun_at: When the deployment was asked for, on the journal's clock: 0 of the scenario.
        calls: In the order of their arrival.
        measured: Durations without what the simulator adds itself.
        clock_error_s: How far calls may be off beside the journal; 0: there are none.
        dropped: How many calls are missing.
        routing: How calls are routed, by deployment, as far as request files say so: fields of a scenario.
        warnings: What else cannot be known.
        changes: The history of ranks, in seconds from the deployment on.
    """

    path: Path
    history: History
    begun_at: float
    calls: Sequence[RecordedCall]
    measured: Sequence[Measured]
    clock_error_s: float
    dropped: int
    routing: Mapping[str, Plain]
    warnings: tuple[str, ...]
    changes: Sequence[RankChange]

    @property
    def epochs(self) -> dict[int, int]:
        """The numbers that the recording's controllers have in a simulation, which counts them from 1."""
        found = {_epoch(each.replica_id) for each in self.measured}
        return {each: number for number, each in enumerate(sorted(found), 1)}

    def arrivals(self, deployment: str) -> tuple[list[float], list[float]]:
        """When its calls came, and how long each takes a replica."""
        calls = [call for call in self.calls if call.deployment == deployment]
        took = sorted(_took_s(call) for call in calls if call.outcome == DONE)
        return [call.at for call in calls], [
            _took_s(call) if call.outcome == DONE else _would_take(call, took) for call in calls
        ]

    def tokens(self, deployment: str) -> list[tuple[int, int]] | None:
        """Of prompt and output of each of its calls; of one whose answer did not say, the means. None: none did."""
        found = [call.tokens for call in self.calls if call.deployment == deployment]
        said = [each for each in found if each is not None]
        if not said:
            return None
        prompts, outputs = (round(sum(each) / len(said)) for each in zip(*said, strict=True))
        return [(prompts, outputs) if each is None else each for each in found]

    def recorded(self) -> RecordedTimes:
        """What took each replica how long, for a run that is to be like this one; its controllers are numbered from 1."""
        found: defaultdict[tuple[str, ReplicaId], list[float]] = defaultdict(list)
        for each in self.history.measured:
            took_s = max(0.0, each.took_s - _on_the_way_s(each))
            found[each.field, _renumbered(each.replica_id, self.epochs)].append(took_s)
        return dict(found)


def read_recorded(path: Path, requests: Iterable[Path] | None = None) -> RecordedWorld:
    """Read a journal and its request files.

    Args:
        requests: The request files; None: those beside the journal.

    Raises:
        JournalError: One is damaged, calls are of another run, or the journal does not begin with a deployment.
        OSError: One cannot be read.
    """
    seen = _Seen()
    history = read_history(path, None, exact=False, also=seen.look)
    begun_at = history.at
    calls: list[RecordedCall] = []
    routing: dict[str, Plain] = {}
    error_s, dropped, warnings = 0.0, 0, [] if history.warning is None else [history.warning]
    for file in beside(path) if requests is None else requests:
        reader = RequestFileReader(file)
        read = list(reader)
        warnings += _of_one_run(path, history, seen.started, reader, read)
        if read:
            clock = reader.clock
            zero_s = clock.at_s - clock.ns / NS - begun_at
            calls += [_call(each, zero_s, reader.tokens.get(each.id)) for each in read]
            error_s = max(error_s, clock.error_s)
        dropped += reader.dropped
        routing |= reader.about.get("routing", {})
        warnings += [] if reader.warning is None else [reader.warning]
    calls.sort(key=lambda call: call.at)
    if early := sum(1 for call in calls if call.at < 0):
        warnings.append(f"{path}: {early} calls came before the deployment was asked for, and are left out")
    if strange := sorted({call.deployment for call in calls} - set(history.states)):
        count = sum(1 for call in calls if call.deployment in strange)
        warnings.append(f"{path}: {count} calls are of {', '.join(strange)}, which it does not have: they are left out")
    calls = [call for call in calls if call.at >= 0 and call.deployment in history.states]
    ends_at = history.ends_at - begun_at
    if history.warning is not None and (later := sum(1 for call in calls if call.ended_at > ends_at + error_s)):
        what = f"its last line is of {ends_at:.1f} s, and {later} of {len(calls)} calls ended later"
        warnings.append(f"{path}: {what}: what became of replicas then is not known")
    answers = _last_answers(calls)
    measured = [_without_the_way(each, begun_at, answers) for each in history.measured]
    changes = seen.ranks.changes(begun_at)
    return RecordedWorld(path, history, begun_at, calls, measured, error_s, dropped, routing, tuple(warnings), changes)


class _Seen:
    """What else is kept of a journal as it is read: the history of ranks, and who was ever started."""

    def __init__(self) -> None:
        self.ranks = HistoryRecorder()
        self.started: set[ReplicaId] = set()

    def look(self, entry: Entry, before: object, step: AnyStep) -> None:
        """One line."""
        self.ranks.look(entry, before, step)
        self.started.update(each.replica_id for each in entry.commands if isinstance(each, StartReplica))


def _of_one_run(
    journal: Path, history: History, started: Set[ReplicaId], reader: RequestFileReader, calls: Iterable[RecordedRequest]
) -> list[str]:
    """Look whether a request file is of the journal's run; what cannot be known of that.

    Raises:
        JournalError: It is of another one.
    """
    file, run = reader.path, run_of(reader.about)
    if run is not None and history.run is not None:
        if run != history.run:
            raise JournalError(file, 1, f"expected calls of {journal}, which is of run {history.run}, found those of run {run}")
        return []
    sent = Counter(call.replica_id for call in calls if call.replica_id and call.deployment in history.states)
    strange = sorted(sent.keys() - started)
    if strange and history.warning is None:
        raise JournalError(file, 1, f"expected calls of {journal}, found some to {strange[0]}, which it never starts")
    unsure = [f"{file}: no id says that it is of the same run as {journal}: it or the journal is of an older release"]
    count = sum(sent[each] for each in strange)
    return [*unsure, f"{file}: {count} calls went to replicas that {journal} never starts"] if strange else unsure


def scenario_parts(world: RecordedWorld) -> tuple[Plain, dict[str, Plain], dict[str, dict[str, str]]]:
    """What a scenario of it says; of each deployment; and which of its durations are how well known, in words."""
    history = world.history
    nodes, there = nodes_of(history, {}), history.states
    faults = [each for each in history.aftermath.faults if each.get("node", next(iter(nodes), "")) in nodes]
    whole: Plain = {
        "name": world.path.name,
        "seed": 0,
        "nodes": [{"name": node_id, "gpus": gpus} for node_id, gpus in nodes.items()],
        "faults": [_shifted(each, world) for each in faults if each.get("deployment", next(iter(there))) in there],
        "changes": [_shifted(each, world) for each in history.aftermath.changes if each["deployment"] in there],
    }
    deployments: dict[str, Plain] = {}
    marks: dict[str, dict[str, str]] = {}
    for name, state in sorted(history.states.items()):
        durations, marks[name] = _durations(each for each in world.measured if each.deployment == name)
        deployments[name] = {**fields_of(state.spec, SPEC_FIELDS), **_routing(world, name), **durations}
    return whole, deployments, marks


def _routing(world: RecordedWorld, deployment: str) -> Plain:
    """How its calls are routed, as the journal of a cluster says it, or the caller; sessions are left out."""
    found = {**world.routing.get(deployment, {}), **routing_of(world.history, deployment)}
    return found if found.get(POLICY) != "affinity" else {key: each for key, each in found.items() if key != POLICY}


def _durations(measured: Iterable[Measured]) -> tuple[Plain, dict[str, str]]:
    samples: defaultdict[str, list[float]] = defaultdict(list)
    for each in measured:
        samples[each.field].append(round(each.took_s, 6))
    found: Plain = {}
    marks = {}
    for field in DURATIONS:
        values = samples[field]
        if len(values) >= SAMPLES_MIN:
            found[field] = {"empirical": values}
        elif values:
            found[field] = math.fsum(values) / len(values)
            marks[field] = f"the mean of {len(values)} sample{'s' if len(values) > 1 else ''}"
        else:
            marks[field] = ""
    return found, marks


def _call(each: RecordedRequest, zero_s: float, tokens: CallTokens | None) -> RecordedCall:
    sent_at = None if each.dispatched is None else each.dispatched / NS + zero_s
    times = (each.arrived / NS + zero_s, sent_at, each.ended / NS + zero_s)
    size = None if tokens is None else (tokens.prompt, tokens.output)
    return RecordedCall(each.deployment, each.replica_id, *times, each.outcome, size)


def _took_s(call: RecordedCall) -> float:
    return max(0.0, call.ended_at - (call.at if call.sent_at is None else call.sent_at))


def _would_take(call: RecordedCall, took: Sequence[float]) -> float:
    """How long a replica would have worked on a call that nobody finished, by those that were finished, ascending."""
    had_s = _took_s(call) if call.sent_at is not None else 0.0
    longer = [each for each in took if each > had_s]
    return math.fsum(longer) / len(longer) if longer else had_s


def _last_answers(calls: Iterable[RecordedCall]) -> Mapping[ReplicaId, list[float]]:
    found: defaultdict[ReplicaId, list[float]] = defaultdict(list)
    for call in calls:
        if call.sent_at is not None:
            found[call.replica_id].append(call.ended_at)
    return found


def _without_the_way(each: Measured, begun_at: float, answers: Mapping[ReplicaId, list[float]]) -> Measured:
    took_s = each.took_s - _on_the_way_s(each)
    if each.field == "drain_s":
        asked_at, ended_at = each.asked_at - begun_at, each.asked_at - begun_at + each.took_s
        last = max((at for at in answers.get(each.replica_id, ()) if at <= ended_at), default=asked_at)
        took_s = min(took_s, ended_at - last)
    return each._replace(took_s=max(0.0, took_s))


def _on_the_way_s(each: Measured) -> float:
    return each.ways * DEFAULT_LATENCY.value


def _shifted(happens: Plain, world: RecordedWorld) -> Plain:
    """A fault or a change at its time in the scenario, with its replicas as they are called there."""
    found = {**happens, "at": max(0.0, happens["at"] - world.begun_at)}
    if "stop_first" in found:
        found["stop_first"] = [_renumbered(each, world.epochs) for each in found["stop_first"]]
    return found


def _epoch(replica_id: ReplicaId) -> int:
    return int(replica_id.rpartition("#")[2].partition(".")[0])


def _renumbered(replica_id: ReplicaId, epochs: Mapping[int, int]) -> ReplicaId:
    whose, _, number = replica_id.rpartition("#")
    return f"{whose}#{epochs.get(_epoch(replica_id), 1)}.{number.partition('.')[2]}"
