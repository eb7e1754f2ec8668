"""A good executor that is small: replicas in memory, a clock that jumps. What is broken on purpose is made of it."""

import heapq
from collections import deque
from itertools import count

from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
    StopReplica,
    WakeAt,
)
from rankcore.events import (
    BundleLost,
    BundleRestored,
    ClockAdvanced,
    NodeChanged,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
)
from rankcore.replica.replica import Drain, End, RunUserCode
from rankcore.spec import config_id_of
from rankcore.testing.conformance import Belief, SelfReport
from tests.replicas import HeldReplica

STEP_S, LEASE_S = 0.02, 5.0
GROUP = "pg-1"
ROOM = 6


class Process:
    """One replica: its half of the contract, and what its user code does."""

    def __init__(self, world, start, node_id):
        self.world, self.node_id = world, node_id
        self.half = world.half(start, node_id)
        self.executor = None  # who sent the last message that was not refused, and is answered
        self.beliefs, self.configs, self.applied = [], {}, 0
        self.gone = False

    def receive(self, message, executor):
        refused = self.half.refused
        reactions = self.half.receive(message, self.world.clock)
        if self.half.refused > refused:
            return
        self.executor = executor
        if isinstance(message, (PrepareReplica, InitializeReplica, ReconfigureReplica)):
            if message.user_config is not None or message.config_id == config_id_of(None):
                self.configs[message.config_id] = message.user_config
        self.react(reactions)

    def react(self, reactions):
        if self.half.rank is not None and (not self.beliefs or self.beliefs[-1].rank != self.half.rank):
            self.beliefs.append(Belief(self.world.clock, self.half.rank))
        for reaction in reactions:
            if isinstance(reaction, RunUserCode):
                fails = reaction.starting and self.world.takes_a_failure()
                self.world.after(self.world.slow_s, self.finish, "told to fail" if fails else None)
            elif isinstance(reaction, Drain):
                self.world.after(min(reaction.timeout_s, self.world.slow_s), self.world.end, self, ReplicaStopped)
            elif isinstance(reaction, End):
                self.world.end(self, ReplicaStopped)
            elif isinstance(reaction, ReplicaStartFailed):
                self.world.end(self, ReplicaStartFailed)
            else:
                self.executor.hear(reaction)

    def finish(self, failure):
        if not self.gone:
            self.applied += 1
            self.react(self.half.user_code_ended(self.world.clock, failure))

    def look(self):
        """What checks user code, now and then."""
        if not self.gone and self.executor is not None:
            self.react(self.half.readiness_checked(self.world.clock, "told to" if self.world.closed else None))

    def report(self):
        half = self.half
        return SelfReport(
            replica_id=half.replica_id,
            node_id=self.node_id,
            at=self.world.clock,
            beliefs=tuple(self.beliefs),
            world_size=half.world_size,
            version=half.version,
            user_config=self.configs.get(half.config_id),
            ready=half.ready,
            draining=half.draining,
            applied=self.applied,
        )


class World:
    """A `Bench`: two nodes, processes, and the executors of all controllers so far."""

    patience_s = 60.0
    bundles = ("node-0", "node-1", "node-1")

    def __init__(self, executor=None, half=HeldReplica):
        self.kind, self.half = executor or MemoryExecutor, half
        self.clock, self.fence, self.slow_s, self.failures = 0.0, 0, 0.0, 0
        self.processes, self.there_are, self.executors = {}, ["node-0", "node-1"], []
        self.agenda, self.numbers = [], count()
        self.closed = False
        self.hung, self.cut, self.lost = set(), set(), {}

    def after(self, delay_s, act, *arguments):
        heapq.heappush(self.agenda, (self.clock + delay_s, next(self.numbers), act, arguments))

    def takes_a_failure(self):
        self.failures -= 1
        return self.failures >= 0

    def begin(self, start):
        node_id = min(self.there_are, key=lambda node: sum(each.node_id == node for each in self.processes.values()))
        if start.bundles:
            node_id = self.bundles[start.bundles[0]]
        self.processes[start.replica_id] = process = Process(self, start, start.node_id or node_id)
        return process

    def end(self, process, kind):
        if process.gone:
            return
        process.gone = True
        if self.processes.get(process.half.replica_id) is process:
            del self.processes[process.half.replica_id]
        for executor in self.executors:
            executor.notice(process, kind)

    def expire(self, node_id):
        """Who is cut off ends by itself, and the executor, whom nothing has reached, knows by its clock that it has."""
        for process in [each for each in self.processes.values() if each.node_id == node_id]:
            self.end(process, ReplicaDied)

    # -- the bench

    def open(self, epoch):
        self.fence = epoch
        executor = self.kind(self, epoch)
        self.executors.append(executor)
        return executor

    def survivors(self):
        return sorted(self.processes)

    def crash(self, executor):
        self.executors.remove(executor)

    def now(self):
        return self.clock

    def advance(self):
        if not self.agenda or self.agenda[0][0] > self.clock + STEP_S:
            self.clock += STEP_S
            return
        at, _, act, arguments = heapq.heappop(self.agenda)
        self.clock = max(self.clock, at)
        act(*arguments)

    def nodes(self):
        return tuple(self.there_are)

    def room(self, node_id):
        return ROOM

    def replicas(self):
        return [process.report() for process in self.processes.values() if process.half.replica_id not in self.hung]

    def hang(self, replica_id):
        self.hung.add(replica_id)
        for executor in self.executors:
            executor.suspect_who_hangs()

    def partition(self, node_id):
        self.cut.add(node_id)
        for executor in self.executors:
            executor.lose_sight(node_id)
        self.after(LEASE_S, self.expire, node_id)

    def group(self):
        return GROUP, self.bundles

    def lose_bundle(self, index):
        self.lost[index] = self.clock
        for executor in self.executors:
            executor.tell_bundles(BundleLost, (index,))

    def restore_bundle(self, index):
        del self.lost[index]
        for executor in self.executors:
            executor.tell_bundles(BundleRestored, (index,))

    def kill(self, replica_id):
        self.end(self.processes[replica_id], ReplicaDied)

    def lose_node(self, node_id):
        self.there_are.remove(node_id)
        for process in [each for each in self.processes.values() if each.node_id == node_id]:
            self.end(process, ReplicaDied)

    def fail_starts(self, count):
        self.failures = count

    def slow(self, by_s):
        self.slow_s = by_s

    def take_requests(self, yes):
        self.closed = not yes
        for process in self.processes.values():
            self.after(STEP_S, process.look)


class MemoryExecutor:
    """Keeps all that an executor has to."""

    def __init__(self, world, epoch):
        self.world, self.epoch = world, epoch
        self.inbox, self.ended, self.processes = deque(), set(), dict(world.processes)
        self.announced, self.alarm = None, None
        for node_id in world.there_are:
            self.tell_room(node_id)
        if world.lost:
            self.tell_bundles(BundleLost, tuple(world.lost))

    def execute(self, command):
        if self.is_fenced_off(command):
            return
        self.epoch = command.epoch
        act = {
            StartReplica: self.start,
            AnnounceWorldSize: self.announce,
            WakeAt: self.set_alarm,
            StopReplica: self.stop,
            KillReplica: self.kill,
            QueryReplica: self.query,
            PrepareReplica: self.change,
            InitializeReplica: self.change,
            ReconfigureReplica: self.change,
        }.get(type(command))
        if act is not None:
            act(command)

    def poll(self):
        return self.inbox.popleft() if self.inbox else None

    def tell_room(self, node_id):
        self.hear(NodeChanged(node_id=node_id, capacity=ROOM, at=self.world.clock))

    def tell_bundles(self, kind, bundles):
        self.hear(kind(bundles=bundles, group_id=GROUP, at=self.world.clock))

    def suspect_who_hangs(self):
        for replica_id in sorted(self.world.hung & self.processes.keys()):
            self.say(ReplicaUnhealthy, replica_id, reason="it does not answer")
            self.world.after(1.0, self.suspect_who_hangs)

    def lose_sight(self, node_id):
        """Nothing is known of who is there until their lease is over."""

    def hear(self, event):
        self.inbox.append(event)

    def say(self, kind, replica_id, **fields):
        self.hear(kind(replica_id=replica_id, at=self.world.clock, **fields))

    def is_fenced_off(self, command):
        return command.epoch < self.epoch

    def start(self, command):
        replica_id = command.replica_id
        if replica_id in self.ended:
            self.say(ReplicaStopped, replica_id)
            return
        if command.epoch < self.world.fence:
            return  # the process looks at the fence as it comes up, and ends
        if replica_id not in self.processes and command.node_id not in (None, *self.world.there_are):
            self.say(ReplicaStartFailed, replica_id, reason="there is no such node")
            return
        if replica_id not in self.processes:
            self.processes[replica_id] = self.world.begin(command)
            self.welcome(self.processes[replica_id])
        self.say(ReplicaPlaced, replica_id, node_id=self.processes[replica_id].node_id)
        self.tell_room(self.processes[replica_id].node_id)

    def welcome(self, process):
        if self.announced is not None:
            process.receive(self.announced, self)

    def announce(self, command):
        newest = self.announced
        if newest is None or (command.epoch, command.revision) > (newest.epoch, newest.revision):
            self.announced = command
            for process in self.processes.values():
                process.receive(command, self)

    def set_alarm(self, command):
        self.alarm = command
        self.world.after(max(0.0, command.at - self.world.clock), self.ring, command)

    def ring(self, command):
        if self.alarm is command:
            self.hear(ClockAdvanced(at=self.world.clock))

    def stop(self, command):
        self.address(command, ReplicaStopped)

    def kill(self, command):
        self.address(command, ReplicaStopped)

    def query(self, command):
        self.address(command, ReplicaMissing)

    def address(self, command, otherwise):
        process = self.processes.get(command.replica_id)
        if process is not None and command.epoch < self.world.fence:
            return  # the process looks at the fence, and so does whoever signals
        if process is not None:
            process.receive(command, self)
        else:
            self.say(otherwise, command.replica_id)

    def change(self, command):
        process = self.processes.get(command.replica_id)
        if process is not None:
            process.receive(command, self)

    def notice(self, process, kind):
        """A process has ended."""
        replica_id = process.half.replica_id
        if self.processes.get(replica_id) is process:
            del self.processes[replica_id]
            self.ended.add(replica_id)
            self.say(kind, replica_id)
