"""The exhaustive checker of clusters: the series holds, planted bugs are found, and the command tells both."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from rankcore.cluster import outbox, recovery, targets
from rankcore.cluster.state import Outbox
from rankcore.commands import InitializeReplica, QueryReplica
from rankcore.kernel import Violation
from rankcore.testing.explore import Allowance, explored
from rankcore.testing.model_cluster import SYSTEMS, ClusterBounds, ClusterSystem, make, moves, replay, root
from rankcore.testing.model_cluster.system import at_rest
from rankcore.testing.paths import BrokenPromiseError, NoSuchMoveError, as_test
from tests.extent import WHOLE, at_most

ROOT = Path(__file__).resolve().parents[2]


def test_all_promises_hold_in_every_state_of_the_series():
    """In a process of its own, as a user runs it: less than a minute; in `make test` only so far."""
    command = (sys.executable, "-m", "executors.cli", "check", "--cluster", "--json", *at_most(1500))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["holds"]
    assert [each["name"] for each in found["systems"]] == list(SYSTEMS)
    assert all((each["complete"] or not WHOLE) and each["states"] > 1000 for each in found["systems"])
    page = (ROOT / "docs" / "verification.md").read_text()
    rows = [
        f"| {each['name']} | {each['states']:,} | {each['moves']:,} | {each['depth']} |"
        for each in found["systems"]
        if each["complete"]
    ]
    assert [row for row in rows if row not in page] == [], "docs/verification.md is old: these rows are new"


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_beginning_of_each_system_holds(name: str):
    assert explored(ClusterSystem(SYSTEMS[name]), Allowance(states=400)).broken is None


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
    test: dict[str, Any] = {}
    exec(as_test(search.system, search.broken), test)
    with pytest.raises(BrokenPromiseError):
        test["test_a_path_found_by_the_checker"]()
    monkeypatch.undo()
    with suppress(NoSuchMoveError):  # what the machine gives out only because of the bug
        replay(SYSTEMS[system], search.broken.moves)


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
