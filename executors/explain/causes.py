"""The world's side of a story: what the events say that others follow from."""

from typing import Any

import attrs

from executors.engine.deployments import Deployed, Entry, Recovered, Resumed
from executors.explain.facts import Fact
from executors.explain.memory import Memory
from executors.explain.wording import listed, placed, plural
from rankcore import DeploymentSpec
from rankcore.commands import AnnounceWorldSize
from rankcore.events import (
    DeleteRequested,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    NodeUncordoned,
    ReplaceRequested,
    ReplicasLeave,
    RetryRequested,
    SpecChanged,
    StopRequested,
    TrialRequested,
)
from rankcore.notes import NoteKind


def tell_cause(memory: Memory, entry: Entry, done: list[Fact]) -> list[Fact]:
    """What happened, if later facts may follow from it; news of single replicas is told with what was decided about it.

    Args:
        done: What the line has told before, such as what made a cluster change a target.
    """
    match entry.cause:
        case Deployed(spec=spec):
            return [_deployed(memory, entry, spec)]
        case Recovered():
            return _recovered(memory, entry, entry.cause)
        case Resumed():
            return [_resumed(memory, entry, entry.cause)]
        case SpecChanged():
            return _spec_changed(memory, entry, entry.cause)
        case DeleteRequested(at=at):
            memory.deleted = _fact(entry, at, f"somebody asked for the end of {memory.name}", "the request to delete it")
            return [memory.deleted]
        case StopRequested(replica_ids=replica_ids, at=at):
            who = f"{listed(replica_ids)} is to be stopped" if done else f"somebody asked to stop {listed(replica_ids)}"
            why = _why_of(done, replica_ids)
            return [_fact(entry, at, f"{who}, to be replaced", "the request to stop it", replica_ids=replica_ids, causes=why)]
        case ReplicasLeave(replica_ids=replica_ids, at=at):
            return _leave(memory, entry, replica_ids, done)
        case TrialRequested(at=at) if not done and any(note.kind is NoteKind.RANK_CHOSEN for note in entry.notes):
            text = f"somebody asked to try {memory.name} once more with one replica, though its version has failed"
            return [_fact(entry, at, text, "the request to try it once more", rule="D7", is_change=True)]
        case RetryRequested(at=at) if not done and any(note.kind is NoteKind.RETRIED for note in entry.notes):
            return [_fact(entry, at, "somebody asked to try again now what failed", "the request to try it again")]
        case NodeLost(node_id=node_id, at=at) if not done:
            return [_fact(entry, at, f"node {node_id} was lost", f"the loss of node {node_id}")]
        case NodeCordoned(node_id=node_id, at=at) if not done:
            return [_fact(entry, at, f"node {node_id} was cordoned: nothing new goes there", f"the cordon of node {node_id}")]
        case NodeUncordoned(node_id=node_id, at=at) if not done:
            return [_fact(entry, at, f"node {node_id} was uncordoned", f"the end of the cordon of node {node_id}")]
        case NodeDrainRequested(node_id=node_id, deadline_at=deadline_at, reason=reason, at=at) if not done:
            until = f" within {deadline_at - at:g} s" if deadline_at is not None else ""
            return [_fact(entry, at, f"node {node_id} is to be left{until} ({reason})", f"the drain of node {node_id}")]
        case ReplaceRequested(replica_ids=replica_ids, at=at):
            text = f"somebody asked to replace {listed(replica_ids)}"
            return [_fact(entry, at, text, "the request to replace it", replica_ids=replica_ids)]
        case _:
            return []


def _fact(entry: Entry, at: float, text: str, short: str, **more: Any) -> Fact:
    return Fact(line=entry.line, at=at, text=text, short=short, **more)


def _why_of(done: list[Fact], replica_ids: tuple[str, ...]) -> tuple[Fact, ...]:
    """The last thing that the line has said of one of these, or else of anything."""
    return (*(fact for fact in reversed(done) if not set(replica_ids).isdisjoint(fact.replica_ids)), *done[-1:])[:1]


def _leave(memory: Memory, entry: Entry, replica_ids: tuple[str, ...], done: list[Fact]) -> list[Fact]:
    """They leave for good, and the world size falls with them; late news of it changes nothing."""
    sizes = [each.world_size for each in entry.commands if isinstance(each, AnnounceWorldSize)]
    if not sizes or memory.spec is None:
        return []
    why = _why_of(done, replica_ids)
    text = f"{listed(replica_ids)} {'leaves' if len(replica_ids) == 1 else 'leave'} for good, and the world size falls"
    text += f" from {memory.spec.target_replicas} to {sizes[-1]}"
    short = f"the loss of {listed(replica_ids)}"
    fact = _fact(entry, memory.clock, text, short, rule="R9", replica_ids=replica_ids, causes=why, is_change=True)
    memory.spec, memory.resized = attrs.evolve(memory.spec, target_replicas=sizes[-1]), fact
    return [fact]


def _deployed(memory: Memory, entry: Entry, spec: DeploymentSpec) -> Fact:
    wanted = plural(spec.target_replicas, "replica")
    text = f"{spec.name} was deployed: {wanted} of version {spec.version}"
    memory.spec = spec
    memory.resized = memory.updated = _fact(entry, memory.clock, text, "its deployment")
    return memory.resized


def _recovered(memory: Memory, entry: Entry, how: Recovered) -> list[Fact]:
    found = plural(len(how.replica_ids), "replica")
    back = _fact(
        entry, how.at, f"the controller came back in epoch {how.epoch} and found {found}", "the return of the controller"
    )
    missing = sorted(set(memory.lives) - set(how.replica_ids))
    gone = []
    for replica_id in missing:
        rank = memory.lives[replica_id].global_rank
        text = f"{replica_id} was gone when the controller came back" + (f"; it had rank {rank}" if rank is not None else "")
        fact = Fact(
            line=entry.line,
            at=how.at,
            text=text,
            short=f"the end of {replica_id}",
            causes=(back,),
            replica_ids=(replica_id,),
            ranks=() if rank is None else (rank,),
            is_change=True,
        )
        memory.end(replica_id, fact)
        gone.append(fact)
    for life in memory.lives.values():
        life.leaving = life.moving = None  # what the last controller had asked for is asked for again, or not at all
    memory.kept.clear()
    memory.duplicates.clear()
    memory.spec, memory.recovered = how.spec, back
    for replica_id in how.replica_ids:
        memory.life(replica_id)
    return [back, *gone]


def _resumed(memory: Memory, entry: Entry, how: Resumed) -> Fact:
    state = how.state
    memory.spec, memory.status = state.spec, str(state.status)
    text = (
        f"the journal goes on from a state with {plural(len(state.replicas), 'replica')}, and says nothing of what was before"
    )
    begun = memory.resized = memory.updated = _fact(entry, state.clock, text, "the beginning of the journal")
    for replica_id in sorted(memory.lives):
        memory.end(replica_id, begun)
    for replica_id in sorted(state.replicas):
        replica = state.replicas[replica_id]
        if replica.node_id is not None:
            memory.place(replica_id, replica.node_id)
        if replica.told is not None:
            memory.rank(replica_id, replica.told, begun, replica.believed)
        life = memory.life(replica_id)
        life.slot, life.since = replica.slot, state.clock
    return begun


def _spec_changed(memory: Memory, entry: Entry, event: SpecChanged) -> list[Fact]:
    old, new = memory.spec, event.spec
    retargeted, memory.retargeted = memory.retargeted, None
    if retargeted is not None:  # another target and nothing else, which has been told
        memory.spec, memory.resized = new, retargeted
        return []
    applied = any(note.kind is NoteKind.SPEC_APPLIED for note in entry.notes)
    if old is None or not applied:
        return [_fact(entry, event.at, f"{memory.name} was to be changed, which changed nothing", "a change that was late")]
    words, short = _difference(old, new)
    fact = _fact(entry, event.at, f"somebody changed {memory.name}: {', '.join(words)}", short)
    if event.stop_first:
        fact.text += f"; {listed(event.stop_first)} to be stopped first"
    memory.spec = new
    if new.target_replicas != old.target_replicas:
        memory.resized = fact
    if new.build != old.build or new.placement != old.placement:
        memory.updated = fact
    return [fact]


def _difference(old: DeploymentSpec, new: DeploymentSpec) -> tuple[list[str], str]:
    """What was asked for, and what to call it."""
    words, shorts = [], []
    for field in attrs.fields(DeploymentSpec):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if not field.eq or before == after:
            continue  # a user_config is told by its name, and what is derived by what it is derived from
        if field.name == "config_id":
            words.append("another user_config")
            shorts.append("the new user_config")
        else:
            words.append(f"{field.name} {placed(before)} -> {placed(after)}")
        if field.name == "target_replicas":
            shorts.append(f"the {'up' if after > before else 'down'}scale to {after}")
        elif field.name == "version":
            shorts.append(f"the update to version {after}")
        elif field.name == "placement":
            shorts.append("the new placement")
    return words, shorts[0] if shorts else "the change"
