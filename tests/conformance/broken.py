"""Executors that are broken on purpose, each in one line of the contract, and the case that is there to catch it."""

from collections import deque

import attrs
from msgspec.structs import replace

from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    PrepareReplica,
    QueryReplica,
    ReconfigureReplica,
    StopReplica,
)
from rankcore.events import (
    FINAL,
    BundleLost,
    ClockAdvanced,
    NodeChanged,
    NodeLost,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnready,
)
from rankcore.replica.beliefs import NEVER
from rankcore.replica.messages import receive
from rankcore.replica.replica import RunUserCode
from rankcore.spec import NO_CONFIG_ID
from rankcore.testing.conformance import Line
from tests.conformance.in_memory import MemoryExecutor, World
from tests.replicas import HeldReplica

BROKEN = {}
"""By name: how to make its world, the name of the case that catches it, and the line, where that is not the case's own."""


BROKEN_DEPLOYMENTS = {}
"""Those that a whole deployment catches: how to make its world, the case, and what is told of it."""


def caught_in(case, match):
    def register(kind):
        BROKEN_DEPLOYMENTS[kind.__name__, case] = (lambda: World(executor=kind), match)
        return kind

    return register


def caught_by(case, line=None):
    def register(kind):
        def world():
            return World(half=kind) if issubclass(kind, HeldReplica) else World(executor=kind)

        BROKEN[kind.__name__] = (kind if issubclass(kind, World) else world, case, line)
        return kind

    return register


# -- the fence


class ObeysOldEpochs(MemoryExecutor):
    obeyed = ()

    def is_fenced_off(self, command):
        return super().is_fenced_off(command) and not isinstance(command, self.obeyed)

    def execute(self, command):
        newest = self.epoch
        super().execute(command)
        self.epoch = max(newest, self.epoch)


@caught_by("a start of an older epoch comes to nothing")
class StartsForAnOldEpoch(MemoryExecutor):
    def is_fenced_off(self, command):
        return False

    def start(self, command):
        super().start(attrs.evolve(command, epoch=self.world.fence))


@caught_by("a stop and a kill of an older epoch end nobody")
class KillsForAnOldEpoch(ObeysOldEpochs):
    obeyed = (StopReplica, KillReplica)

    def kill(self, command):
        super().kill(attrs.evolve(command, epoch=self.world.fence))


@caught_by("a replaced controller ends nobody")
class KillsThoughItWasReplaced(MemoryExecutor):
    def kill(self, command):
        if command.replica_id in self.processes:
            self.world.kill(command.replica_id)
        else:
            super().kill(command)


@caught_by("a replaced controller ends nobody")
class CutsShortThoughItWasReplaced(MemoryExecutor):
    def stop(self, command):
        super().stop(command)
        self.world.after(command.timeout_s + 1.0, self.cut_short, command.replica_id)

    def cut_short(self, replica_id):
        if replica_id in self.world.processes:
            self.world.kill(replica_id)


@caught_by("a world size of an older epoch is not kept")
class KeepsAnOldEpochsWorldSize(ObeysOldEpochs):
    obeyed = (AnnounceWorldSize,)

    def announce(self, command):
        self.announced = command


@caught_by("an alarm of an older epoch is not set")
class SetsAnOldEpochsAlarm(MemoryExecutor):
    def is_fenced_off(self, command):
        if super().is_fenced_off(command) and hasattr(command, "at"):
            self.set_alarm(command)
        return super().is_fenced_off(command)


@caught_by("what a replaced controller starts does not come up")
class StartsWithoutALookAtTheFence(MemoryExecutor):
    def start(self, command):
        fence, self.world.fence = self.world.fence, 0
        super().start(command)
        self.world.fence = fence


@caught_by("everybody who lives is found")
class FindsOnlyTheInitialised(World):
    def survivors(self):
        return [each for each in super().survivors() if self.processes[each].half.rank is not None]


@caught_by("everybody who lives is found", Line.TRUE)
class TakesNobodyOver(MemoryExecutor):
    def __init__(self, world, epoch):
        super().__init__(world, epoch)
        self.processes.clear()


# -- ends


@caught_by("the death of a running replica is told")
class LosesDeaths(MemoryExecutor):
    def hear(self, event):
        if not isinstance(event, ReplicaDied):
            super().hear(event)


@caught_by("the death of a placed replica is told")
class WatchesTheInitialisedAlone(MemoryExecutor):
    def notice(self, process, kind):
        if process.half.rank is not None or kind is not ReplicaDied:
            super().notice(process, kind)


@caught_by("the death of a survivor is told to who took it over")
class WatchesItsOwnAlone(MemoryExecutor):
    def __init__(self, world, epoch):
        super().__init__(world, epoch)
        self.found = set(self.processes)

    def notice(self, process, kind):
        if process.half.replica_id not in self.found:
            super().notice(process, kind)


@caught_by("a failed start is told")
class KeepsFailuresToItself(MemoryExecutor):
    def hear(self, event):
        if not isinstance(event, ReplicaStartFailed):
            super().hear(event)


@caught_by("a stop is answered")
class NeverSaysStopped(MemoryExecutor):
    def say(self, kind, replica_id, **fields):
        if kind is not ReplicaStopped:
            super().say(kind, replica_id, **fields)


@caught_by("a kill is answered even while user code runs")
class DrainsWhatItShouldKill(MemoryExecutor):
    def kill(self, command):
        self.stop(StopReplica(command.replica_id, 1e6, command.epoch))


@caught_by("the loss of a node is told")
class OverlooksOneOfTwo(MemoryExecutor):
    def notice(self, process, kind):
        if kind is not ReplicaDied or process.half.replica_id.endswith(("0", "1")):
            super().notice(process, kind)


@caught_by("forty ends are all told")
class LosesEveryEighthEnd(MemoryExecutor):
    ends = 0

    def hear(self, event):
        self.ends += isinstance(event, FINAL)
        if not isinstance(event, FINAL) or self.ends % 8:
            super().hear(event)


@caught_by("the death of one is not that of its node")
class TakesANodeForDeadWithOneReplica(MemoryExecutor):
    def hear(self, event):
        if isinstance(event, ReplicaDied):
            event = NodeLost(node_id="node-0", at=event.at)
        super().hear(event)


@caught_by("an end is told when clean up is over")
class SaysStoppedTooEarly(MemoryExecutor):
    def stop(self, command):
        super().stop(command)
        self.say(ReplicaStopped, command.replica_id)


@caught_by("a slow start is no end")
class TakesSlowForDead(MemoryExecutor):
    def change(self, command):
        super().change(command)
        self.world.after(1.0, self.suspect, command.replica_id)

    def suspect(self, replica_id):
        process = self.processes.get(replica_id)
        if process is not None and not process.half.ready:
            self.say(ReplicaDied, replica_id)


@caught_by("who was never initialised is not missing")
class SaysMissingOfTheNew(MemoryExecutor):
    def query(self, command):
        process = self.processes.get(command.replica_id)
        if process is not None and process.half.rank is None:
            self.say(ReplicaMissing, command.replica_id)
        else:
            super().query(command)


@caught_by("the loss of a node is told")
class SaysAWrongNodeIsLost(MemoryExecutor):
    def notice(self, process, kind):
        super().notice(process, kind)
        self.inbox = deque(event for event in self.inbox if not isinstance(event, FINAL))
        self.hear(NodeLost(node_id="node-9", at=self.world.clock))


# -- answers


class AnswersOnlyAboutTheKnown(MemoryExecutor):
    silent_about = ()

    def address(self, command, otherwise):
        if command.replica_id in self.processes or not isinstance(command, self.silent_about):
            super().address(command, otherwise)


@caught_by("a stop of something unknown is answered")
class StopsOnlyTheKnown(AnswersOnlyAboutTheKnown):
    silent_about = (StopReplica,)


@caught_by("a kill of something unknown is answered")
class KillsOnlyTheKnown(AnswersOnlyAboutTheKnown):
    silent_about = (KillReplica,)


@caught_by("a query of something unknown is answered")
class AsksOnlyTheKnown(AnswersOnlyAboutTheKnown):
    silent_about = (QueryReplica,)


@caught_by("stop and query of one that has ended are answered")
class ForgetsWhoHasEnded(MemoryExecutor):
    def address(self, command, otherwise):
        if command.replica_id not in self.ended:
            super().address(command, otherwise)


@caught_by("a repeated start is answered with the place")
class PlacesOnce(MemoryExecutor):
    def start(self, command):
        if command.replica_id not in self.processes:
            super().start(command)


@caught_by("a repeated start is answered with the place")
class StartsASecondProcess(MemoryExecutor):
    def start(self, command):
        self.processes.pop(command.replica_id, None)
        super().start(command)


@caught_by("a repeated start of one that has ended is answered with its end")
class RaisesTheDead(MemoryExecutor):
    def start(self, command):
        self.ended.discard(command.replica_id)
        super().start(command)


@caught_in("packed ranks with a crash", "R11: a node holds 6 replicas, and the first ranks are on")
@caught_by("a named node is where it goes")
class GoesWhereThereIsRoom(MemoryExecutor):
    def start(self, command):
        super().start(replace(command, node_id=None))


@caught_by("a named node is where it goes")
class GoesElsewhereWhereThereIsNoSuchNode(MemoryExecutor):
    def start(self, command):
        super().start(command if command.node_id in self.world.there_are else replace(command, node_id=None))


@caught_in("packed ranks with a crash", "ranks are .*, expected 0..7")
@caught_in("packed ranks with a crash while the controller crashes", "ranks are .*, expected 0..7")
@caught_by("capacity counts who is there")
class TellsFreeSlots(MemoryExecutor):
    def hear(self, event):
        if isinstance(event, NodeChanged):
            there = sum(process.node_id == event.node_id for process in self.world.processes.values())
            event = attrs.evolve(event, capacity=max(0, event.capacity - there))
        super().hear(event)


@caught_by("a stop that takes too long is cut short")
class WaitsForEverToStop(MemoryExecutor):
    def stop(self, command):
        super().stop(attrs.evolve(command, timeout_s=1e6))


@caught_by("a replica that hangs is suspected and can be killed")
class AsksNobodyHowItIs(MemoryExecutor):
    def suspect_who_hangs(self):
        """Nobody is."""


@caught_by("a replica that hangs is suspected and can be killed")
class TakesWhoHangsForDead(MemoryExecutor):
    def suspect_who_hangs(self):
        super().suspect_who_hangs()
        for replica_id in sorted(self.world.hung):
            self.say(ReplicaDied, replica_id)


@caught_by("a replica that hangs is suspected and can be killed")
class WaitsForWhoHangs(MemoryExecutor):
    def kill(self, command):
        if command.replica_id not in self.world.hung:
            super().kill(command)


@caught_by("who is on a node that is cut off has ended when that is told", Line.TRUE)
class TakesACutForALoss(MemoryExecutor):
    def lose_sight(self, node_id):
        self.hear(NodeLost(node_id=node_id, at=self.world.clock))


@caught_by("who is on a node that is cut off has ended when that is told")
class WaitsForWhoIsCutOff(MemoryExecutor):
    def notice(self, process, kind):
        if process.node_id not in self.world.cut:
            super().notice(process, kind)


@caught_by("a replica stands on the bundles that are named")
class GoesOnAnyBundle(MemoryExecutor):
    def start(self, command):
        super().start(replace(command, node_id="node-0"))


@caught_by("a replica stands on the bundles that are named")
class ReportsNoBundles(HeldReplica):
    def receive(self, message, now):
        reactions = super().receive(message, now)
        return tuple(attrs.evolve(each, bundles=()) if isinstance(each, ReplicaReported) else each for each in reactions)


@caught_by("what becomes of a bundle is told")
class TellsLossesToThePresentAlone(MemoryExecutor):
    def __init__(self, world, epoch):
        lost, world.lost = world.lost, {}
        super().__init__(world, epoch)
        world.lost = lost


@caught_by("what becomes of a bundle is told")
class TellsOfNoReturn(MemoryExecutor):
    def tell_bundles(self, kind, bundles):
        if kind is BundleLost:
            super().tell_bundles(kind, bundles)


# -- the world size, the clock, execute


@caught_by("a world size reaches who is there")
class TellsOnlyNewcomers(MemoryExecutor):
    def announce(self, command):
        self.announced = command


@caught_by("a world size reaches who comes later")
class TellsOnlyThePresent(MemoryExecutor):
    def welcome(self, process):
        """Nothing is said."""


@caught_by("an overtaken world size is not kept")
class KeepsTheLastWorldSize(MemoryExecutor):
    def announce(self, command):
        super().announce(command)
        self.announced = command


@caught_by("an alarm rings")
class NeverRings(MemoryExecutor):
    def set_alarm(self, command):
        """None is set."""


@caught_by("an alarm rings")
class RingsAtOnce(MemoryExecutor):
    def set_alarm(self, command):
        self.hear(ClockAdvanced(at=self.world.clock))


@caught_by("a later alarm replaces the earlier")
class RingsEveryAlarm(MemoryExecutor):
    def ring(self, command):
        self.hear(ClockAdvanced(at=self.world.clock))


@caught_by("a replica that takes no requests is told and lives on")
class KillsWhoTakesNoRequests(MemoryExecutor):
    def hear(self, event):
        super().hear(event)
        if isinstance(event, ReplicaUnready):
            self.world.kill(event.replica_id)


@caught_by("a replica that takes no requests is told and lives on")
class NeverSaysReadyAgain(MemoryExecutor):
    unready = False

    def hear(self, event):
        self.unready = self.unready or isinstance(event, ReplicaUnready)
        if not (self.unready and isinstance(event, ReplicaReady)):
            super().hear(event)


@caught_by("a start of user code is not waited for")
class WaitsForUserCode(MemoryExecutor):
    def change(self, command):
        super().change(command)
        while not self.processes[command.replica_id].half.ready:
            self.world.advance()


@caught_by("a command to somebody unknown raises nothing")
class RaisesForTheUnknown(MemoryExecutor):
    def change(self, command):
        self.processes[command.replica_id].receive(command, self)


# -- replicas


@caught_by("a query is answered in its own epoch")
class AnswersInItsOldEpoch(HeldReplica):
    def receive(self, message, now):
        epoch = self.epoch
        reactions = super().receive(message, now)
        if isinstance(message, QueryReplica) and message.epoch > epoch:
            return tuple(attrs.evolve(reaction, epoch=epoch) for reaction in reactions)
        return reactions


@caught_by("a change of a replaced controller is refused")
class KeepsItsFirstEpoch(HeldReplica):
    def receive(self, message, now):
        answered, self.value = message.epoch, replace(self.value, epoch=0)
        return super().receive(message, now) if answered else ()


@caught_by("an overtaken change is not carried out")
class GoesBack(HeldReplica):
    def receive(self, message, now):
        if isinstance(message, ReconfigureReplica):
            self.value = replace(self.value, stamp=NEVER)
        return super().receive(message, now)


@caught_by("an overtaken world size is not believed")
class BelievesTheLastWorldSize(HeldReplica):
    def receive(self, message, now):
        reactions = super().receive(message, now)
        if message.epoch == self.epoch and hasattr(message, "world_size"):
            self.value = replace(self.value, world_size=message.world_size)
        return reactions


class BelievesLate(HeldReplica):
    """Adopts a rank when its user code has ended."""

    late = ()
    adopts = None

    def receive(self, message, now):
        before = self.rank
        reactions = super().receive(message, now)
        if isinstance(message, self.late) and any(isinstance(each, RunUserCode) for each in reactions):
            self.adopts, self.value = self.rank, replace(self.value, rank=before)
        return reactions

    def user_code_ended(self, now, failure=None):
        self.value = replace(self.value, rank=self.adopts or self.rank)
        return super().user_code_ended(now, failure)


@caught_by("a starting replica believes its rank")
class BelievesWhenItHasStarted(BelievesLate):
    late = (InitializeReplica,)


@caught_by("a moving replica believes its new rank")
class BelievesWhenItHasMoved(BelievesLate):
    late = (ReconfigureReplica,)


class AcknowledgesOnce(HeldReplica):
    silent_about = ()

    def receive(self, message, now):
        repeated = (message.epoch, getattr(message, "revision", None)) == self.stamp
        return () if repeated and isinstance(message, self.silent_about) else super().receive(message, now)


@caught_by("a repeated initialization is acknowledged again")
class SaysReadyOnce(AcknowledgesOnce):
    silent_about = (InitializeReplica,)


@caught_by("a repeated change is acknowledged again")
class SaysReconfiguredOnce(AcknowledgesOnce):
    silent_about = (ReconfigureReplica,)


@caught_by("a repeated change is acknowledged again")
class CarriesOutTwice(HeldReplica):
    def receive(self, message, now):
        if (message.epoch, getattr(message, "revision", None)) == self.stamp and self.ready:
            self.value = replace(self.value, stamp=NEVER)
        return super().receive(message, now)


@caught_by("a config that is not sent is kept")
class OverwritesItsConfigWithNone(MemoryExecutor):
    def change(self, command):
        super().change(command)
        if isinstance(command, ReconfigureReplica):
            self.processes[command.replica_id].configs[command.config_id] = command.user_config


@caught_by("a config that is not sent is kept")
class KeepsItsConfigForNone(MemoryExecutor):
    def change(self, command):
        super().change(command)
        process = self.processes.get(command.replica_id)
        if isinstance(command, ReconfigureReplica) and process is not None and command.config_id == NO_CONFIG_ID:
            process.configs[NO_CONFIG_ID] = {"temperature": 0.1}


@caught_in("new user config and then fewer", "says user_config None")
class LosesItsConfigWithItsRank(MemoryExecutor):
    def change(self, command):
        process = self.processes.get(command.replica_id)
        before = process.half.rank if process is not None else None
        super().change(command)
        if before is not None and command.rank != before:
            process.configs[command.config_id] = None


@caught_in("new user config and then fewer while the controller crashes", "says user_config None")
class LosesItsConfigWithItsController(MemoryExecutor):
    def query(self, command):
        if command.replica_id in self.processes:
            self.processes[command.replica_id].configs.clear()
        super().query(command)


@caught_in("packed ranks with a crash", "R11: rank 1 is replaced on its node")
class GoesElsewhereOnceOneHasEnded(MemoryExecutor):
    def start(self, command):
        super().start(replace(command, node_id=max(self.world.there_are)) if self.ended else command)


class Misreports(HeldReplica):
    def receive(self, message, now):
        return self.falsified(super().receive(message, now))

    def user_code_ended(self, now, failure=None):
        return self.falsified(super().user_code_ended(now, failure))

    def falsified(self, reactions):
        return tuple(self.misreport(each) if isinstance(each, ReplicaReported) else each for each in reactions)


@caught_by("a report says what is believed")
class MisreportsItsRank(Misreports):
    def misreport(self, said):
        return said if said.rank is None else attrs.evolve(said, rank=attrs.evolve(said.rank, rank=said.rank.rank + 1))


@caught_by("a report says what is believed")
class ReportsNoConfig(Misreports):
    def misreport(self, said):
        return attrs.evolve(said, config_id=None)


@caught_by("a prepared replica has no rank")
class KeepsItsPreparationToItself(Misreports):
    def misreport(self, said):
        return attrs.evolve(said, prepared=False)


@caught_by("a prepared replica that is given its rank says that it was prepared")
class ForgetsItsPreparationWithItsRank(Misreports):
    def misreport(self, said):
        return said if said.rank is None else attrs.evolve(said, prepared=False)


@caught_by("a replica that is being prepared answers")
class SaysPreparedTooEarly(Misreports):
    def misreport(self, said):
        return attrs.evolve(said, prepared=True)


@caught_by("a prepared replica is given its rank and not started again")
class StartsAgainWithItsRank(HeldReplica):
    def receive(self, message, now):
        if isinstance(message, InitializeReplica):
            self.value = replace(self.value, constructed=False)
        return super().receive(message, now)


@caught_by("a rank during the preparation is believed and adopted after it")
class ForgetsARankDuringThePreparation(HeldReplica):
    def receive(self, message, now):
        if isinstance(message, InitializeReplica) and self.running is not None:
            self.value = replace(self.value, stamp=(message.epoch, message.revision))
            return ()
        return super().receive(message, now)


@caught_by("a repeated preparation is acknowledged again")
class SaysPreparedOnce(AcknowledgesOnce):
    silent_about = (PrepareReplica,)


@caught_by("a second preparation brings another user config")
class IsPreparedOnce(HeldReplica):
    def receive(self, message, now):
        if isinstance(message, PrepareReplica) and self.prepared:
            return (ReplicaPrepared(replica_id=message.replica_id, revision=message.revision, at=now),)
        return super().receive(message, now)


@caught_by("a preparation of one that has a rank is refused")
class ForgetsItsRankToBePrepared(HeldReplica):
    def receive(self, message, now):
        if isinstance(message, PrepareReplica):
            self.value = replace(self.value, rank=None)
        return super().receive(message, now)


@caught_by("a failed preparation is a failed start")
class SaysPreparedThoughItFailed(HeldReplica):
    def user_code_ended(self, now, failure=None):
        return super().user_code_ended(now, None if self.running.rank is None else failure)


@caught_by("a starting replica answers")
class AnswersWhenItHasStarted(HeldReplica):
    def receive(self, message, now):
        reactions = super().receive(message, now)
        if isinstance(message, QueryReplica) and self.starting:
            self.value = replace(self.value, asked=True)
            return ()
        return reactions


@caught_by("a draining replica answers")
class IsSilentWhileItDrains(HeldReplica):
    def receive(self, message, now):
        reactions = super().receive(message, now)
        return () if isinstance(message, QueryReplica) and self.draining else reactions


@caught_by("a moving replica answers when it has moved")
class AnswersWhileItMoves(HeldReplica):
    def receive(self, message, now):
        if isinstance(message, QueryReplica) and self.changing:
            _, report = receive(replace(self.value, running=None, waiting=None), message, now)
            return report
        return super().receive(message, now)
