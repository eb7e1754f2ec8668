"""The values that the library speaks in: what they say, what they refuse, and that they never change."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

import rankcore
from rankcore import DeploymentSpec, DeploymentState, DeploymentStatus, ReplicaRank, ReplicaState, checks, errors
from rankcore.commands import InitializeReplica, StartReplica, WakeAt
from rankcore.errors import FieldError, InvalidEventError, InvalidSpecError, RankcoreError, UnknownDeploymentError
from rankcore.events import ReplicaReady
from rankcore.frozen import FrozenDict, freeze_json, thaw_json
from rankcore.spec import config_id_of
from rankcore.values import age_key
from tests.scripted import Deployment

ROOT = Path(__file__).parents[2]
A, B, C = "llm#1.0", "llm#1.1", "llm#1.2"


# ---------------------------------------------------------------------------------------------------------------------
# the package


def test_every_public_name_is_there() -> None:
    assert [name for name in rankcore.__all__ if not hasattr(rankcore, name)] == []


def test_a_name_that_is_none_of_rankcores_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rankcore' has no attribute 'ranck'"):
        _ = rankcore.ranck


@pytest.mark.parametrize("name", ["codec", "invariants"])
def test_a_module_that_few_need_is_loaded_when_it_is_asked_for(name: str) -> None:
    program = (
        f"import sys, rankcore; early = 'rankcore.{name}' in sys.modules; module = rankcore.{name};"
        f"print(early, module is sys.modules['rankcore.{name}'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("name", ["codec", "invariants"])
def test_a_module_that_is_loaded_late_is_the_module_itself(name: str) -> None:
    assert rankcore.__getattr__(name) is sys.modules[f"rankcore.{name}"]


# ---------------------------------------------------------------------------------------------------------------------
# errors


def test_an_error_of_a_field_says_which_one_what_was_found_and_what_is_allowed() -> None:
    with pytest.raises(InvalidSpecError) as raised:
        DeploymentSpec(name="llm", target_replicas=-1)
    error = raised.value
    assert (error.field, error.found) == ("DeploymentSpec.target_replicas", -1)
    assert str(error) == f"DeploymentSpec.target_replicas must be {error.allowed}, got -1"


def test_a_deployment_has_room_in_its_name_for_the_ids_of_its_replicas() -> None:
    longest = DeploymentSpec(name="x" * checks.DEPLOYMENT_LENGTH_MAX, target_replicas=1)
    checks.identifier(InvalidEventError, "replica_id", f"{longest.name}#{2**31 - 1}.{2**63}")
    with pytest.raises(InvalidSpecError, match=r"^DeploymentSpec\.name must be a string of 1 to 213 printable"):
        DeploymentSpec(name="x" * (checks.DEPLOYMENT_LENGTH_MAX + 1), target_replicas=1)


def test_a_copied_error_is_as_good_as_the_first() -> None:
    error = UnknownDeploymentError("SpecChanged.spec.name", "other", "'llm'")
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is UnknownDeploymentError
        assert (other.field, other.found, other.allowed, str(other)) == (error.field, error.found, error.allowed, str(error))


def test_whoever_catches_the_base_class_catches_everything() -> None:
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(found) >= 8
    assert all(issubclass(each, RankcoreError) for each in found)
    assert issubclass(UnknownDeploymentError, InvalidEventError)
    assert issubclass(InvalidEventError, FieldError)


# ---------------------------------------------------------------------------------------------------------------------
# checks


@pytest.mark.parametrize("found", ["a", "a b", "ü", "x" * checks.NAME_LENGTH_MAX])
def test_a_printable_name_is_an_identifier(found: str) -> None:
    checks.identifier(InvalidEventError, "field", found)


@pytest.mark.parametrize("found", ["", " a", "a ", "a\nb", "x" * (checks.NAME_LENGTH_MAX + 1), b"a", 3, None])
def test_what_is_not_a_printable_name_is_no_identifier(found: object) -> None:
    with pytest.raises(InvalidEventError, match="printable"):
        checks.identifier(InvalidEventError, "field", found)


def test_text_is_what_can_be_written_as_utf_8() -> None:
    checks.text(InvalidEventError, "field", "any\ntext, ü")
    checks.text(InvalidEventError, "field", "")
    with pytest.raises(InvalidEventError, match="without lone surrogates"):
        checks.text(InvalidEventError, "field", "\ud800")
    with pytest.raises(InvalidEventError, match="a string"):
        checks.text(InvalidEventError, "field", b"bytes")


def test_an_event_refuses_a_reason_that_no_journal_could_keep() -> None:
    with pytest.raises(InvalidEventError, match=r"ReplicaDied\.reason"):
        rankcore.events.ReplicaDied(replica_id=A, reason="\udcff", at=0.0)


@pytest.mark.parametrize("replica_id", ["llm#1.0", "pod-7", "llm"])
def test_an_id_of_this_deployment_or_of_nobodys_is_accepted(replica_id: str) -> None:
    checks.of_deployment("llm", "field", replica_id)


@pytest.mark.parametrize("replica_id", ["other#1.0", "llm#x#1.0", "#1.0"])
def test_an_id_that_says_it_is_anothers_is_refused(replica_id: str) -> None:
    with pytest.raises(UnknownDeploymentError, match="an id of deployment 'llm'"):
        checks.of_deployment("llm", "field", replica_id)


@pytest.mark.parametrize(("found", "fine"), [(1, True), (3, True), (0, False), (4, False), (True, False), (2.0, False)])
def test_a_count_is_an_int_between_both_ends(found: object, fine: bool) -> None:
    if fine:
        checks.count(InvalidEventError, "field", found, 1, 3)
    else:
        with pytest.raises(InvalidEventError, match="an integer from 1 to 3"):
            checks.count(InvalidEventError, "field", found, 1, 3)


@pytest.mark.parametrize("found", [float("nan"), float("inf"), -0.5, 2e12, True, "1", None])
def test_seconds_are_finite_and_not_below_their_floor(found: object) -> None:
    checks.seconds(InvalidEventError, "field", 0)
    checks.seconds(InvalidEventError, "field", checks.SECONDS_MAX)
    with pytest.raises(InvalidEventError, match="at least 0"):
        checks.seconds(InvalidEventError, "field", found)


def test_seconds_above_a_floor_may_not_be_on_it() -> None:
    checks.seconds(InvalidEventError, "field", 0.001, above=0.0)
    with pytest.raises(InvalidEventError, match="above 0"):
        checks.seconds(InvalidEventError, "field", 0.0, above=0.0)


def test_a_flag_is_true_or_false_and_nothing_like_it() -> None:
    checks.flag(InvalidEventError, "field", False)
    for found in (0, 1, "true", None):
        with pytest.raises(InvalidEventError, match="true or false"):
            checks.flag(InvalidEventError, "field", found)


# ---------------------------------------------------------------------------------------------------------------------
# frozen data


def test_json_like_data_is_frozen_all_the_way_down() -> None:
    given = {"a": [1, {"b": 2.5}], "c": None, "d": (True, "x")}
    frozen = freeze_json(given)
    assert frozen == {"a": (1, {"b": 2.5}), "c": None, "d": (True, "x")}
    given["a"][1]["b"] = 3  # type: ignore[index]
    assert isinstance(frozen, FrozenDict)
    assert frozen["a"] == (1, {"b": 2.5})


def test_frozen_data_thaws_into_the_dicts_and_lists_that_were_frozen() -> None:
    given = {"a": [1, [{"b": 2.5}, []]], "c": None, "d": {"e": {}}}
    thawed = thaw_json(freeze_json(given))
    assert thawed == given
    thawed["a"].append(thawed["d"].pop("e"))


CHANGES: dict[str, Any] = {
    "set": lambda it: it.__setitem__("a", 2),
    "delete": lambda it: it.__delitem__("a"),
    "clear": lambda it: it.clear(),
    "pop": lambda it: it.pop("a"),
    "popitem": lambda it: it.popitem(),
    "setdefault": lambda it: it.setdefault("b", 1),
    "update": lambda it: it.update(a=2),
    "|=": lambda it: it.__ior__({"a": 2}),
}


@pytest.mark.parametrize("how", sorted(CHANGES))
def test_a_frozen_dict_refuses_every_change(how: str) -> None:
    frozen = FrozenDict({"a": 1})
    with pytest.raises(TypeError, match="frozen: make a changed copy"):
        CHANGES[how](frozen)
    assert frozen == {"a": 1}


def test_a_frozen_dict_equals_and_hashes_by_its_items() -> None:
    one, other = FrozenDict({"a": 1, "b": (2,)}), FrozenDict({"b": (2,), "a": 1})
    assert one == other == {"a": 1, "b": (2,)}
    assert hash(one) == hash(other)
    assert len({one, other, FrozenDict({"a": 2})}) == 2


def test_a_frozen_dict_survives_pickling_and_copying() -> None:
    one = FrozenDict({"a": FrozenDict({"b": 1})})
    for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert other == one
        assert isinstance(other, FrozenDict)
        assert isinstance(other["a"], FrozenDict)


def test_a_command_is_a_value_that_never_changes() -> None:
    one = InitializeReplica(A, ReplicaRank(0, 0, 0), 2, FrozenDict(a=1), "x", 5, 1)
    with pytest.raises(AttributeError):
        one.epoch = 2  # type: ignore[misc]
    for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one), attrs.evolve(one)):
        assert other == one
        assert hash(other) == hash(one)
    assert one != attrs.evolve(one, epoch=2)
    assert str(WakeAt(2.0, 1)) == "WakeAt(at=2.0, epoch=1)"


def test_a_command_is_an_attrs_class_to_those_who_ask_attrs() -> None:
    start = StartReplica(A, rank=0, version="1", node_id=None, bundles=(), epoch=1)
    assert attrs.asdict(start)["group_id"] is None
    assert attrs.fields_dict(StartReplica)["group_id"].default is None
    assert [field.name for field in attrs.fields(StartReplica) if field.default is attrs.NOTHING] == [
        *("replica_id", "rank", "version", "node_id", "bundles", "epoch")
    ]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (float("nan"), "the value is nan"),
        ({"a": [0.0, float("inf")]}, r"\['a'\]\[1\] is inf"),
        ({"a": {3: 1}}, r"\['a'\] has a key 3 that is not a string"),
        ([{1, 2}], r"\[0\] is a set, which JSON cannot hold"),
        (b"x", "the value is a bytes"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_path(found: object, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        freeze_json(found)


# ---------------------------------------------------------------------------------------------------------------------
# specs


def test_equal_configs_have_one_name_and_others_have_others() -> None:
    assert config_id_of(freeze_json({"a": 1, "b": 2})) == config_id_of(freeze_json({"b": 2, "a": 1}))
    names = {config_id_of(freeze_json(each)) for each in (None, {}, {"a": 1}, {"a": 1.5}, [1], "1")}
    assert len(names) == 6


def test_specs_are_compared_by_what_they_ask_for() -> None:
    one = DeploymentSpec(name="llm", target_replicas=1, user_config={"a": [1, 2]})
    other = DeploymentSpec(name="llm", target_replicas=1, user_config={"a": (1, 2)})
    assert one == other
    assert hash(one) == hash(other)
    assert one != attrs.evolve(one, user_config={"a": [2, 1]})
    assert one != attrs.evolve(one, target_replicas=2)


def test_a_build_is_version_and_config() -> None:
    one = DeploymentSpec(name="llm", target_replicas=1)
    assert one.build == ("1", one.config_id)
    assert attrs.evolve(one, target_replicas=2).build == one.build
    assert attrs.evolve(one, version="2").build != one.build
    assert attrs.evolve(one, user_config={}).build != one.build


@pytest.mark.parametrize(("target", "least"), [(0, 1), (4, 1), (5, 1), (9, 1), (10, 2), (100, 20)])
def test_a_fifth_may_be_unavailable_unless_the_spec_says_otherwise(target: int, least: int) -> None:
    assert DeploymentSpec(name="llm", target_replicas=target).unavailable_max == least
    assert DeploymentSpec(name="llm", target_replicas=target, max_unavailable=3).unavailable_max == 3


# ---------------------------------------------------------------------------------------------------------------------
# ids


def test_ids_sort_by_age_and_not_by_their_letters() -> None:
    ids = ["llm#10.0", "llm#2.3", "llm#2.20", "llm#1.9", "pod-7", "a"]
    assert sorted(ids, key=age_key) == ["a", "pod-7", "llm#1.9", "llm#2.3", "llm#2.20", "llm#10.0"]


@pytest.mark.parametrize("replica_id", ["1.0", "llm#1", "llm#x.0", "llm#1.y", "llm#", "llm#1.", "llm#-1.0"])
def test_ids_that_the_core_did_not_make_count_as_the_oldest(replica_id: str) -> None:
    assert age_key(replica_id) == (-1, 0, replica_id)
    assert age_key(replica_id) < age_key("llm#0.0")


# ---------------------------------------------------------------------------------------------------------------------
# states


def test_the_world_size_is_the_target() -> None:
    """R9."""
    d = Deployment(4)
    assert d.state.world_size == 4
    d.resize(2)
    assert d.state.world_size == 2


def test_kept_ranks_are_those_whose_replacement_is_not_started_yet() -> None:
    """R6: ascending, and gone once the replacement is there."""
    d = Deployment.running(3)
    assert d.state.kept_ranks == ()
    for lost, replacement in ((C, "llm#1.3"), (A, "llm#1.4")):
        d.die(lost)
        d.start_fails(replacement)
    assert d.state.kept_ranks == (0, 2)
    assert (d.state.holder_of(0), d.state.holder_of(1)) == (None, B)
    d.wait(10.0)
    assert d.state.kept_ranks == ()
    assert d.state.holder_of(0) is not None


def test_a_rank_that_nobody_fills_has_no_holder() -> None:
    d = Deployment.running(1)
    assert d.state.holder_of(0) == A
    assert d.state.holder_of(1) is None


def test_a_starting_and_a_leaving_replica_hold_their_rank() -> None:
    d = Deployment(1)
    assert d.state.holder_of(0) == A
    d.settle()
    d.stop_by_name(A)
    assert d.state.replicas[A].state is ReplicaState.DRAINING
    assert d.state.holder_of(0) == A


def test_unreported_replicas_are_listed_the_oldest_first_until_they_report_or_end() -> None:
    """R10."""
    d = Deployment.recovered(3, {"llm#1.10": (2, 0, 2), "llm#1.9": (1, 0, 1), "pod-7": (0, 0, 0)})
    assert d.state.unreported == ("pod-7", "llm#1.9", "llm#1.10")
    d.report("llm#1.9")
    assert d.state.unreported == ("pod-7", "llm#1.10")
    d.die("pod-7")
    assert d.state.unreported == ("llm#1.10",)
    d.report("llm#1.10")
    assert d.state.unreported == ()


def test_a_spec_is_proven_by_one_ready_replica_and_becomes_the_previous_one_when_all_are() -> None:
    """Section 2.3: what retries for ever, and what a rollback goes back to."""
    d = Deployment(2)
    assert (d.state.proven, d.state.previous) == (None, None)
    d.place(A)
    d.ready(A)
    assert (d.state.proven, d.state.previous) == (d.first_spec, None)
    d.settle()
    assert d.state.previous == d.first_spec
    d.change(version="2")
    assert d.state.proven == d.first_spec
    d.stopped(A)
    d.place(C)
    d.ready(C)
    assert d.state.proven == d.state.spec
    assert d.state.previous == d.first_spec
    d.settle()
    assert d.state.previous == d.state.spec


def test_a_resize_makes_the_previous_spec_of_its_own_target() -> None:
    d = Deployment.running(2)
    d.resize(3)
    assert d.state.previous == d.first_spec
    d.settle()
    assert d.state.previous is not None
    assert d.state.previous.target_replicas == 3


def test_available_replicas_are_those_that_can_take_requests() -> None:
    d = Deployment.running(3)
    assert d.state.available == 3
    d.change(user_config={"a": 1}, config_rollout="at_once")
    assert d.count(ReplicaState.RECONFIGURING) == 3
    assert d.state.available == 3
    d.unhealthy(A)
    assert d.state.available == 2


def test_a_state_says_when_it_wants_to_be_woken() -> None:
    d = Deployment(1, repeat_period_s=7.0)
    assert d.state.wake_at == 7.0
    d.settle()
    d.wait(1000.0)
    assert d.state.wake_at is None


def test_ranks_are_those_of_the_replicas_that_have_one() -> None:
    """R2."""
    d = Deployment.running(2)
    d.resize(3)
    ranks = d.state.ranks
    assert len(d.state.replicas) == 3
    assert dict(ranks) == {A: ReplicaRank(0, 0, 0), B: ReplicaRank(1, 0, 1)}
    assert len(ranks) == 2
    assert repr(ranks) == repr(dict(ranks))
    assert A in ranks
    assert C not in ranks
    assert ranks.get("llm#1.77") is None
    for missing in (C, "llm#1.77"):
        with pytest.raises(KeyError, match=missing):
            _ = ranks[missing]


def test_the_rank_of_a_replica_that_has_none_or_is_none_is_none() -> None:
    d = Deployment.running(1)
    d.resize(2)
    assert d.state.rank_of(A) == ReplicaRank(0, 0, 0)
    assert d.state.rank_of(B) is None
    assert d.state.rank_of("llm#1.77") is None


def test_ranks_are_a_view_of_their_own_state_and_never_change() -> None:
    d = Deployment.running(2)
    before = d.state.ranks
    d.die(A)
    assert set(before) == {A, B}
    assert set(d.state.ranks) == {B}


def test_equal_histories_lead_to_equal_states() -> None:
    one, other = Deployment.running(2), Deployment.running(2)
    assert one.state == other.state
    assert hash(one.state) == hash(other.state)
    other.die(A)
    assert one.state != other.state


def test_a_state_is_never_changed() -> None:
    d = Deployment.running(1)
    with pytest.raises(AttributeError):
        d.state.epoch = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        d.state.replicas[A].slot = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        d.state.tables.revision = 3  # type: ignore[misc]


def test_a_state_is_copied_as_a_value() -> None:
    state = Deployment.running(1).state
    for other in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state), attrs.evolve(state)):
        assert other == state
        assert hash(other) == hash(state)
    assert attrs.evolve(state, epoch=3).epoch == 3


def test_a_state_reads_without_its_tables() -> None:
    text = repr(Deployment.running(1).state)
    assert text.startswith("DeploymentState(spec=DeploymentSpec(name='llm'")
    assert "tables" not in text


def test_a_replica_tells_which_build_it_runs() -> None:
    d = Deployment.running(1, version="7")
    assert d.state.replicas[A].build == d.state.spec.build
    fresh: DeploymentState = Deployment(1).state
    assert fresh.replicas[A].build == ("1", None)
    assert fresh.status is DeploymentStatus.UPDATING


def test_states_and_statuses_read_as_their_names() -> None:
    assert str(ReplicaState.RUNNING) == "RUNNING"
    assert f"{DeploymentStatus.DEPLOY_FAILED}" == "DEPLOY_FAILED"


def test_an_event_is_a_value() -> None:
    assert ReplicaReady(replica_id=A, at=1) == ReplicaReady(replica_id=A, at=1.0)
    assert len({ReplicaReady(replica_id=A, at=1.0), ReplicaReady(replica_id=A, at=1.0)}) == 1
