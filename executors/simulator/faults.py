"""Puts what the scenario says, faults and changes, on the clock."""

from executors.simulator.controller import Controller
from executors.simulator.processes import Process
from executors.simulator.scenario.model import ControllerCrash, Fault, Moment, NodeLoss, ReplicaCrash
from executors.simulator.world import World


class Schedule:
    """Lets everything that a scenario says happen at its time.

    Attributes:
        last_at: When the last of it happens, returns of nodes and controllers included.
    """

    def __init__(self, world: World, controller: Controller, busiest_minute: float | None) -> None:
        self.last_at = 0.0
        self._world = world
        self._controller = controller
        self._busiest_minute = busiest_minute
        for fault in world.scenario.faults:
            self._put(fault)
        for change in world.scenario.changes:
            at = self.time_of(change.at)
            self.last_at = max(self.last_at, at)
            world.loop.at(at, controller.change, change)

    def time_of(self, moment: Moment) -> float:
        """Virtual seconds of a moment; never before the start."""
        anchor = self._busiest_minute if moment.anchor is not None else 0.0
        return max(0.0, (anchor or 0.0) + moment.offset_s)

    def _put(self, fault: Fault) -> None:
        loop = self._world.loop
        at = over_at = self.time_of(fault.at)
        match fault:
            case NodeLoss(node=node, back_after_s=back_after_s):
                loop.at(at, self._world.lose_node, node)
                if back_after_s is not None:
                    over_at = at + back_after_s
                    loop.at(over_at, self._world.bring_node_back, node)
            case ControllerCrash(restart_after_s=restart_after_s):
                over_at = at + restart_after_s
                loop.at(at, self._controller.crash, restart_after_s)
            case ReplicaCrash():
                loop.at(at, self._crash_replica, fault)
        self.last_at = max(self.last_at, over_at)

    def _crash_replica(self, fault: ReplicaCrash) -> None:
        port = self._world.deployments[fault.deployment]
        story, now = self._world.story, self._world.loop.now
        process = self._victim(fault)
        if process is None:
            what = fault.replica_id or (f"rank {fault.rank}" if fault.rank is not None else "any replica")
            story.tell(now, "fault", fault.deployment, f"{what} was to crash, but there is none")
            return
        rank = port.beliefs.of(process.replica_id)
        story.tell(
            now,
            "fault",
            fault.deployment,
            f"replica {process.replica_id} crashed" + (f" (rank {rank.rank})" if rank is not None else ""),
        )
        port.crash(process)

    def _victim(self, fault: ReplicaCrash) -> Process | None:
        port = self._world.deployments[fault.deployment]
        if fault.replica_id is not None:
            process = port.processes.get(fault.replica_id)
            return process if process is not None and process.node is not None else None
        if fault.rank is not None:
            believer = port.beliefs.believer_of(fault.rank)
            return port.processes[believer] if believer is not None else None
        up = [process for process in port.processes.values() if process.replica is not None]
        return self._world.streams.of("faults", fault.deployment).choice(up) if up else None
