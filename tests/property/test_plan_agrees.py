"""`plan(state, spec)` says what then happens, in whichever order a faultless world answers.

An adversarial schedule brings the deployment into some state; what was sent and not answered stays under way. From there
on nothing fails, and the world takes its own time and order: replicas are placed on several nodes, stop late and start late.
"""

from collections import Counter

import attrs
from hypothesis import assume, event, given
from hypothesis import strategies as st

from rankcore import DeploymentSpec, DeploymentState, NoteKind, Replica, plan, step
from rankcore.commands import InitializeReplica, StartReplica
from rankcore.events import Event, NodeChanged, SpecChanged
from rankcore.notes import Note
from rankcore.testing.schedules import NODES, World, changed, heal, placement_from, play, spec_from, static_spec_from
from rankcore.values import age_key


class RecordingWorld(World):
    """A world that remembers what is started, the rank that each comes up with, and why things are done."""

    def __init__(self, spec: DeploymentSpec) -> None:
        self.started: dict[str, StartReplica] = {}
        self.given: dict[str, int] = {}
        self.notes: list[Note] = []
        super().__init__(spec)

    def tell(self, event: Event) -> None:
        result = step(self.state, event)
        self.notes.extend(result.notes)
        for command in result.commands:
            if isinstance(command, StartReplica):
                self.started.setdefault(command.replica_id, command)
            elif isinstance(command, InitializeReplica):
                self.given.setdefault(command.replica_id, command.rank.rank)
        super().tell(event)


def reach(first: DeploymentSpec, number: int, calm: int, moves: bytes) -> RecordingWorld:
    """A state that a schedule leads to, after a calm beginning. News of what has happened arrives; commands stay under way."""
    world = RecordingWorld(attrs.evolve(first, max_start_failures=1 + number // 32 % 3))
    for _ in range(calm):
        world.pump()
    play(world, moves)
    world.now += 1.0
    world.restore_bundles(0, everything=True)  # as `heal` will; a plan knows what is lost now, and not what comes back
    for node_id in NODES:
        world.events.append(NodeChanged(node_id=node_id, capacity=10, at=world.now))
    while world.events:
        world.deliver_event(0)
    return world


@given(
    number=st.integers(0, 1023),
    calm=st.sampled_from((0, 8, 8)),
    moves=st.binary(min_size=16, max_size=160),
    target=st.integers(0, 6),
    version=st.sampled_from("112"),
    config=st.sampled_from((None, None, {"c": 1})),
    naming=st.integers(0, 15),
)
def test_a_plan_is_what_then_happens(
    number: int, calm: int, moves: bytes, target: int, version: str, config: object, naming: int
) -> None:
    world = reach(spec_from(number), number, calm, moves)
    before = world.state
    assume(not before.unreported)
    names = sorted(before.replicas, key=age_key)
    stop_first = names[naming : naming + 2]
    spec = changed(before.spec, target_replicas=target, version=version, user_config=config)
    planned = plan(before, spec, stop_first=tuple(stop_first))

    world.started.clear()
    world.notes.clear()
    world.tell(SpecChanged(spec=spec, stop_first=stop_first, at=max(world.now, before.tables.spec_at)))
    heal(world)
    after = world.state
    event(str(before.status))

    story = f"{planned}\n" + "\n".join(world.story(last=150))
    assert planned.world_size_before == before.world_size, story
    assert planned.world_size_after == after.world_size, story
    assert planned.status == after.status, story
    starts = [command for command in world.started.values() if command.replica_id not in before.replicas]
    assert Counter(each.version for each in planned.starts) == Counter(each.version for each in starts), story
    gone = {r.replica_id: r.slot for r in before.replicas.values() if r.leaving is None and r.replica_id not in after.replicas}
    assert {each.replica_id: each.rank for each in planned.stops} == gone, story
    # Which of several ranks is free first depends on who stops first, and so does who gets it; not who moves, nor which
    # ranks are filled anew. With surge, an update of a rank beyond the world size starts a successor there which goes to a
    # lower rank once one is free, before or after a newcomer takes its own: then the ranks at the start may differ.
    moves = moves_between(before, after)
    assert {each.replica_id: each.before for each in planned.moves} == {who: rank for who, (rank, _) in moves.items()}, story
    if all(each.rank < target for each in (*planned.starts, *starts)):
        filled = Counter([*(each.rank for each in planned.starts), *(each.after for each in planned.moves)])
        given = [world.given.get(each.replica_id, each.rank) for each in starts]
        assert filled == Counter([*given, *(rank for _, rank in moves.values())]), story
    configured = {note.replica_id for note in world.notes if note.kind is NoteKind.CONFIG_SENT} & set(before.replicas)
    assert set(planned.reconfigured) == configured, story


def moves_between(before: DeploymentState, after: DeploymentState) -> dict[str, tuple[int, int]]:
    """Who has another global rank than before."""
    ranks = {who: (rank_of(old), rank_of(after.replicas[who])) for who, old in before.replicas.items() if who in after.replicas}
    return {who: (was, now) for who, (was, now) in ranks.items() if was is not None and now is not None and was != now}


def rank_of(replica: Replica) -> int | None:
    """What it was told or, before that, what it will be told."""
    return replica.told.rank if replica.told is not None else replica.slot


@given(
    number=st.integers(0, 1023),
    calm=st.sampled_from((0, 8, 8)),
    moves=st.binary(min_size=16, max_size=160),
    mapping=st.none() | st.integers(0, 60),
    version=st.sampled_from("112"),
)
def test_a_plan_of_a_static_placement_is_what_then_happens(
    number: int, calm: int, moves: bytes, mapping: int | None, version: str
) -> None:
    """To other bundles, to another group, or to none."""
    world = reach(static_spec_from(number), number, calm, moves)
    before = world.state
    assume(not before.unreported and before.status not in ("DELETING", "DELETED"))
    placement = placement_from(mapping) if mapping is not None else None
    spec = changed(before.spec, placement=placement, version=version)
    planned = plan(before, spec)

    world.started.clear()
    world.change(placement=placement, version=version)
    heal(world)
    after = world.state
    event(str(before.status))

    story = f"{planned}\n" + "\n".join(world.story(last=150))
    assert planned.status == after.status, story
    starts = [command for command in world.started.values() if command.replica_id not in before.replicas]
    found = Counter((each.rank, each.version, each.bundles) for each in starts)
    assert Counter((each.rank, each.version, each.bundles) for each in planned.starts) == found, story
    assert planned.moves == () or before.spec.static_placement is None or placement is None, story
