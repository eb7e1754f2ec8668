"""The exhaustive checker of clusters: the series holds, planted bugs are found, and the command tells both."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from rankcore import core
from rankcore.cluster import adoption, availability, demand, outbox, planner, recovery, step, targets, tenures
from rankcore.cluster.commands import CarryOut, GiveTenure, KillWorker, MoveWeights, Standing
from rankcore.cluster.demand import LookAtDemand
from rankcore.cluster.planner import PLANNER
from rankcore.cluster.records import Cause
from rankcore.cluster.residency import ResidencySpec
from rankcore.cluster.state import Outbox
from rankcore.commands import InitializeReplica, KillReplica, QueryReplica, StartReplica, StopReplica
from rankcore.events import ReplicaMissing, ReplicaPlaced, ReplicaStopped
from rankcore.kernel import Violation
from rankcore.replica.replica import ReplicaHalf
from rankcore.replica.worker import Worker
from rankcore.residency.levels import Phase
from rankcore.rules import news
from rankcore.testing.explore import Allowance, explored
from rankcore.testing.model_cluster import SYSTEMS, ClusterBounds, ClusterSystem, make, moves, replay, root
from rankcore.testing.model_cluster.system import at_rest
from rankcore.testing.model_cluster.workers import HeldWorker, Workers, believed_twice
from rankcore.testing.model_residency.bounds import NodeBounds
from rankcore.testing.model_residency.memory import TakenMemory
from rankcore.testing.paths import BrokenPromiseError, NoSuchMoveError, as_test
from rankcore.values import ReplicaRank
from tests.extent import WHOLE, at_most

pytestmark = pytest.mark.traced

ROOT = Path(__file__).resolve().parents[2]


def test_all_promises_hold_in_every_state_of_the_series():
    """In a process of its own, as a user runs it: less than a minute; in `make test` only so far."""
    command = (sys.executable, "-m", "executors.cli", "check", "--cluster", "--json", *at_most(500))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["holds"]
    assert [each["name"] for each in found["systems"]] == list(SYSTEMS)
    assert all(each["complete"] or not WHOLE for each in found["systems"])
    assert all(each["states"] > (1000 if WHOLE else 500) for each in found["systems"])
    page = (ROOT / "docs" / "verification.md").read_text()
    rows = [
        f"| {each['name']} | {each['states']:,} | {each['moves']:,} | {each['depth']} |"
        for each in found["systems"]
        if each["complete"]
    ]
    assert [row for row in rows if row not in page] == [], "docs/verification.md is old: these rows are new"


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_beginning_of_each_system_holds(name: str):
    assert explored(ClusterSystem(SYSTEMS[name]), Allowance(states=100)).broken is None


def test_whatever_can_happen_happens():
    """Every kind of move is somewhere in the small systems: none of them is dead."""
    seen = set()
    for bounds in (SYSTEMS["cluster-rollback"], SYSTEMS["cluster-policy"], SYSTEMS["cluster-two"], SYSTEMS["cluster-apply"]):
        worlds = [root(bounds)]
        for _ in range(5):
            found = [(world, move) for world in worlds for move in moves(world)]
            seen |= {move[0] for _, move in found}
            worlds = [make(*each)[0] for each in found[:300]]
    assert {"is carried out", "lands", "is acknowledged", "is answered", "comes back", "time passes"} <= seen
    assert {"is lost", "crashes", "is wished", "dies", "leaves", "reports"} <= seen


def _any_acknowledgement_will_do(box: Outbox, number: int) -> Any:
    saved = max(box.saved, number, box.needed)
    rest = replace(box, saved=saved, held=(), due_at=None, unsaved_since=None)
    return rest, [each.command for each in box.held]


def _adopted_at_once(record: Any, at: float) -> Outbox:
    return Outbox(record, needed=0, due_at=at)


PLANTED = {
    "save after command": ("cluster-rollback", Outbox, "is_open", property(lambda box: True)),
    "all is saved lazily": ("cluster-failed", outbox, "is_lazy", lambda before, after: True),
    "one of two saves lost": ("cluster-late-puts", outbox, "acknowledge", _any_acknowledgement_will_do),
    "late put of an old epoch": (
        "cluster-late-puts",
        recovery,
        "newest",
        lambda records: {each.deployment: each for each in records},
    ),
    "adopted before it is its own": ("cluster-late-puts", outbox, "begin", _adopted_at_once),
    "late PolicyAnswered": ("cluster-policy", targets, "is_about", lambda target, number: True),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_with_a_path_that_leads_there(name: str, monkeypatch):
    system, owner, attribute, wrong = PLANTED[name]
    monkeypatch.setattr(owner, attribute, wrong)
    search = explored(ClusterSystem(SYSTEMS[system]))
    assert search.broken is not None
    assert {each.rule for each in search.broken.violations} & {"P2", "A8"}
    _leads_there(search, monkeypatch, SYSTEMS[system])


def _leads_there(search: Any, monkeypatch: pytest.MonkeyPatch, bounds: ClusterBounds) -> None:
    test: dict[str, Any] = {}
    exec(as_test(search.system, search.broken), test)
    with pytest.raises(BrokenPromiseError):
        test["test_a_path_found_by_the_checker"]()
    monkeypatch.undo()
    with suppress(NoSuchMoveError):  # what the machine gives out only because of the bug
        replay(bounds, search.broken.moves)


SMALL, LARGE = (ResidencySpec(weight_bytes=size, min_hot_s=0.0) for size in (4, 6))
NODE = (NodeBounds((8,), 6),)
TURNS = SYSTEMS["cluster-turns"]
LOADING = SYSTEMS["cluster-crash-loading"]
UPDATED = ClusterBounds(weights=(SMALL,), nodes=NODE, wishes=(("scale", "a/x", "1"), ("apply", "a/x", "2")), asks=2, failures=1)
NO_ROOM = ClusterBounds(
    weights=(LARGE,),
    nodes=(NodeBounds((4,), 6),),
    listed=False,
    wishes=(("calls", "a/x", "p:1"), ("calls", "a/x", "p:0")),
    asks=2,
)


NEVER_KNOWN = SimpleNamespace(why=lambda *told: "")


def _offloaded_first(draft: Any, deployment: str, planned: Any) -> None:
    moves = [MoveWeights(deployment, planner.tenure_of(draft, each.replica_id), each, draft.epoch) for each in planned.commands]
    draft.released.setdefault(deployment, []).extend(moves)


def _one_for_each_report(draft: Any, deployment: str, entry: Any, _: Any) -> None:
    targets.write(draft, deployment, entry, entry.target.replicas + 1, Cause.DEMAND)


def _stopped_at_once(draft: Any, deployment: str, stop: Any) -> None:
    entry = draft.find(deployment)
    worker_id = entry.residency.tenures.get(stop.replica_id)
    if worker_id is not None:
        tenures.end_tenure(draft, worker_id)
    draft.worklist.add(deployment, ReplicaStopped(replica_id=stop.replica_id, at=draft.clock))


def _opened_at_once(draft: Any, node_id: str) -> None:
    draft.worklist.add(PLANNER, draft.nodes[node_id].memory)


def _without_loads(draft: Any, report: Any, honest: Any = adoption._replica) -> Any:
    found = honest(draft, report)
    return (
        found if found.phase is not Phase.LOADING else replace(found, phase=Phase.RESTING, gpus=(), gpu_bytes=(), cpu_bytes=1)
    )


def _never_lifted(draft: Any, deployment: str, entry: Any, residency: Any, honest: Any = availability.availability_of) -> Any:
    before = residency.availability
    lasts = before is not None and before.standing is Standing.UNAVAILABLE
    return before if lasts else honest(draft, deployment, entry, residency)


def _routed_once_placed(draft: Any, event: Any, replica: Any, honest: Any = news.on_placed) -> None:
    honest(draft, event, replica)
    draft.routes_added[replica.replica_id] = None


def _also_without_a_rank(workers: Any, worker_id: str, epoch: int, at: float, honest: Any = Workers._report) -> None:
    honest(workers, worker_id, epoch, at)
    held = workers.held.get(worker_id)
    if held is not None:
        workers.news[-1] = attrs.evolve(workers.news[-1], tenure=held.worker.tenure)


SIDEWAYS: Any = tenures.SIDEWAYS
PLANTED_IN_WEIGHTS: dict[str, tuple[ClusterBounds, Any, Any, Any, set[str]]] = {
    "offload before route removal": (TURNS, step.planner, "on_planned", _offloaded_first, {"P5"}),
    "a replica per router's demand": (TURNS, step._PARTS, LookAtDemand, _one_for_each_report, {"P3", "P2"}),
    "demand that never expires": (NO_ROOM, demand, "is_gone", lambda draft, entry: False, {"P2"}),
    "what fits on no node is asked for": (SYSTEMS["cluster-never"], demand, "never", NEVER_KNOWN, {"T18"}),
    "target lowered twice for one victim": (UPDATED, planner, "DRAINING", None, {"R9"}),
    "StopReplica beside Offload": (UPDATED, tenures, "SIDEWAYS", {StartReplica: tenures.on_start}, {"P4", "T10"}),
    "rank reused before the offload ends": (UPDATED, SIDEWAYS, StopReplica, _stopped_at_once, {"R3", "P4"}),
    "placing on a node with an unreported worker": (LOADING, adoption, "open_node", _opened_at_once, {"T11"}),
    "LOADING of the last epoch not adopted": (LOADING, adoption, "_replica", _without_loads, {"T11", "T2", "T1", "P2", "2"}),
    "UNAVAILABLE never lifted": (UPDATED, availability, "availability_of", _never_lifted, {"Q11"}),
    "a kill that outlives its move": (SYSTEMS["cluster-kill-late"], KillWorker, "concerns", lambda *about: True, {"P4"}),
    "route before Ready": (LOADING, core._HANDLERS, ReplicaPlaced, core._about_live(_routed_once_placed), {"P5"}),
    "HOT rankless at recover": (LOADING, Workers, "_report", _also_without_a_rank, {"T11"}),
    "a copy that is cut short": (SYSTEMS["cluster-copy-late"], tenures, "_copied_until", lambda *about: 0.0, {"P4"}),
    "hung leaver": (SYSTEMS["cluster-evict-loading"], SIDEWAYS, KillReplica, tenures.on_stop, {"P2"}),
}


@pytest.mark.parametrize("name", PLANTED_IN_WEIGHTS)
def test_a_bug_about_weights_is_found_with_a_path_that_leads_there(name: str, monkeypatch: pytest.MonkeyPatch):
    bounds, owner, attribute, wrong, rules = PLANTED_IN_WEIGHTS[name]
    if isinstance(owner, dict):
        monkeypatch.setitem(owner, attribute, wrong)
    else:
        monkeypatch.setattr(owner, attribute, wrong)
    search = explored(ClusterSystem(bounds), Allowance(states=4000))
    assert search.broken is not None
    assert {each.rule for each in search.broken.violations} & rules
    _leads_there(search, monkeypatch, bounds)


def test_what_does_not_come_to_rest_well_is_found():
    world = root(ClusterBounds())
    assert list(at_rest(world)) == []
    assert {each.detail for each in at_rest(attrs.evolve(world, store=()))} == {
        "the store has another record of a/x than its deployment"
    }
    assert {each.detail for each in at_rest(attrs.evolve(world, living=()))} == {"[] live, and ['a/x#1.0'] are known"}
    (box,) = (entry.outbox for entry in world.state.deployments.values())
    held = replace(box, held=(outbox.Held(1, None),))
    entry = replace(world.state.deployments["a/x"], outbox=held)
    stuck = replace(world.state, deployments=world.state.deployments.set("a/x", entry))
    assert Violation("P2", "1 commands of a/x wait for ever") in list(at_rest(attrs.evolve(world, state=stuck)))
    begun, _ = make(root(ClusterBounds(replicas=1, deaths=1)), ("dies", 0))
    assert {each.rule for each in at_rest(begun)} == {"P2"}


def test_what_is_commanded_of_a_process_that_has_ended_comes_to_nothing():
    bounds = SYSTEMS["cluster-two"]
    world, _ = make(root(bounds), ("is wished", 0))
    while not any(isinstance(each.command.command, InitializeReplica) for each in world.given):
        world, broken = make(world, next(moves(world)))
        assert broken == ()
    started = [each.replica_id for each in world.living].index("a/x#1.1")
    world, broken = make(world, ("dies", started))
    assert broken == ()
    after, broken = make(world, ("is carried out", 0))
    assert broken == ()
    assert after.living == world.living


def test_a_process_that_has_ended_before_it_is_asked_is_reported_missing():
    bounds = SYSTEMS["cluster-two"]
    world, _ = make(root(bounds), ("is wished", 0))
    while not world.living:
        world, broken = make(world, next(moves(world)))
        assert broken == ()
    for move in ("crashes", "comes back"):
        world, broken = make(world, (move, 0))
        assert broken == ()
    while not any(isinstance(each.command.command, QueryReplica) for each in world.given):
        world, broken = make(world, next(moves(world)))
        assert broken == ()
    asked = [type(each.command.command) for each in world.given].index(QueryReplica)
    unknown = world.given[asked].command.command.replica_id
    assert unknown in world.state.deployments["a/x"].ranks.unreported
    world, _ = make(world, ("dies", [each.replica_id for each in world.living].index(unknown)))
    after, broken = make(world, ("is carried out", asked))
    assert broken == ()
    assert unknown not in after.state.deployments["a/x"].ranks.replicas


def test_workers_that_the_books_do_not_know_at_rest_are_found():
    bounds = ClusterBounds(weights=(SMALL,), nodes=NODE, replicas=0)
    world = root(bounds)
    assert list(at_rest(world)) == []
    forgotten = attrs.evolve(world, workers=(HeldWorker(Worker("a/x@1#1.0", "n0"), Phase.SERVING),))
    assert {each.rule for each in at_rest(forgotten)} == {"T11"}


def test_who_hangs_does_not_begin_to_hang_again():
    bounds = ClusterBounds(weights=(SMALL,), nodes=NODE, wishes=(("scale", "a/x", "1"),), asks=1, hangs=2)
    world, _ = make(root(bounds), ("is wished", 0))
    while not world.workers:
        world, broken = make(world, next(moves(world)))
        assert broken == ()
    assert ("hangs", 0) in moves(world)
    world, broken = make(world, ("hangs", 0))
    assert broken == ()
    assert ("hangs", 0) not in moves(world)


def test_a_rank_that_two_workers_believe_is_found():
    half = ReplicaHalf(epoch=1, replica_id="", version="1", node_id="n0", rank=ReplicaRank(0, 0, 0))
    one, other = (
        HeldWorker(Worker(worker_id, "n0", replica=replace(half, replica_id=replica_id)), Phase.SERVING)
        for worker_id, replica_id in (("a/x@1#1.0", "a/x#1.0"), ("a/x@1#1.1", "a/x#1.1"))
    )
    assert list(believed_twice((one,))) == []
    assert [each.rule for each in believed_twice((one, other))] == ["R3"]


def test_a_worker_says_nothing_to_an_older_controller_and_who_has_none_is_missing():
    workers = Workers({"a/x@1#1.0": HeldWorker(Worker("a/x@1#1.0", "n0"), Phase.SERVING)}, TakenMemory())
    workers.obey(GiveTenure("a/x", "a/x@1#1.0", StartReplica("a/x#1.0", 0, "1", None, (), 2), 2), frozenset(), 0.0)
    workers.carry_out(CarryOut("a/x", QueryReplica("a/x#1.0", 1)), 0.0)
    assert workers.news == []
    workers.carry_out(CarryOut("a/x", QueryReplica("a/x#1.7", 2)), 0.0)
    assert [type(each) for each in workers.news] == [ReplicaMissing]


def test_a_stop_of_a_tenure_is_for_its_worker_and_breaks_a_promise_where_it_goes_to_the_backend():
    workers = Workers({}, TakenMemory())
    workers.carry_out(CarryOut("a/x", StopReplica("a/x#1.0", 1.0, 1)), 0.0)
    assert [each.rule for each in workers.broken] == ["P4"]
