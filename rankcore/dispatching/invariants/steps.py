"""Promises about one step: who is answered, told, asked for and sent to."""

from collections import Counter
from collections.abc import Iterable

from rankcore.dispatching.commands import FINAL, StatusKind, TellCaller
from rankcore.dispatching.draft import model_of
from rankcore.dispatching.events import Event, ModelRequested
from rankcore.dispatching.notes import FleetNote, FleetNoteKind
from rankcore.dispatching.state import FleetState, FleetStep
from rankcore.kernel import Violation
from rankcore.residency import Phase
from rankcore.residency.commands import OffloadToCpu, UnloadFromGpu
from rankcore.routing import RequestId
from rankcore.routing.commands import Dispatch, Retry


def check_step(before: FleetState, event: Event, step: FleetStep) -> list[Violation]:
    """Check a step against the promises.

    Args:
        before: The state that the event was applied to.
        event: The event.
        step: What `fleet_step(before, event)` returned.

    Returns:
        What is broken; empty when all promises hold.
    """
    return [
        *_one_answer_each(before, event, step),
        *_told(before, event, step),
        *_sent(before, step),
        *_ranked(before, step),
        *_asked(step),
    ]


def _open(state: FleetState) -> set[RequestId]:
    return {request_id for request_id, request in state.requests.items() if not request.answered}


def _arrived(before: FleetState, event: Event) -> set[RequestId]:
    if isinstance(event, ModelRequested) and event.request_id not in before.requests:
        return {event.request_id}
    return set()


def _one_answer_each(before: FleetState, event: Event, step: FleetStep) -> Iterable[Violation]:
    """D1: who had no answer, or has just come, either has none still or was given exactly one."""
    had_none = _open(before) | _arrived(before, event)
    finals = Counter(command.request_id for command in step.commands if isinstance(command, FINAL))
    for request_id, times in finals.items():
        if times > 1 or request_id not in had_none:
            yield Violation("D1", f"request {request_id!r} is answered {times} times, or again")
    for request_id in sorted(had_none ^ (_open(step.state) | finals.keys()), key=repr):
        yield Violation("D1", f"request {request_id!r} vanished, or came back, without an answer")


def _told(before: FleetState, event: Event, step: FleetStep) -> Iterable[Violation]:
    """D5: what is told has a revision above all earlier ones, is about an open request, and is never said twice."""
    newest, over = before.revision, set()
    ready: set[RequestId] = set()
    had_none = _open(before) | _arrived(before, event)
    for command in step.commands:
        if isinstance(command, FINAL):
            over.add(command.request_id)
        if not isinstance(command, TellCaller):
            continue
        if command.revision <= newest:
            yield Violation("D5", f"request {command.request_id!r} is told {command.revision} after {newest}")
        newest = command.revision
        if command.request_id in over or command.request_id not in had_none:
            yield Violation("D5", f"request {command.request_id!r} is over, and told {command.status.kind}")
        if command.status.kind is StatusKind.READY:
            request = before.requests.get(command.request_id)
            if request is None or not request.waits or command.request_id in ready:
                yield Violation("D5", f"request {command.request_id!r} is told that it is ready, and did not wait")
            ready.add(command.request_id)
        else:
            yield from _told_anew(before, command)


def _told_anew(before: FleetState, command: TellCaller) -> Iterable[Violation]:
    request = before.requests.get(command.request_id)
    if request is not None and request.waits and before.models[request.model].status == command.status:
        yield Violation("D5", f"request {command.request_id!r} is told again what it knows")


def _sent(before: FleetState, step: FleetStep) -> Iterable[Violation]:
    """D6: requests go to replicas that are SERVING, and to nobody who was told to leave."""
    leaving = set()
    for command in step.commands:
        if isinstance(command, (OffloadToCpu, UnloadFromGpu)):
            leaving.add(command.replica_id)
        elif isinstance(command, (Dispatch, Retry)):
            phases = [
                state.residency.replicas[command.replica_id].phase
                for state in (before, step.state)
                if command.replica_id in state.residency.replicas
            ]
            if Phase.SERVING not in phases or command.replica_id in leaving:
                yield Violation("D6", f"request {command.request_id!r} is sent to {command.replica_id}: {phases}")


def _ranked(before: FleetState, step: FleetStep) -> Iterable[Violation]:
    """D12: where replicas have ranks, a request goes to one that knows its rank, or has had requests before."""
    for command in step.commands:
        if isinstance(command, (Dispatch, Retry)):
            model = model_of(command.replica_id)
            served, earlier = step.state.models.get(model), before.models.get(model)
            routed = earlier is not None and command.replica_id in earlier.routed
            ranking = None if served is None or routed else served.ranking
            if ranking is not None and not ranking.takes_requests(command.replica_id, routed=False):
                yield Violation("D12", f"request {command.request_id!r} is sent to {command.replica_id}, which has no rank")


def _asked(step: FleetStep) -> Iterable[Violation]:
    """D2: a model is asked for once, however many wait."""
    kinds = [each.model for each in step.notes if isinstance(each, FleetNote) and each.kind is FleetNoteKind.ASKED_FOR]
    for model, times in Counter(kinds).items():
        if times > 1:
            yield Violation("D2", f"{model!r} is asked for {times} times")
