"""A fleet under any order of events: requests, loads that fail, evictions, nodes and replicas that are lost, late news."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rankcore.autoscaling import AutoscalingSpec
from rankcore.codec import from_json, to_json
from rankcore.dispatching import (
    DispatchPolicy,
    FleetImage,
    LoadProgressed,
    ModelRequested,
    ServingChanged,
    ServingSpec,
    TellCaller,
    fleet_of,
    fleet_step,
    image_of,
    open_fleet,
    outstanding,
)
from rankcore.dispatching.commands import FINAL, Command, Move
from rankcore.dispatching.events import Event
from rankcore.dispatching.invariants import check, check_step
from rankcore.events import ClockAdvanced
from rankcore.residency import Level, ModelSpec, ResidencyPolicy, Wanted
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    NodeLost,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
    ScaleRequested,
    UsageReported,
)
from rankcore.routing import FailureKind, RoutingSpec
from rankcore.routing.commands import Complete, Dispatch, Retry, StopAttempt
from rankcore.routing.events import AnswerBegun, RequestCancelled, RequestDone, RequestFailed

MODELS = {"a": 30, "b": 50, "c": 70}
models = st.sampled_from(sorted(MODELS))
nodes = st.sampled_from(("n1", "n2"))
specs = st.builds(
    lambda model, **rest: ModelSpec(model=model, weight_bytes=MODELS[model], **rest),
    models,
    working_bytes=st.sampled_from((0, 5)),
    min_hot_s=st.sampled_from((0.0, 8.0)),
    priority=st.sampled_from((0, 0, 1)),
    dedicated=st.sampled_from((False, False, False, True)),
    version=st.sampled_from(("", "", "", "2")),
)
servings = st.builds(
    ServingSpec,
    routing=st.builds(
        RoutingSpec,
        name=models,
        max_ongoing_requests=st.integers(1, 2),
        max_queued_requests=st.sampled_from((1, 100)),
        idempotent=st.booleans(),
        request_timeout_s=st.sampled_from((None, None, 6.0)),
    ),
    autoscaling=st.none()
    | st.builds(
        AutoscalingSpec,
        min_replicas=st.integers(0, 1),
        max_replicas=st.just(2),
        target_ongoing_requests=st.just(1.0),
        metrics_interval_s=st.just(2.0),
        upscale_delay_s=st.just(2.0),
        downscale_delay_s=st.just(4.0),
    ),
)
policies = st.builds(
    DispatchPolicy,
    wait_for_room_s=st.sampled_from((0.0, 12.0, 100.0)),
    failed_for_s=st.sampled_from((0.0, 10.0)),
    turn_s=st.sampled_from((1.0, 5.0)),
    progress_percent=st.sampled_from((1, 25)),
)
plans = st.builds(
    ResidencyPolicy,
    max_load_failures=st.integers(1, 2),
    retry_s=st.just(1.0),
    idle_to_warm_s=st.sampled_from((None, 10.0)),
    idle_to_cold_s=st.sampled_from((None, 20.0)),
)


class Fleets(RuleBasedStateMachine):
    """The executor's half, with everything that may go wrong in it."""

    @initialize(policy=policies, plan=plans, replicas=st.integers(0, 1))
    def begin(self, policy: DispatchPolicy, plan: ResidencyPolicy, replicas: int) -> None:
        self.state = open_fleet(policy, plan)
        self.now = 0.0
        self.arrived = 0
        self.moves: list[Move] = []
        self.flights: list[Dispatch | Retry] = []
        self.finals: dict[int, list[Command]] = {}
        self.told: dict[int, int] = {}
        self.ready: set[int] = set()
        self.send(NodeJoined(node_id="n1", gpu_bytes=(80,), cpu_bytes=60, at=self.now))
        wanted = tuple(
            Wanted(spec=ModelSpec(model=each, weight_bytes=size), replicas=replicas * (each == "a"))
            for each, size in MODELS.items()
        )
        self.send(DeployRequested(wanted=wanted, at=self.now))

    def send(self, event: Event) -> None:
        before = self.state
        step = fleet_step(before, event)
        self.state = step.state
        for command in step.commands:
            self.obey(command)
        assert check_step(before, event, step) == []

    def obey(self, command: Command) -> None:
        if isinstance(command, Move):
            self.moves.append(command)
        elif isinstance(command, (Dispatch, Retry)):
            self.flights.append(command)
        elif isinstance(command, TellCaller):
            assert command.revision > self.told.get(command.request_id, 0), "a status is older than the one before"
            assert command.request_id not in self.finals, "somebody is told something after the answer"
            self.told[command.request_id] = command.revision
        elif isinstance(command, FINAL):
            self.finals.setdefault(command.request_id, []).append(command)

    # -- callers

    @rule(model=models, times=st.integers(1, 3), timeout_s=st.sampled_from((None, None, None, 4.0)))
    def is_requested(self, model: str, times: int, timeout_s: float | None) -> None:
        for _ in range(times):
            self.arrived += 1
            deadline = None if timeout_s is None else self.now + timeout_s
            self.send(ModelRequested(request_id=self.arrived, model=model, deadline=deadline, at=self.now))

    @rule(number=st.integers(1, 3))
    def an_unknown_model_is_requested(self, number: int) -> None:
        self.arrived += 1
        self.send(ModelRequested(request_id=self.arrived, model=f"nobody's {number}", at=self.now))

    @precondition(lambda self: self.arrived)
    @rule(ago=st.integers(0, 9))
    def is_cancelled(self, ago: int) -> None:
        self.send(RequestCancelled(request_id=max(1, self.arrived - ago), at=self.now))

    @precondition(lambda self: self.state.unanswered)
    @rule()
    def is_requested_again(self) -> None:
        request_id, request = next(iter(self.state.unanswered.items()))
        self.send(ModelRequested(request_id=request_id, model=request.model, at=self.now))

    # -- whoever runs the fleet

    @rule(spec=specs, replicas=st.integers(0, 2))
    def is_deployed(self, spec: ModelSpec, replicas: int) -> None:
        self.send(DeployRequested(wanted=(Wanted(spec=spec, replicas=replicas),), at=self.now))

    @rule(model=models, replicas=st.integers(0, 2))
    def is_scaled(self, model: str, replicas: int) -> None:
        self.send(ScaleRequested(model=model, replicas=replicas, at=self.now))

    @rule(model=models, keep=st.sampled_from((Level.WARM, Level.COLD)), one=st.booleans())
    def is_evicted(self, model: str, keep: Level, one: bool) -> None:
        hot = self.state.residency.hot_replicas(model)
        if one and hot:
            self.send(EvictRequested(replica_id=hot[0], keep=keep, at=self.now))
        else:
            self.send(EvictRequested(model=model, keep=keep, at=self.now))

    @rule(spec=servings)
    def is_served_otherwise(self, spec: ServingSpec) -> None:
        self.send(ServingChanged(spec=spec, at=self.now))

    # -- the world

    @precondition(lambda self: self.moves)
    @rule(ago=st.integers(0, 4), fails=st.sampled_from((False, False, True)), done=st.integers(0, 80), is_late=st.booleans())
    def a_move_is_answered(self, ago: int, fails: bool, done: int, is_late: bool) -> None:
        """Also one that was answered before, or is not waited for any more."""
        pending = [each.command for each in self.state.moves.values()]
        chosen = self.moves if is_late or not pending else sorted(pending, key=lambda each: each.move)
        move = chosen[-1 - ago % len(chosen)]
        if isinstance(move, LoadToGpu):
            self.send(LoadProgressed(replica_id=move.replica_id, move=move.move, bytes_done=done, at=self.now))
        self.answer(move, fails)

    def answer(self, move: Move, fails: bool = False) -> None:
        which = {"replica_id": move.replica_id, "move": move.move, "at": self.now}
        if isinstance(move, LoadToGpu):
            self.send(LoadFailed(reason="out of memory", **which) if fails else LoadFinished(**which))
        else:
            self.send(OffloadFailed(reason="no room", **which) if fails else OffloadFinished(**which))

    @precondition(lambda self: self.flights)
    @rule(ago=st.integers(0, 5), kind=st.none() | st.sampled_from(FailureKind), begun=st.booleans())
    def an_attempt_ends(self, ago: int, kind: FailureKind | None, begun: bool) -> None:
        """Also what has ended before: news comes late and twice."""
        self.end(self.flights[-1 - ago % len(self.flights)], kind, begun)

    def end(self, flight: Dispatch | Retry | StopAttempt, kind: FailureKind | None = None, begun: bool = False) -> None:
        which = {"request_id": flight.request_id, "attempt": flight.attempt, "at": self.now}
        if begun:
            self.send(AnswerBegun(**which))
        self.send(RequestDone(**which) if kind is None else RequestFailed(kind=kind, reason="why", **which))

    @rule(number=st.integers(0, 9))
    def a_replica_is_lost(self, number: int) -> None:
        known = sorted(self.state.residency.replicas)
        if known:
            self.send(ReplicaLost(replica_id=known[number % len(known)], reason="segfault", at=self.now))

    @rule(node=nodes, gpus=st.sampled_from(((80,), (80, 40), (60,))), cpu_bytes=st.sampled_from((0, 60, 200)))
    def a_node_joins(self, node: str, gpus: tuple[int, ...], cpu_bytes: int) -> None:
        self.send(NodeJoined(node_id=node, gpu_bytes=gpus, cpu_bytes=cpu_bytes, at=self.now))

    @rule(node=nodes)
    def a_node_is_lost(self, node: str) -> None:
        self.send(NodeLost(node_id=node, at=self.now))

    @rule(node=nodes, size=st.sampled_from((40, 72)))
    def a_node_has_lied(self, node: str, size: int) -> None:
        if node in self.state.residency.nodes:
            gpus = len(self.state.residency.nodes[node].gpus)
            self.send(MemoryMeasured(node_id=node, gpu_bytes=(size,) * gpus, at=self.now))

    @rule(model=models, more=st.integers(0, 20))
    def more_is_used(self, model: str, more: int) -> None:
        for replica_id in self.state.residency.hot_replicas(model)[:1]:
            held = self.state.residency.replicas[replica_id].gpu_bytes
            self.send(UsageReported(replica_id=replica_id, gpu_bytes=tuple(each + more for each in held), at=self.now))

    @rule(halves=st.integers(1, 12))
    def time_passes(self, halves: int) -> None:
        self.now += halves / 2
        if self.state.wake_at is not None and self.state.wake_at <= self.now:
            self.send(ClockAdvanced(at=self.now))

    @rule()
    def the_controller_is_lost(self) -> None:
        """The next one has what was written down, and everybody is told again; who has answered does so again."""
        image = from_json(to_json(image_of(self.state)), FleetImage)
        after = fleet_of(image)
        assert image == image_of(self.state)
        assert after == self.state
        assert hash(after) == hash(self.state)
        self.state = after
        for command in outstanding(self.state):
            if isinstance(command, TellCaller):
                assert command.revision == self.told[command.request_id]
            elif not isinstance(command, FINAL):
                self.obey(command)

    @rule()
    def equal_events_have_equal_answers(self) -> None:
        event = ClockAdvanced(at=self.now + 3.0)
        assert fleet_step(self.state, event) == fleet_step(fleet_of(image_of(self.state)), event)

    # -- what holds

    @invariant()
    def promises_hold(self) -> None:
        if hasattr(self, "state"):
            assert check(self.state) == []

    def carry_messages(self) -> None:
        """Where replicas have ranks, they are talked to."""

    def messages_wait(self) -> bool:
        """Whether anybody is being talked to."""
        return False

    def settle(self) -> None:
        """Where replicas have ranks, all of them are told theirs."""

    def drive(self) -> None:
        """Nothing goes wrong any more: whatever was commanded is carried out, until everybody has an answer."""
        for _ in range(300):
            if not self.state.unanswered:
                return
            for under_way in sorted(self.state.moves.values(), key=lambda each: each.command.move):
                self.answer(under_way.command)
            self.carry_messages()
            flights = [each for each in outstanding(self.state) if isinstance(each, (Dispatch, Retry, StopAttempt))]
            for command in flights:
                self.end(command)
            assert check(self.state) == []
            if not self.state.moves and not flights and not self.messages_wait():
                self.now = max(self.now, self.state.wake_at or 0.0)
                self.send(ClockAdvanced(at=self.now))
        raise AssertionError(f"{len(self.state.unanswered)} requests wait for ever")

    def teardown(self) -> None:
        """Faults are off: every request has exactly one final answer soon, and every model can be had again."""
        if not hasattr(self, "state"):
            return
        self.drive()
        self.send(NodeJoined(node_id="n9", gpu_bytes=(1_000,), cpu_bytes=60, at=self.now))
        self.now += 200.0
        self.send(ClockAdvanced(at=self.now))
        self.settle()
        later = {}
        for model in MODELS:
            self.arrived += 1
            later[model] = self.arrived
            self.send(ModelRequested(request_id=self.arrived, model=model, deadline=self.now + 1e6, at=self.now))
        self.drive()
        assert {request_id: len(finals) for request_id, finals in self.finals.items()} == dict.fromkeys(
            range(1, self.arrived + 1), 1
        )
        assert {model: self.finals[number] for model, number in later.items()} == {
            model: [Complete(number)] for model, number in later.items()
        }


TestFleets = Fleets.TestCase
TestFleets.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
