"""Puts what the scenario says, faults and changes, on the clock."""

import math
from typing import TypeAlias

from executors.simulator.controller import SimulatedController
from executors.simulator.deployment import DeploymentWorld
from executors.simulator.faults.node_trace import DOWN, NodeTrace
from executors.simulator.faults.population import drawn
from executors.simulator.faults.rates import FaultRates
from executors.simulator.record.happenings import NOBODY_THERE
from executors.simulator.replicas.processes import SimulatedProcess
from executors.simulator.scenario.faults import (
    BundleLoss,
    ConfigFails,
    ControllerCrash,
    CrashAfterReady,
    Fault,
    LoadFailure,
    MemoryShrinks,
    NodeCordon,
    NodeDrain,
    NodeLoss,
    NodePartition,
    NodePreemption,
    ReplicaCrash,
    ReplicaHang,
    ReplicaSlow,
    ReplicaUnready,
    SlowStart,
    StartFailure,
)
from executors.simulator.scenario.model import Change
from executors.simulator.scenario.moments import Moment
from executors.simulator.world import SimulatedWorld
from rankcore.frozen import thaw_json

OfReplica: TypeAlias = ReplicaCrash | ReplicaHang | ReplicaSlow | ReplicaUnready


class Schedule:
    """Lets everything that a scenario says happen at its time.

    Args:
        last_arrival: When the last request comes; without a duration, fault rates end there.

    Attributes:
        last_at: When the last of it happens, returns of nodes and controllers included; grows as faults come.
    """

    def __init__(
        self, world: SimulatedWorld, controller: SimulatedController, busiest_minute: float | None, last_arrival: float
    ) -> None:
        self.last_at = 0.0
        self._world = world
        self._controller = controller
        self._busiest_minute = busiest_minute
        scenario = world.scenario
        for fault in scenario.faults:
            self.add(fault)
        for change in scenario.changes:
            self.add(change)
        rates = FaultRates(scenario, world.loop, world.streams, self._strike_by_rate, last_arrival)
        self.last_at = max(self.last_at, rates.end_s)
        if scenario.fault_trace is not None:
            self._add_trace(scenario.fault_trace.events)

    def time_of(self, moment: Moment) -> float:
        """Virtual seconds of a moment; never before the start."""
        return moment.seconds(self._busiest_minute)

    def add(self, fault: Fault | Change) -> None:
        """A fault or change is to come; one whose time has passed comes now."""
        at = max(self.time_of(fault.at), self._world.loop.now)
        if isinstance(fault, Change):
            self.last_at = max(self.last_at, at)
            self._world.loop.at(at, self._controller.change, fault)
            return
        self.last_at = max(self.last_at, at + self._lasts_s(fault))
        self._world.loop.at(at, self._strike, fault)

    # -- faults

    def _strike(self, fault: Fault) -> None:
        """A fault comes now."""
        world, now = self._world, self._world.loop.now
        match fault:
            case ReplicaCrash() | ReplicaHang() | ReplicaSlow() | ReplicaUnready():
                self._hit_replica(fault, by_rate=False)
            case StartFailure():
                self._tell(fault.deployment, f"{_starts(fault)} of {_where(fault)} fail", fault.node)
                world.troubles.fail(fault.deployment, fault.node, fault.count_max, now + _seconds(fault.for_s))
            case SlowStart():
                self._tell(fault.deployment, f"starts of {_where(fault)} take {fault.factor:g} times as long", fault.node)
                world.troubles.slow_down(fault.deployment, fault.node, fault.factor, now + _seconds(fault.for_s))
            case CrashAfterReady(after_s=after_s, version=version):
                which = "replicas" if version is None else f"replicas of version {version}"
                self._tell(fault.deployment, f"{which} of {fault.deployment} die {after_s:g} s after they are ready")
                world.troubles.die_after(fault.deployment, version, after_s, now + _seconds(fault.for_s))
            case ConfigFails(user_config=user_config):
                self._tell(fault.deployment, f"replicas of {fault.deployment} refuse user_config {thaw_json(user_config)}")
                world.troubles.refuse(fault.deployment, user_config, now + _seconds(fault.for_s))
            case NodeLoss(node=node_id, back_after_s=back_after_s):
                world.lose_node(node_id)
                if back_after_s is not None:
                    world.loop.after(back_after_s, world.bring_node_back, node_id)
            case NodeCordon(node=node_id, for_s=for_s):
                world.cordon(node_id)
                if for_s is not None:
                    world.loop.after(for_s, world.uncordon, node_id)
            case NodeDrain(node=node_id, deadline_s=deadline_s, for_s=for_s):
                world.cordon(node_id, deadline_s, "drain")
                if for_s is not None:
                    world.loop.after(for_s, world.uncordon, node_id)
            case NodePreemption(node=node_id, notice_s=notice_s, back_after_s=back_after_s):
                world.cordon(node_id, notice_s, "preemption", final=True)
                world.loop.after(notice_s, world.lose_node, node_id)
                if back_after_s is not None:
                    world.loop.after(notice_s + back_after_s, world.bring_node_back, node_id)
            case BundleLoss(group=group, bundles=bundles, back_after_s=back_after_s):
                world.lose_bundles(group, bundles)
                if back_after_s is not None:
                    world.loop.after(back_after_s, world.bring_bundles_back, group, bundles)
            case NodePartition(node=node_id, for_s=for_s):
                world.partitions.cut(world.cluster.nodes[node_id])
                if for_s is not None:
                    world.loop.after(for_s, world.partitions.mend, world.cluster.nodes[node_id])
            case ControllerCrash(restart_after_s=restart_after_s):
                self._controller.crash(restart_after_s)
            case LoadFailure() | MemoryShrinks():
                raise AssertionError(f"{fault.kind} is refused where no deployment has residency")

    def _strike_by_rate(self, fault: Fault) -> None:
        """The same, for a fault of which nobody knew before that it comes now."""
        self.last_at = max(self.last_at, self._world.loop.now + self._lasts_s(fault))
        if isinstance(fault, (ReplicaCrash, ReplicaHang, ReplicaSlow, ReplicaUnready)):
            self._hit_replica(fault, by_rate=True)
        else:
            self._strike(fault)

    def _lasts_s(self, fault: Fault) -> float:
        """Until it is over, or known to the controller."""
        match fault:
            case NodeLoss() | BundleLoss():
                return fault.back_after_s or 0.0
            case ControllerCrash():
                return fault.restart_after_s
            case NodePreemption():
                return fault.notice_s + (fault.back_after_s or 0.0)
            case NodeDrain():
                return max(fault.deadline_s or 0.0, fault.for_s or 0.0)
            case NodeCordon():
                return fault.for_s or 0.0
            case NodePartition():
                return fault.for_s or self._world.scenario.usual_network.lease_s
            case ReplicaHang() | ReplicaSlow() | ReplicaUnready() | StartFailure() | SlowStart():
                return fault.for_s or 0.0
            case CrashAfterReady() | ConfigFails():
                return fault.for_s or 0.0
            case ReplicaCrash() | LoadFailure() | MemoryShrinks():
                return 0.0

    def _hit_replica(self, fault: OfReplica, *, by_rate: bool) -> None:
        port = self._world.deployments[fault.deployment]
        process = self._victim(fault, port)
        if process is None:
            if not by_rate:  # a rate is that of a rank's holder, and now there is none
                what = fault.replica_id or (f"rank {fault.rank}" if fault.rank is not None else "any replica")
                self._tell(fault.deployment, f"{what} was to {_VERBS[type(fault)]}, {NOBODY_THERE}")
            return
        rank = port.beliefs.of(process.replica_id)
        named = f"replica {process.replica_id}"
        known_as = f" (rank {rank.rank})" if rank is not None else ""
        if isinstance(fault, ReplicaCrash):
            self._tell(fault.deployment, f"{named} crashed{known_as}")
            port.lives.crash(process)
        elif isinstance(fault, ReplicaUnready):
            self._tell(fault.deployment, f"{named} takes no requests{known_as}")
            port.lives.become_unready(process)
            if fault.for_s is not None:
                self._world.loop.after(fault.for_s, port.lives.become_ready, process)
        elif isinstance(fault, ReplicaSlow):
            self._tell(fault.deployment, f"{named} takes {fault.factor:g} times as long{known_as}")
            port.requests.slow_down(process.replica_id, fault.factor)
            if fault.for_s is not None:
                self._world.loop.after(fault.for_s, port.requests.slow_no_more, process.replica_id, fault.factor)
        else:
            self._tell(fault.deployment, f"{named} hangs{known_as}")
            port.lives.hang(process)
            if fault.for_s is not None:
                self._world.loop.after(fault.for_s, port.lives.wake, process)

    def _victim(self, fault: OfReplica, port: DeploymentWorld) -> SimulatedProcess | None:
        """Whom a fault hits: of those that are up, and that do not hang already if it is a hang."""
        may_hang = isinstance(fault, ReplicaCrash | ReplicaSlow)
        if isinstance(fault, ReplicaUnready):
            return self._any_that_stays(fault, port)
        if fault.replica_id is not None:
            process = port.processes.get(fault.replica_id)
            if process is None or process.node is None or (process.replica is None and not may_hang):
                return None
            return process if may_hang or not process.hangs else None
        if fault.rank is not None:
            believer = port.beliefs.believer_of(fault.rank)
            process = port.processes[believer] if believer is not None else None
            return process if process is not None and (may_hang or not process.hangs) else None
        up = [each for each in port.processes.values() if each.replica is not None and (may_hang or not each.hangs)]
        # A stream of its own for each fault: another fault chooses its victim without changing whom this one hits.
        stream = self._world.streams.once(fault.kind, fault.deployment, repr(fault.at))
        return stream.choice(up) if up else None

    def _any_that_stays(self, fault: ReplicaUnready, port: DeploymentWorld) -> SimulatedProcess | None:
        """Of those that take requests or come up to do so, with a rank or without one yet."""
        stay = [each for each in port.processes.values() if (half := each.replica) is not None and not half.draining]
        if fault.rank is not None or fault.replica_id is not None:
            who = fault.replica_id if fault.rank is None else port.beliefs.believer_of(fault.rank)
            return next((each for each in stay if each.replica_id == who), None)
        stream = self._world.streams.once(fault.kind, fault.deployment, repr(fault.at))
        return stream.choice(stay) if stay else None

    def _tell(self, deployment: str | None, text: str, node: str | None = None) -> None:
        self._world.story.tell(self._world.loop.now, "fault", deployment, text, node=node)

    # -- the trace

    def _add_trace(self, trace: NodeTrace | None) -> None:
        if trace is None:
            raise ValueError("the events of the fault trace have not been read: load the scenario with load_scenario")
        trace = drawn(trace, self._world.streams.of("faults.map"))
        if trace.down_at_first:
            for node_id in trace.node_ids:
                self._world.begin_without(node_id)
        if trace.left_out:
            self._tell(None, f"{trace.left_out} nodes of the fault trace have no node here, and are left out")
        self.last_at = max(self.last_at, trace.at_s[-1] if trace else 0.0)
        first = 0 if trace.down_at_first else self._begin_down(trace)
        if first < len(trace):
            self._world.loop.at(trace.at_s[first], self._follow, trace, first)

    def _begin_down(self, trace: NodeTrace) -> int:
        """Who is down when the window begins never was a place for a replica; returns the line after those that say so."""
        for index in range(len(trace)):
            if trace.at_s[index] > 0.0 or trace.change[index] != DOWN:
                return index
            self._world.begin_down(trace.node_ids[trace.node[index]])
        return len(trace)

    def _follow(self, trace: NodeTrace, index: int) -> None:
        """The next line of the trace happens, and the one after it is put on the clock."""
        if index + 1 < len(trace):
            self._world.loop.at(trace.at_s[index + 1], self._follow, trace, index + 1)
        node_id = trace.node_ids[trace.node[index]]
        if trace.change[index] == DOWN:
            self._world.lose_node(node_id)
        else:
            self._world.bring_node_back(node_id)


_VERBS: dict[type[object], str] = {
    ReplicaCrash: "crash",
    ReplicaHang: "hang",
    ReplicaSlow: "be slow",
    ReplicaUnready: "take no requests",
}


def _seconds(for_s: float | None) -> float:
    return math.inf if for_s is None else for_s


def _where(fault: StartFailure | SlowStart) -> str:
    return (fault.deployment or "all deployments") + (f" on node {fault.node}" if fault.node is not None else "")


def _starts(fault: StartFailure) -> str:
    count = "all start-ups" if fault.count_max is None else f"the next {fault.count_max} start-ups"
    return count + (f" within {fault.for_s:g} s" if fault.for_s is not None else "")
