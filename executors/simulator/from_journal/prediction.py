"""What comes of what is there now, with something that happens and without: a live journal goes on in the simulator twice.

The state is the one that the controller has written down last, and the machine that decides is the controller's. What the world
does is measured: how often calls come, how long they take, how long starts took in the journal, what each node has free.
`python -m executors.simulator.from_journal.prediction` reads a question as JSON and writes the answer as JSON, so that whoever
asks does not do the work himself; it ends when whoever has started it ends.
"""

import json
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import attrs

from executors.checking import Checking
from executors.simulator.fields import FieldProblem
from executors.simulator.from_journal.calls import MeasuredCalls, MeasuredTimes
from executors.simulator.from_journal.going_on import GoingOn, go_on
from executors.simulator.from_journal.history import History, read_history
from executors.simulator.from_journal.scenario import ANY_NUMBER, DURATIONS
from executors.simulator.load.requests import RequestQueue
from executors.simulator.questions.settings import Setting
from executors.simulator.record.percentiles import quantile
from executors.simulator.run import Run, RunResult
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.faults import Fault, NodeLoss, ReplicaCrash
from executors.simulator.scenario.model import Change
from executors.simulator.scenario.moments import Moment
from executors.workers import end_with
from rankcore.errors import RankcoreError

Plain: TypeAlias = dict[str, Any]

POINTS = 300
"""A prediction has no more points in time than so many."""
WINDOW_S, RATE_S = 10.0, 5.0
"""Quantiles and rates are those of the calls that ended within so long before, as on the live page."""
SOON_S = 0.05
"""So long after now it happens: what is under way now has reached replicas by then, and is lost with them."""
TAIL_BYTES = 1 << 22
ROUNDING = 1e-6
BEHIND = 5
"""So far the process stands behind those that decide and answer calls, where a node has no processor to spare."""
FAILURES = (RankcoreError, ScenarioError, FieldProblem, ValueError, OSError)

HAPPENS: dict[str, Callable[[Moment, Plain], Fault | Change]] = {
    "node": lambda at, asked: NodeLoss(at=at, node=asked["node"]),
    "target": lambda at, asked: Change(at=at, deployment=asked["deployment"], fields={"target_replicas": asked["target"]}),
    "rank": lambda at, asked: ReplicaCrash(at=at, deployment=asked["deployment"], rank=asked["rank"]),
}
"""What can be asked: the node is lost now, the target is set now, the replica with the rank dies now."""


@attrs.frozen(kw_only=True)
class LiveQuestion:
    """A question, and what was measured for it.

    Attributes:
        journal: Of the controller.
        now: On the controller's clock; None: when the journal ends.
        asked: `happens`, a key of `HAPPENS`, with the fields that it needs; `deployment`: which the sentence is about.
        horizon_s: How far to look ahead.
        calls: What was measured of calls, by deployment.
        free: What each node that is alive has free, by Ray's names of resources; None: nobody says.
    """

    journal: Path
    now: float | None
    asked: Plain
    horizon_s: float
    calls: Mapping[str, MeasuredCalls]
    free: Mapping[str, Mapping[str, float]] | None = None
    seed: int = 0

    @classmethod
    def of(cls, given: Plain) -> "LiveQuestion":
        """What `to_plain` made of it."""
        calls = {
            name: MeasuredCalls(**{**each, "took": MeasuredTimes(**each["took"])}) for name, each in given.pop("calls").items()
        }
        return cls(journal=Path(given.pop("journal")), calls=calls, **given)

    def to_plain(self) -> Plain:
        """As JSON has it."""
        return {**attrs.asdict(self), "journal": str(self.journal)}


def predict(question: LiveQuestion) -> Plain:
    """The predicted lanes of all deployments with what was asked and without, a sentence, and what it was computed with.

    Raises:
        RankcoreError, ScenarioError, ValueError: The journal cannot be gone on with now, or has no such thing; says why.
    """
    name = question.asked["deployment"]
    history, at = _present(question)
    if name not in history.states:
        why = history.left_out.get(name, "is not in the journal (yet)")
        raise ValueError(f"deployment: {name} {why}")
    room = _room(history, name, question.free) if question.free is not None else None
    arrivals = {
        each: calls.arrivals(at, question.horizon_s, Random(f"{question.seed} {each}"))
        for each, calls in question.calls.items()
        if each in history.states
    }
    until = Setting("duration_s", repr(at + question.horizon_s))
    going_on = go_on(question.journal, history, at, question.seed, (until,), room=room, arrivals=arrivals)
    going_on.run.world.story.checking = Checking.END  # else most of the time goes into that, and a big target takes minutes
    happens = HAPPENS[question.asked["happens"]](Moment(offset_s=at + SOON_S), question.asked)
    other = going_on.run.fork()
    other.inject(happens)
    without, then = (_foretell(run, at, question.horizon_s) for run in (going_on.run, other))
    return {
        "answer": answer(question, without[name], then[name]),
        "at": at,
        "deployment": name,
        "horizon_s": question.horizon_s,
        "lanes": {each: {"without": without[each], "then": then[each]} for each in sorted(then)},
        "rates": _rates(question, history),
        "assumed": _assumed(question, history, going_on, room),
    }


def _present(question: LiveQuestion) -> tuple[History, float]:
    """What the journal says up to now, and when that is. Whatever is written while it is read is left for the next question."""
    at = max(_last_at(question.journal), question.now or 0.0)
    history = read_history(question.journal, at, leave_out=True)
    later = history.aftermath
    later.faults[:] = [fault for fault in later.faults if fault["at"] <= at]
    later.changes.clear()
    later.left_out.clear()
    left_out = dict(history.left_out)
    for name, state in history.states.items():
        if state.spec.static_placement is not None:
            left_out[name] = "stands on a placement group, and a journal does not say where its bundles are"
    states = {name: state for name, state in history.states.items() if name not in left_out}
    return attrs.evolve(history, states=states, left_out=left_out), at


def _last_at(path: Path) -> float:
    """The time of the last whole line of a journal; 0: there is none that says one."""
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
        lines = file.read().split(b"\n")[:-1]
    for line in reversed(lines):
        try:
            data = json.loads(line)
            return float((data.get("event") or data.get("began"))["at"])
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return 0.0


def _room(history: History, name: str, free: Mapping[str, Mapping[str, float]]) -> dict[str, int]:
    """How many replicas each node holds, in replicas of this deployment; one that is not listed holds those that it has."""
    wanted = history.wanted.get(name)
    demand = wanted.demand if wanted is not None else {}
    held: dict[str, int] = {}
    for state in history.states.values():
        for replica in state.replicas.values():
            if replica.node_id is not None:
                held[replica.node_id] = held.get(replica.node_id, 0) + 1
    found = dict(held)
    for node_id, amounts in free.items():
        fit = [int((amounts.get(each, 0.0) + ROUNDING) // amount) for each, amount in demand.items() if amount > 0]
        found[node_id] = min(ANY_NUMBER, held.get(node_id, 0) + min(fit, default=ANY_NUMBER))
    return {node_id: count for node_id, count in found.items() if count > 0}


# -- a run, looked at once a second


def _foretell(run: Run, at: float, horizon_s: float) -> dict[str, Plain]:
    """The lanes of one run by deployment, in seconds from now on."""
    step_s = max(1.0, horizon_s / POINTS)
    curves = {name: _Curves(port.requests, step_s) for name, port in run.world.deployments.items()}
    for number in range(1, math.ceil(horizon_s / step_s) + 1):
        if run.is_over:
            break
        after_s = min(horizon_s, number * step_s)
        run.until(at + after_s)
        for each in curves.values():
            each.look(after_s)
    result = run.go()
    return {name: {**_lanes(result, name, at, horizon_s), **each.to_plain()} for name, each in curves.items()}


class _Curves:
    """What the calls of one deployment feel along a run."""

    def __init__(self, requests: RequestQueue, step_s: float) -> None:
        self._requests = requests
        self._step_s = step_s
        self._points: list[Plain] = []
        self._done = [0]

    def look(self, after_s: float) -> None:
        """One step on."""
        requests, counts = self._requests, self._requests.counts
        ended = sorted(counts.latencies_s[self._before(WINDOW_S)[0] :])
        before, for_s = self._before(RATE_S)
        self._points.append(
            {
                "t": round(after_s, 3),
                "waiting": requests.waiting,
                "in_flight": requests.unfinished - requests.waiting,
                "rate": round((counts.done - before) / for_s, 3),
                "p50": _rounded(quantile(ended, 0.5)),
                "p99": _rounded(quantile(ended, 0.99)),
            }
        )
        self._done.append(counts.done)

    def _before(self, window_s: float) -> tuple[int, float]:
        """How many had ended so long before, or at the beginning, and how long before that was."""
        steps = min(len(self._done), max(1, round(window_s / self._step_s)))
        return self._done[-steps], steps * self._step_s

    def to_plain(self) -> Plain:
        """All of it."""
        counts = self._requests.counts
        ends = {"done": counts.done, "lost": counts.lost, "failed": counts.failed, "expired": counts.expired}
        return {"points": self._points, "calls": {**ends, "retried": counts.retried}}


def _lanes(result: RunResult, name: str, at: float, horizon_s: float) -> Plain:
    end = at + horizon_s
    figures = next(each for each in result.deployments if each.name == name)
    sizes = [(max(0.0, since - at), size) for since, size in result.world_sizes[name] if since <= end]
    first = max((index for index, (since, _) in enumerate(sizes) if since == 0.0), default=0)
    return {
        "holds": [
            [hold.rank, hold.replica_id, hold.node_id, hold.phase.value, *_within(hold.since, hold.until, at, horizon_s)]
            for hold in result.holds[name]
            if hold.until > at and hold.since < end
        ],
        "gaps": [[gap.rank, *_within(gap.since, gap.until, at, horizon_s)] for gap in result.gaps[name] if gap.until > at],
        "sizes": sizes[first:],
        "status": figures.status,
        "broken": str(result.failure) if result.failure is not None else None,
    }


def _within(since: float, until: float, at: float, horizon_s: float) -> tuple[float, float]:
    return round(max(0.0, since - at), 3), round(min(horizon_s, until - at), 3)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


# -- in words


def answer(question: LiveQuestion, without: Plain, then: Plain) -> str:
    """One sentence: which ranks nobody serves and for how long, who waits, what becomes of calls."""
    asked, horizon_s = question.asked, question.horizon_s
    what = {
        "node": f"If node {str(asked.get('node'))[:12]} is lost now",
        "target": f"If the target of {asked['deployment']} is set to {asked.get('target')} now",
        "rank": f"If the replica with rank {asked.get('rank')} of {asked['deployment']} dies now",
    }[asked["happens"]]
    parts = [_ranks_in_words(without, then, horizon_s)]
    most = [max((point["waiting"] for point in each["points"]), default=0) for each in (then, without)]
    if any(most):
        parts.append(f"{_calls(most[0], 'wait', 'waits')} at most (else {most[1]})")
    worst = [max((point["p99"] or 0.0 for point in each["points"]), default=0.0) for each in (then, without)]
    if any(worst):
        parts.append(f"the worst p99 is {_seconds(worst[0])} (else {_seconds(worst[1])})")
    gone = sum(then["calls"][each] for each in ("lost", "failed", "expired"))
    if then["calls"]["done"] or gone:
        parts.append(_calls(gone, "get no answer", "gets no answer"))
    return f"{what}, within {_seconds(horizon_s)} {', '.join(parts)}."


def _ranks_in_words(without: Plain, then: Plain, horizon_s: float) -> str:
    size = then["sizes"][-1][1] if then["sizes"] else 0
    served = {hold[0] for hold in then["holds"] if hold[3] in ("running", "moving", "reconfiguring") and hold[5] >= horizon_s}
    never = [rank for rank in range(size) if rank not in served]
    longest = max((until - since for _, since, until in then["gaps"]), default=0.0)
    ranks = sorted({gap[0] for gap in then["gaps"]})
    if never:
        return f"{_ranks(never)} of {size} {'has' if len(never) == 1 else 'have'} nobody at the end"
    if ranks:
        return f"{_ranks(ranks)} of {size} {'has' if len(ranks) == 1 else 'have'} nobody for up to {_seconds(longest)}"
    before = without["sizes"][-1][1] if without["sizes"] else 0
    if size > before:
        first = dict.fromkeys(range(before, size), horizon_s)
        for rank, _, _, phase, since, _ in then["holds"]:
            if rank in first and phase == "running":
                first[rank] = min(first[rank], since)
        return f"all {size} ranks are served after {_seconds(max(first.values()))}"
    return f"no rank of {size} is without a replica"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(each) for each in ranks[:6])
    more = f" and {len(ranks) - 6} more" if len(ranks) > 6 else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"


def _calls(count: int, do: str, does: str) -> str:
    return f"{count} call {does}" if count == 1 else f"{count} calls {do}"


def _seconds(seconds: float) -> str:
    if seconds >= 60.0:
        minutes = seconds / 60.0
        return f"{minutes:.3g} min"
    return f"{seconds:.2g} s" if seconds < 10.0 else f"{seconds:.0f} s"


FIELDS = {
    "start_s": "from room on a node to a process that is up",
    "init_s": "user start-up code",
    "reconfigure_s": "reconfigure",
    "drain_s": "a stopping replica's end",
}


def _rates(question: LiveQuestion, history: History) -> list[Plain]:
    """What it was computed with, and where each number is from."""
    found: list[Plain] = []
    for name in sorted(history.states):
        calls = question.calls.get(name)
        if calls is not None:
            measured = f"measured, last {_seconds(calls.measured_s)}"
            found.append({"of": name, "what": "calls per second", "value": f"{calls.rate_per_s:.3g}", "from": measured})
            if calls.took.count:
                p50, p99 = (_seconds(calls.took.quantile(q) or 0.0) for q in (0.5, 0.99))
                value = f"mean {_seconds(calls.took.sum_s / calls.took.count)}, p50 {p50}, p99 {p99}"
                where = f"{measured}: {calls.took.count} calls"
                found.append({"of": name, "what": "time at the replica", "value": value, "from": where})
            found.append(
                {
                    "of": name,
                    "what": "calls at the start",
                    "value": f"{calls.waiting} wait, {calls.in_flight} at replicas",
                    "from": "now",
                }
            )
        for field in DURATIONS:
            samples = history.durations.get(name, {}).get(field)
            if samples:
                mean = sum(samples) / len(samples)
                value, where = f"mean {_seconds(mean)}", f"the journal: {len(samples)} times"
                found.append({"of": name, "what": FIELDS[field], "value": value, "from": where})
    return found


def _assumed(question: LiveQuestion, history: History, going_on: GoingOn, room: Mapping[str, int] | None) -> list[str]:
    found = [text for text in going_on.assumed if "nodes have room" not in text]
    found = [text.partition(" (--set")[0] for text in found]
    if room is None:
        found.append("nodes have room for any number of replicas: nobody says what they have free")
    else:
        found.append(f"room is counted in replicas of {question.asked['deployment']}, from what Ray says is free now")
    scaled = sorted(name for name, spec in history.wanted.items() if spec.autoscaling is not None)
    if scaled:
        found.append(f"the target of {', '.join(scaled)} stays as it is: autoscaling is not predicted")
    found += [f"{name} is left out: it {why}" for name, why in sorted(history.left_out.items())]
    found.append("calls come at random at the measured rate, and take as long as before however many a replica has at once")
    return found


def main() -> None:
    """A question on stdin, an answer on stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(BEHIND)
    question = LiveQuestion.of(json.loads(sys.stdin.buffer.readline()))
    end_with(sys.stdin.fileno())
    try:
        found = predict(question)
    except FAILURES as error:
        found = {"error": " ".join(str(error).split())}
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
