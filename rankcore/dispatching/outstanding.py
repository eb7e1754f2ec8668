"""What is still to be done for a fleet, for a controller that takes it over instead of having carried it here (D10)."""

from rankcore.dispatching.commands import Command, TellCaller
from rankcore.dispatching.ranking import told_again
from rankcore.dispatching.state import FleetState
from rankcore.routing.commands import Dispatch, Retry, StopAttempt, WakeAt


def outstanding(state: FleetState) -> tuple[Command, ...]:
    """Everything that a state waits for: what an executor is told that goes on from a snapshot, or after a crash.

    Each command is one that was given before: who has carried it out already answers again, and late news changes nothing.
    Costs O(the fleet's size).

    Returns:
        The moves of weights, in the order in which they were given; then what replicas have not acknowledged of their ranks;
        then what is in flight, or is to be stopped, the oldest
        request first; then what those who wait were told last, and then when to wake the core.
    """
    moves = sorted(state.moves.values(), key=lambda each: each.command.move)
    found: list[Command] = [each.command for each in moves]
    for model in sorted(state.models):
        ranking = state.models[model].ranking
        if ranking is not None:
            found.extend(told_again(ranking, state.residency))
    flights = []
    for model in sorted(state.models):
        for image in state.models[model].router.image.requests:
            if image.replica_id is not None:
                flights.append((state.requests[image.request_id].serial, image.replica_id, image))
    for _, replica_id, image in sorted(flights, key=lambda each: each[0]):
        if image.answered:
            found.append(StopAttempt(image.request_id, replica_id, image.attempt))
        elif image.attempt == 1:
            found.append(Dispatch(image.request_id, replica_id))
        else:
            found.append(Retry(image.request_id, replica_id, image.attempt, None, image.because))
    for request_id, request in state.unanswered.items():
        status = state.models[request.model].status
        if request.waits and status is not None:
            found.append(TellCaller(request_id, request.revision, status))
    if state.wake_at is not None:
        found.append(WakeAt(state.wake_at))
    return tuple(found)
