"""The exhaustive checker of models over GPUs: the series holds, planted bugs are found, and the command tells both."""

import json
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import attrs
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from executors.cli.app import app
from rankcore.events import ClockAdvanced
from rankcore.frozen import EMPTY
from rankcore.kernel import Violation
from rankcore.residency import Phase, displacement, leaving, life, placing, reach, step, turns
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.levels import Level
from rankcore.testing.explore import Allowance, explored
from rankcore.testing.model_residency import SYSTEMS, ResidencySystem, make, root
from rankcore.testing.model_residency.bounds import in_turns
from rankcore.testing.model_residency.canonical import canonical
from rankcore.testing.model_residency.memory import TakenMemory
from rankcore.testing.model_residency.system import at_rest, has_room_for
from rankcore.testing.model_residency.world import ResidencyWorldDraft
from rankcore.testing.paths import BrokenPromiseError, as_test
from tests.extent import WHOLE, at_most

ROOT = Path(__file__).resolve().parents[2]
TWO = SYSTEMS["residency-two"]


def test_all_promises_hold_in_every_state_of_the_series():
    """In a process of its own, as a user runs it; in `make test` most systems only so far."""
    command = (sys.executable, "-m", "executors.cli", "check", "--residency", "--json", *at_most(1000))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["holds"]
    assert [each["name"] for each in found["systems"]] == list(SYSTEMS)
    assert all(each["complete"] or (not WHOLE and each["states"] >= 1000) for each in found["systems"])
    page = (ROOT / "docs" / "verification.md").read_text()
    rows = [
        f"| {each['name']} | {each['states']:,} | {each['moves']:,} | {each['depth']} |"
        for each in found["systems"]
        if each["complete"]
    ]
    assert [row for row in rows if row not in page] == [], "docs/verification.md is old: these rows are new"


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_beginning_of_each_system_holds(name: str):
    search = explored(ResidencySystem(SYSTEMS[name]), Allowance(states=200))
    assert (search.broken, search.complete) == (None, False)


@pytest.mark.parametrize(
    "bounds", [in_turns(3, 4, asks=3), in_turns(1, 3, 4, asks=3), in_turns(3, 4, asks=2, replacements=2)], ids=str
)
def test_whoever_is_first_in_line_is_hot_by_the_time_it_was_promised(bounds):
    """Worlds of turns, smaller, to their end: no promise is late, or put off but by a successor, and all comes to rest."""
    search = explored(ResidencySystem(bounds))
    assert (search.broken, search.complete) == (None, True)


@pytest.mark.traced
def test_loads_that_are_broken_off_for_others_are_so_by_the_rules_in_every_state(monkeypatch):
    """T16, in 259 states; where any load may be broken off, one is found that is so twice in a row."""
    usual = SYSTEMS["residency-two"]
    small, large = usual.models
    bounds = attrs.evolve(usual, models=(small, replace(large, priority=1, min_hot_s=0.0)), failures=1, repeats=0)
    search = explored(ResidencySystem(bounds))
    assert (search.broken, search.complete, search.explored) == (None, True, 259)
    monkeypatch.setattr(displacement, "may_be_broken_off", lambda *_: True)
    search = explored(ResidencySystem(bounds))
    assert search.broken is not None
    assert {each.rule for each in search.broken.violations} == {"T16"}


@pytest.mark.traced
def test_a_successor_whose_place_is_given_to_the_first_in_line_is_found(monkeypatch):
    monkeypatch.setattr(placing, "_back", lambda *_: None)
    search = explored(ResidencySystem(in_turns(3, 4, asks=2, replacements=1)))
    assert search.broken is not None
    assert {each.rule for each in search.broken.violations} == {"T12"}


@pytest.mark.traced
def test_promises_that_are_late_or_put_off_are_found_where_all_keep_to_the_estimates(monkeypatch):
    monkeypatch.setattr(turns, "_loading_bytes", lambda *_: 0)
    monkeypatch.setattr(turns, "_copy_s", lambda *_: -1.0)
    search = explored(ResidencySystem(in_turns(3, 4, asks=2)))
    assert search.broken is not None
    assert {each.rule for each in search.broken.violations} == {"T13"}
    test = {}
    exec(as_test(search.system, search.broken), test)
    with pytest.raises(BrokenPromiseError):
        test["test_a_path_found_by_the_checker"]()


def test_in_a_tick_one_load_goes_on_the_one_that_began_first():
    world, _ = after(in_turns(1, 3), ("is wished", 0), ("is wished", 1), ("a tick passes", 0))
    assert [each.replica_id for each in world.given] == ["m3#1"]
    assert world.ticks == (0,)


def after(bounds, *path):
    world, broken = root(bounds), ()
    for move in path:
        world, broken = make(world, move)
    return world, broken


def anybody_who_serves(victim, *_):
    return victim.phase is Phase.SERVING


PLANTED = {
    "who waits is never tried again": ((step,), "retry", lambda _ledger: None, {"T7"}),
    "nobody goes on when a victim has left": ((life,), "one_less", lambda _ledger, _taker, _giver: None, {"T9", "T10"}),
    "a dedicated replica is displaced": ((displacement, reach), "yields_to", anybody_who_serves, {"T4", "T5"}),
    "copies are not dropped for others": ((leaving,), "dropped_for", lambda *_: None, {"T6"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_with_a_path_that_leads_there(name: str, monkeypatch):
    modules, function, wrong, rules = PLANTED[name]
    for module in modules:
        monkeypatch.setattr(module, function, wrong)
    for bounds in (SYSTEMS["residency-nodes"], SYSTEMS["residency-owned"], TWO):
        search = explored(ResidencySystem(bounds), Allowance(states=20_000))
        if search.broken is not None:
            break
    assert search.broken is not None
    assert {each.rule for each in search.broken.violations} & rules, search.broken
    test = {}
    exec(as_test(search.system, search.broken), test)
    with pytest.raises(BrokenPromiseError):
        test["test_a_path_found_by_the_checker"]()


def test_a_lower_priority_that_displaces_a_higher_one_is_found(monkeypatch):
    for module in (displacement, reach):
        monkeypatch.setattr(module, "yields_to", anybody_who_serves)
    search = explored(ResidencySystem(SYSTEMS["residency-priorities"]))
    assert search.broken is not None
    assert {each.rule for each in search.broken.violations} & {"T4", "T5"}


@pytest.mark.traced
def test_weights_in_uneven_parts_are_on_two_gpus_of_one_node_and_on_three_of_the_other():
    world, broken = after(SYSTEMS["residency-shards"], ("is wished", 3))
    assert (sorted(each.gpu_bytes for each in world.state.replicas.values()), broken) == ([(4, 4, 4), (6, 6)], ())
    (split,) = (each for each in SYSTEMS["residency-shards"].models if each.model == "split")
    here, there = (world.state.nodes[each] for each in ("n0", "n1"))
    assert not any(has_room_for(node, split.shard_bytes) for node in (here, there))
    empty = root(SYSTEMS["residency-shards"]).state.nodes
    assert all(has_room_for(empty[each], split.shard_bytes) for each in ("n0", "n1"))
    assert not has_room_for(empty["n0"], ((1, 9),))


@pytest.mark.parametrize("reserves", [True, False])
def test_who_waits_has_a_reservation_but_where_there_is_none(reserves):
    bounds = SYSTEMS["residency-unreserved"]
    bounds = attrs.evolve(bounds, policy=replace(bounds.policy, reserves=reserves))
    world, broken = after(bounds, ("is wished", 1), ("is done", 0), ("is wished", 0))
    assert broken == ()
    assert (world.state.head is not None) is reserves


def test_what_never_comes_to_rest_is_found(monkeypatch):
    """A load that is given up for another one, for ever."""

    def again(draft, number):
        draft.given.append(draft.given.pop(number))

    from rankcore.testing.model_residency import world

    monkeypatch.setitem(world._MOVES, "is done", again)
    search = explored(ResidencySystem(attrs.evolve(TWO, asks=1, failures=0, repeats=0)))
    assert search.broken is not None
    assert [each.rule for each in search.broken.violations] == ["T10"]


def test_a_world_that_is_unwell_at_rest_is_found_by_a_shortest_path(monkeypatch):
    module = sys.modules["rankcore.testing.model_residency.system"]
    amiss = Violation("T7", "it waits beside room")
    monkeypatch.setattr(module, "at_rest", lambda world: [amiss] if world.state.replicas else [])
    search = explored(ResidencySystem(TWO))
    assert search.broken is not None
    assert search.broken.violations == (amiss,)
    assert search.broken.moves[-1] == "is done 0"
    assert "settles=True" in as_test(search.system, search.broken)


@pytest.mark.traced
def test_a_replica_that_stays_on_the_way_or_waits_without_need_is_found():
    world, _ = after(TWO, ("is wished", 0), ("is done", 0))
    (resident,) = world.state.replicas.values()
    stuck = attrs.evolve(world, state=with_resident(world.state, replace(resident, phase=Phase.LOADING)))
    assert [each.rule for each in at_rest(stuck)] == ["T10"]
    idle = replace(resident, phase=Phase.WAITING, level=Level.COLD, because="")
    assert [each.rule for each in at_rest(attrs.evolve(world, state=with_resident(world.state, idle)))] == ["T10", "T7"]
    said = replace(idle, because="it is said why")
    assert [each.rule for each in at_rest(attrs.evolve(world, state=with_resident(world.state, said)))] == ["T7"]


def with_resident(state, resident):
    """For looking only: its index is that of before."""
    return with_fields(state, replicas=state.replicas.set(resident.replica_id, resident))


def with_fields(state, **fields):
    """For looking only: its index is that of before."""
    changed = object.__new__(type(state))
    for field in attrs.fields(type(state)):
        object.__setattr__(changed, field.name, fields.get(field.name, getattr(state, field.name)))
    return changed


@pytest.mark.traced
def test_memory_that_is_taken_twice_is_found():
    def load(replica_id, node_id, source=Level.COLD):
        return LoadToGpu(replica_id=replica_id, model="m", node_id=node_id, gpus=(0,), gpu_bytes=(5,), source=source, move=1)

    nodes = SYSTEMS["residency-nodes"].nodes
    assert not list(TakenMemory().begun(load("a", "n0")).check(nodes))
    assert [each.rule for each in TakenMemory().begun(load("a", "n0")).begun(load("b", "n0")).check(nodes)] == ["T1"]
    assert [each.rule for each in TakenMemory().begun(load("a", "n0")).begun(load("a", "n1")).check(nodes)] == ["T2"]
    assert [each.rule for each in TakenMemory().begun(load("a", "n0", Level.WARM)).check(nodes)] == ["T2"]


def test_worlds_that_differ_only_in_numbers_of_commands_are_one():
    """It was offloaded and loaded again; or it was asked for three times, and stayed where it was."""
    again, _ = after(TWO, ("is wished", 0), ("is done", 0), ("is wished", 2), ("is done", 0), ("is wished", 0), ("is done", 0))
    stayed, _ = after(TWO, ("is wished", 0), ("is done", 0), ("is wished", 0), ("is wished", 0))
    assert (again.state.moves, again.state.requests) != (stayed.state.moves, stayed.state.requests)
    assert canonical(again) == canonical(stayed)


def test_worlds_with_a_promise_are_one_whenever_it_was_made():
    """The large one stays for 5 s, so the small one is first in line: now, or after as long a time."""
    draft = ResidencyWorldDraft(root(TWO))
    draft.tell(ClockAdvanced(at=100.0))
    early, late = root(TWO), draft.close()
    for move in (("is wished", 1), ("is done", 0), ("is wished", 0)):
        (early, _), (late, _) = make(early, move), make(late, move)
    assert early.state.head is not None
    assert early.state.head != late.state.head
    assert canonical(early) == canonical(late)
    for change in ({"head": None}, {"head": replace(early.state.head, since=-1.0)}):
        assert canonical(attrs.evolve(early, state=with_fields(early.state, **change))) != canonical(early)


def test_loads_that_were_shared_count_while_somebody_who_shared_them_loads():
    world, _ = after(TWO, ("is wished", 0))
    (loading,) = world.state.replicas.values()
    shared = [replace(world.state.nodes["n0"], shared_at=at) for at in (-2.0, -1.0, loading.since)]
    past, older, now = (attrs.evolve(world, state=with_fields(world.state, nodes=EMPTY.set("n0", each))) for each in shared)
    assert canonical(past) == canonical(older) != canonical(now)


def test_the_command_says_how_many_states_there_are():
    done = CliRunner().invoke(app, ["check", "--residency", "--only", "residency-two", "--states", "300"])
    assert done.exit_code == 0
    assert "T1 to T10, T12 and T13 hold in every state" in " ".join(done.stdout.split())
    wrong = CliRunner().invoke(app, ["check", "--residency", "--only", "router-queue"])
    assert wrong.exit_code == 2


@pytest.mark.parametrize("other", [("--router",), ("--deep",), ("--replicas", "2")], ids=str)
def test_the_command_refuses_what_it_would_not_heed(other):
    refused = CliRunner().invoke(app, ["check", "--residency", *other])
    assert refused.exit_code == 2
    assert f"leave {'--residency' if other == ('--router',) else other[0]} out" in " ".join(refused.stderr.split())


def test_the_command_tells_a_broken_promise_and_the_path_to_it(monkeypatch):
    monkeypatch.setattr(step, "retry", lambda _ledger: None)
    done = CliRunner().invoke(app, ["check", "--residency", "--only", "residency-nodes"])
    assert done.exit_code == 1
    assert re.search("BROKEN after .*T7", done.stdout)
    assert "is wished 0" in done.stdout


def test_where_there_is_a_terminal_a_bar_says_which_system_is_explored(monkeypatch):
    told = []
    monkeypatch.setattr("executors.cli.check.runs_bar", lambda what, quiet: told.append((what, quiet)) or SilentBar())
    for more in ([], ["--quiet"], ["--json"]):
        done = CliRunner().invoke(app, ["check", "--residency", "--only", "residency-two", "--states", "10", *more])
        assert done.exit_code == 0
    assert told == [("residency-two: states explored, of those found", quiet) for quiet in (False, True, True)]


class SilentBar(nullcontext):
    """A bar that is not drawn."""

    def __enter__(self):
        return self

    def show(self, done, total):
        """Told after each few worlds."""
        assert 0 < done <= total
