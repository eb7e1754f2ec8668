"""A model is asked for when somebody waits for it, once, and given up when it cannot be had (D2, D4, D7)."""

from rankcore.dispatching.alarms import AlarmKind
from rankcore.dispatching.draft import Draft
from rankcore.dispatching.notes import FleetNoteKind
from rankcore.dispatching.standing import cannot_start, has_given_up, is_on_the_way, reason_of, wanted
from rankcore.residency import Phase
from rankcore.residency.events import ScaleRequested


def provide(draft: Draft, model: str) -> None:
    """Look at what waits for a model, and at what is on its way. Does nothing the second time."""
    served = draft.models[model]
    if not served.waiting or served.routed:
        draft.set_alarm(AlarmKind.ROOM, model, None)
        if served.demanded:
            _reconsider(draft, model)
    elif draft.residency.target(model) == 0:
        _ask_for(draft, model)
    elif has_given_up(draft, model):
        _give_up(draft, model, f"model {model!r} cannot be loaded: {reason_of(draft, model)}")
    elif cannot_start(draft, model):
        ranking = draft.models[model].ranking
        assert ranking is not None
        why = f"{ranking.failures} in a row failed: {ranking.because}"
        _give_up(draft, model, f"replicas of model {model!r} do not start: {why}")
    elif is_on_the_way(draft, model):
        draft.set_alarm(AlarmKind.ROOM, model, None)
    else:
        _wait_for_room(draft, model)


def _ask_for(draft: Draft, model: str) -> None:
    """Nothing of it is HOT, on its way or wanted: one replica is asked for, however many requests wait (D2)."""
    draft.update(model, demanded=True)
    why = f"{len(draft.models[model].waiting)} requests wait, and none of its replicas is HOT"
    draft.note(FleetNoteKind.ASKED_FOR, "D2", model, because=why)
    draft.plan(ScaleRequested(model=model, replicas=1, at=draft.clock))
    draft.touched.add(model)


def _reconsider(draft: Draft, model: str) -> None:
    """Nobody waits for it any more: what has no place yet is not asked for any longer, what is being loaded arrives."""
    if draft.models[model].routed or draft.residency.target(model) == 0:
        draft.update(model, demanded=False)
    elif not is_on_the_way(draft, model):
        draft.update(model, demanded=False)
        why = "nobody waits for it any more, and it had no place yet"
        draft.note(FleetNoteKind.WITHDRAWN, "D7", model, because=why)
        draft.plan(ScaleRequested(model=model, replicas=0, at=draft.clock))


def _ask_anew(draft: Draft, model: str) -> bool:
    """Models of one request of a user never displace each other (T4); who waits now is another reason than that request.

    Returns:
        Whether it was asked for anew, which is worth it once, and for nothing that backs off after a failed load.
    """
    replicas = draft.residency.target(model)
    backs_off = any(each.failures or each.phase is not Phase.WAITING for each in wanted(draft, model))
    if model in draft.asked or draft.models[model].demanded or backs_off:
        return False
    draft.asked.add(model)
    draft.note(FleetNoteKind.ASKED_FOR, "D4", model, because="requests wait for it, and no replica of it has a place")
    draft.plan(ScaleRequested(model=model, replicas=0, at=draft.clock))
    draft.plan(ScaleRequested(model=model, replicas=replicas, at=draft.clock))
    draft.touched.add(model)
    return True


def _give_up(draft: Draft, model: str, because: str) -> None:
    """It cannot be had: whoever waits for it is told so, and whoever asks within a while (D7)."""
    draft.update(model, failed_until=draft.clock + draft.policy.failed_for_s, failed_because=because)
    draft.fail_waiting(model, because)


def try_again(draft: Draft, model: str) -> None:
    """Its loads have failed for good, and nobody who waited was told so just now: who asks has it loaded again (D7)."""
    replicas = draft.residency.target(model)
    if replicas and has_given_up(draft, model):
        draft.asked.add(model)
        draft.note(FleetNoteKind.ASKED_FOR, "D7", model, because="it is asked for again, a while after its loads have failed")
        draft.plan(ScaleRequested(model=model, replicas=replicas, at=draft.clock))


def _wait_for_room(draft: Draft, model: str) -> None:
    """Nothing of it has a place: whoever waits does so for `wait_for_room_s` at most (D7)."""
    due = draft.alarms.times.get((AlarmKind.ROOM, model))
    if due is None and _ask_anew(draft, model):
        return
    if due is None:
        due = draft.clock + draft.policy.wait_for_room_s
        draft.set_alarm(AlarmKind.ROOM, model, due)
    if due <= draft.clock:
        draft.set_alarm(AlarmKind.ROOM, model, None)
        waited = f"for {draft.policy.wait_for_room_s:g} s" if draft.policy.wait_for_room_s else "now"
        draft.fail_waiting(model, f"there is no room for model {model!r} {waited}: {reason_of(draft, model)}")
