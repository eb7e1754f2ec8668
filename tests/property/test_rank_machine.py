"""hypothesis drives the adversarial world rule by rule, so that a failure shrinks to a short program."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rankcore.invariants import check
from rankcore.testing.schedules import World, heal, placement_from, spec_from, static_spec_from

index = st.integers(0, 15)


class RankMachine(RuleBasedStateMachine):
    """No order of resizes, updates, starts, crashes, restarts, lost bundles and late news breaks a promise."""

    world: World

    @initialize(number=st.integers(0, 1023), bad=st.booleans(), static=st.booleans())
    def deploy(self, number: int, bad: bool, static: bool) -> None:
        spec = static_spec_from(number) if static else spec_from(number)
        self.world = World(spec, bad_versions=("2",) if bad else ())

    @precondition(lambda self: self.world.commands)
    @rule(index=index, keep=st.booleans())
    def command_arrives(self, index: int, keep: bool) -> None:
        self.world.deliver_command(index, keep=keep)

    @precondition(lambda self: self.world.events)
    @rule(index=index, keep=st.booleans())
    def news_arrives(self, index: int, keep: bool) -> None:
        self.world.deliver_event(index, keep=keep)

    @rule(index=index, command=st.booleans())
    def message_is_lost(self, index: int, command: bool) -> None:
        if command:
            self.world.lose_command(index)
        else:
            self.world.lose_event(index)

    @rule()
    def calm_moment(self) -> None:
        self.world.pump()

    @rule(index=index, where=st.integers(0, 2))
    def actor_is_placed(self, index: int, where: int) -> None:
        self.world.place(index, where)

    @rule(index=index, fail=st.booleans())
    def replica_works(self, index: int, fail: bool) -> None:
        self.world.work(index, fail=fail)

    @rule(index=index)
    def replica_crashes(self, index: int) -> None:
        self.world.crash(index)

    @rule(index=index)
    def replica_is_suspected(self, index: int) -> None:
        self.world.suspect(index)

    @rule(index=st.integers(0, 2))
    def node_is_lost(self, index: int) -> None:
        self.world.lose_node(index)

    @rule(index=st.integers(0, 2), capacity=st.integers(0, 4))
    def node_changes(self, index: int, capacity: int) -> None:
        self.world.say_capacity(index, capacity)

    @rule(size=st.integers(0, 5), index=index, named=st.booleans())
    def target_changes(self, size: int, index: int, named: bool) -> None:
        if named:
            self.world.change_naming(size, index)
        else:
            self.world.change(target_replicas=size)

    @rule(version=st.sampled_from("012"))
    def version_changes(self, version: str) -> None:
        self.world.change(version=version)

    @rule(config=st.integers(0, 2))
    def user_config_changes(self, config: int) -> None:
        self.world.change(user_config={"c": config})

    @rule(token=st.sampled_from(("", "monday", "tuesday")))
    def restart_is_asked_for(self, token: str) -> None:
        self.world.change(restart_token=token)

    @rule(partition=st.integers(0, 6), order=st.sampled_from(("lowest_rank", "highest_rank")))
    def partition_changes(self, partition: int, order: str) -> None:
        self.world.change(partition=partition, update_order=order)

    @rule(
        surge=st.integers(1, 2),
        out=st.integers(0, 1),
        hand_over=st.sampled_from(("none", "prepared", "overlap")),
        min_ready_s=st.sampled_from((0.0, 5.0)),
    )
    def hand_over_changes(self, surge: int, out: int, hand_over: str, min_ready_s: float) -> None:
        self.world.change(max_surge=surge, max_unavailable=out, hand_over=hand_over, min_ready_s=min_ready_s)

    @rule(number=st.integers(0, 60))
    def placement_changes(self, number: int) -> None:
        self.world.change(placement=placement_from(number) if number % 6 else None)

    @rule(index=index, everything=st.booleans())
    def bundles_are_lost(self, index: int, everything: bool) -> None:
        self.world.lose_bundles(index, everything=everything)

    @rule(index=index, everything=st.booleans())
    def bundles_come_back(self, index: int, everything: bool) -> None:
        self.world.restore_bundles(index, everything=everything)

    @rule(index=index)
    def somebody_stops_a_replica(self, index: int) -> None:
        self.world.stop_by_name(index)

    @rule(index=index, within_s=st.sampled_from((None, 0.0, 3.0, 40.0)))
    def somebody_replaces_a_replica(self, index: int, within_s: float | None) -> None:
        self.world.replace_by_name(index, within_s)

    @rule(index=index)
    def node_is_cordoned(self, index: int) -> None:
        self.world.cordon(index)

    @rule(index=index, within_s=st.sampled_from((None, 0.0, 3.0, 40.0)))
    def node_is_drained(self, index: int, within_s: float | None) -> None:
        self.world.drain(index, within_s)

    @rule(index=index)
    def node_is_uncordoned(self, index: int) -> None:
        self.world.uncordon(index)

    @rule(index=index)
    def what_was_given_up_is_tried_again(self, index: int) -> None:
        self.world.retry(index)

    @rule()
    def controller_restarts(self) -> None:
        self.world.restart_controller()

    @rule(one=index, other=index)
    def replicas_disagree_while_no_controller_is_up(self, one: int, other: int) -> None:
        self.world.corrupt(one, other)

    @rule(seconds=st.sampled_from((0.5, 5.0, 31.0, 700.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def deployment_is_deleted(self) -> None:
        self.world.delete()

    @invariant()
    def promises_hold(self) -> None:
        assert check(self.world.state) == []
        self.world.check_beliefs()

    def teardown(self) -> None:
        """Liveness: once the faults stop, everything settles."""
        if hasattr(self, "world"):
            heal(self.world)


TestRankMachine = RankMachine.TestCase
