"""A fleet driven by hand: a test says what happens next, and every step is checked on the way.

    f = Fleet(a=30, b=50)                  # one GPU of 80 bytes, two models that nobody has loaded
    f.request(1, "a")
    f.load("a")                            # what was commanded for it is done
    f.done(1)
    assert f.answers[1] == Complete(1)

Time stands still unless a test says `wait`. What nodes were told to do and have not answered is in `state.moves`.
"""

from typing import Any

from rankcore.dispatching import (
    DispatchPolicy,
    FleetNote,
    FleetNoteKind,
    FleetStep,
    LoadProgressed,
    ModelRequested,
    ServingChanged,
    ServingSpec,
    Status,
    TellCaller,
    fleet_step,
    open_fleet,
)
from rankcore.dispatching.commands import FINAL, Command
from rankcore.dispatching.events import Event
from rankcore.dispatching.invariants import check, check_step
from rankcore.events import ClockAdvanced
from rankcore.residency import ModelSpec, ResidencyPolicy, Wanted
from rankcore.residency.events import DeployRequested, LoadFailed, LoadFinished, NodeJoined, OffloadFinished
from rankcore.routing import FailureKind, RequestId, RoutingSpec
from rankcore.routing.events import RequestDone, RequestFailed


class Fleet:
    """A fleet of one node, unless a test adds others, and what it has asked for so far.

    Attributes:
        answers: The final answer to each request.
        told: What each caller was told, in order.
        sent: Where each request was last sent to.
    """

    def __init__(
        self,
        *,
        gpus: tuple[int, ...] = (80,),
        cpu: int = 200,
        policy: DispatchPolicy | None = None,
        planner: ResidencyPolicy | None = None,
        **sizes: int,
    ) -> None:
        self.state = open_fleet(policy, planner)
        self.now = 0.0
        self.answers: dict[RequestId, Command] = {}
        self.told: dict[RequestId, list[Status]] = {}
        self.sent: dict[RequestId, str] = {}
        self.tell(NodeJoined(node_id="n1", gpu_bytes=gpus, cpu_bytes=cpu, at=self.now))
        self.deploy(*(Wanted(spec=ModelSpec(model=model, weight_bytes=size), replicas=0) for model, size in sizes.items()))

    def tell(self, event: Event) -> FleetStep:
        before = self.state
        step = fleet_step(before, event)
        assert check_step(before, event, step) == []
        assert check(step.state) == []
        self.state = step.state
        for command in step.commands:
            if isinstance(command, FINAL):
                assert command.request_id not in self.answers, "two final answers"
                self.answers[command.request_id] = command
            elif isinstance(command, TellCaller):
                self.told.setdefault(command.request_id, []).append(command.status)
            elif hasattr(command, "attempt"):
                self.sent[command.request_id] = command.replica_id
        return step

    def deploy(self, *wanted: Wanted) -> FleetStep:
        return self.tell(DeployRequested(wanted=wanted, at=self.now))

    def serve(self, model: str, autoscaling: Any = None, **options: Any) -> FleetStep:
        spec = ServingSpec(routing=RoutingSpec(name=model, **options), autoscaling=autoscaling)
        return self.tell(ServingChanged(spec=spec, at=self.now))

    def request(self, request_id: RequestId, model: str, **options: Any) -> FleetStep:
        return self.tell(ModelRequested(request_id=request_id, model=model, at=self.now, **options))

    def done(self, request_id: RequestId, attempt: int = 1) -> FleetStep:
        return self.tell(RequestDone(request_id=request_id, attempt=attempt, at=self.now))

    def lost(self, request_id: RequestId, kind: FailureKind = FailureKind.LOST, attempt: int = 1) -> FleetStep:
        return self.tell(RequestFailed(request_id=request_id, kind=kind, reason="gone", attempt=attempt, at=self.now))

    def wait(self, seconds: float) -> FleetStep:
        self.now += seconds
        return self.tell(ClockAdvanced(at=self.now))

    def under_way(self, model: str) -> Any:
        """The one move that nodes were told to make with a replica of this model."""
        [move] = [each.command for key, each in sorted(self.state.moves.items()) if key.startswith(f"{model}#")]
        return move

    def load(self, model: str, *, fails: str = "") -> FleetStep:
        move = self.under_way(model)
        if fails:
            return self.tell(LoadFailed(replica_id=move.replica_id, move=move.move, reason=fails, at=self.now))
        return self.tell(LoadFinished(replica_id=move.replica_id, move=move.move, at=self.now))

    def progress(self, model: str, bytes_done: int) -> FleetStep:
        move = self.under_way(model)
        return self.tell(LoadProgressed(replica_id=move.replica_id, move=move.move, bytes_done=bytes_done, at=self.now))

    def leave(self, model: str) -> FleetStep:
        move = self.under_way(model)
        return self.tell(OffloadFinished(replica_id=move.replica_id, move=move.move, at=self.now))

    def kinds(self, request_id: RequestId) -> list[str]:
        """What a caller was told, by kind."""
        return [status.kind.value for status in self.told.get(request_id, [])]

    def hot(self, model: str) -> tuple[str, ...]:
        return self.state.residency.hot_replicas(model)


def decided(step: FleetStep, kind: FleetNoteKind) -> list[FleetNote]:
    """The fleet's own notes of a kind."""
    return [note for note in step.notes if isinstance(note, FleetNote) and note.kind is kind]
