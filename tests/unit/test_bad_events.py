"""Malformed input: an error of the right class, with the field, what was found and what is allowed; nothing changes."""

import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from rankcore import DeploymentSpec, RankcoreError, ReplicaRank, deploy, errors, recover, step
from rankcore.errors import FieldError, InvalidEventError, InvalidSpecError, UnknownDeploymentError
from rankcore.events import (
    ClockAdvanced,
    DeleteRequested,
    NodeChanged,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    NodeUncordoned,
    ReplaceRequested,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
    SpecChanged,
    StopRequested,
)
from tests.scripted import Deployment

NAN, INF = float("nan"), float("inf")
SPEC = DeploymentSpec(name="llm", target_replicas=2)
BAD_NAMES = ["", " llm", "llm ", "l\nlm", "l\tlm", "\x00", "x" * 254, None, 3, b"llm", ["llm"]]
BAD_TIMES = [NAN, INF, -INF, -1.0, -1, 1e13, "3", None, True, [1.0]]
BAD_COUNTS = [-1, 10_000_001, 1_000_000_000_000, 1.0, 2.5, NAN, "3", None, True, False]


def refused(make: Callable[[], object], error: type[FieldError], field: str, found: object) -> FieldError:
    """The error that this raises, after a look at its facts and at its one line of text."""
    with pytest.raises(error) as caught:
        make()
    raised = caught.value
    assert type(raised) is error
    assert raised.field == field
    assert raised.found is found or raised.found == found
    assert raised.allowed
    text = str(raised)
    assert text.startswith(f"{field} must be {raised.allowed}, got ")
    assert "\n" not in text
    assert len(text) < 400
    return raised


# ---------------------------------------------------------------------------------------------------------------------
# specs


def spec(**fields: Any) -> DeploymentSpec:
    return DeploymentSpec(**{"name": "llm", "target_replicas": 2, **fields})


@pytest.mark.parametrize("field", ["name", "version"])
@pytest.mark.parametrize("found", BAD_NAMES)
def test_a_spec_refuses_names_that_are_none(field: str, found: object) -> None:
    refused(lambda: spec(**{field: found}), InvalidSpecError, f"DeploymentSpec.{field}", found)


def test_a_spec_refuses_a_name_with_the_separator_of_replica_ids() -> None:
    refused(lambda: spec(name="llm#1"), InvalidSpecError, "DeploymentSpec.name", "llm#1")


@pytest.mark.parametrize("found", BAD_COUNTS)
def test_a_spec_refuses_an_absurd_target(found: object) -> None:
    raised = refused(lambda: spec(target_replicas=found), InvalidSpecError, "DeploymentSpec.target_replicas", found)
    assert raised.allowed == "an integer from 0 to 10000000"


@pytest.mark.parametrize("field", ["max_start_failures", "max_unavailable", "max_surge"])
@pytest.mark.parametrize("found", [-1, 1_000_000_000_000, 1.5, "3", True])
def test_a_spec_refuses_absurd_counts(field: str, found: object) -> None:
    refused(lambda: spec(**{field: found}), InvalidSpecError, f"DeploymentSpec.{field}", found)


@pytest.mark.parametrize("field", ["max_start_failures", "max_unavailable"])
def test_a_spec_refuses_a_budget_of_nothing(field: str) -> None:
    """Section 2.3: max_unavailable >= 1."""
    refused(lambda: spec(**{field: 0}), InvalidSpecError, f"DeploymentSpec.{field}", 0)


SECONDS = [
    "graceful_shutdown_timeout_s",
    "health_check_period_s",
    "health_check_timeout_s",
    "start_timeout_s",
    "repeat_period_s",
    "start_backoff_s",
    "start_backoff_max_s",
]


@pytest.mark.parametrize("field", SECONDS)
@pytest.mark.parametrize("found", BAD_TIMES)
def test_a_spec_refuses_times_that_are_none(field: str, found: object) -> None:
    refused(lambda: spec(**{field: found}), InvalidSpecError, f"DeploymentSpec.{field}", found)


@pytest.mark.parametrize("field", SECONDS)
def test_only_the_graceful_shutdown_may_take_no_time(field: str) -> None:
    if field == "graceful_shutdown_timeout_s":
        assert spec(**{field: 0}).graceful_shutdown_timeout_s == 0
    else:
        refused(lambda: spec(**{field: 0}), InvalidSpecError, f"DeploymentSpec.{field}", 0)


@pytest.mark.parametrize("field", ["compaction", "victims", "placement"])
@pytest.mark.parametrize("found", ["", "ANY", "sometimes", 1, True, ["any"]])
def test_a_spec_refuses_policies_that_do_not_exist_and_lists_those_that_do(field: str, found: object) -> None:
    raised = refused(lambda: spec(**{field: found}), InvalidSpecError, f"DeploymentSpec.{field}", found)
    assert raised.allowed.startswith("one of ")


@pytest.mark.parametrize("field", ["compaction", "victims"])
def test_a_policy_has_to_be_named(field: str) -> None:
    refused(lambda: spec(**{field: None}), InvalidSpecError, f"DeploymentSpec.{field}", None)


@pytest.mark.parametrize("found", [1, 0, "yes", None])
def test_a_spec_refuses_flags_that_only_look_like_it(found: object) -> None:
    refused(lambda: spec(rollback=found), InvalidSpecError, "DeploymentSpec.rollback", found)


@pytest.mark.parametrize("found", [{1, 2}, {"a": object()}, {1: "a"}, b"bytes", {"a": NAN}, {"a": [INF]}])
def test_a_spec_refuses_a_user_config_that_is_not_json(found: object) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        spec(user_config=found)
    assert caught.value.field == "DeploymentSpec.user_config"
    assert "JSON-like data" in str(caught.value)


def test_a_spec_refuses_a_user_config_that_contains_itself() -> None:
    config: dict[str, object] = {}
    config["itself"] = config
    with pytest.raises(InvalidSpecError) as caught:
        spec(user_config=config)
    assert caught.value.field == "DeploymentSpec.user_config"


def test_a_spec_is_never_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        SPEC.target_replicas = 5  # type: ignore[misc]


# ---------------------------------------------------------------------------------------------------------------------
# events

VALID: dict[type, dict[str, object]] = {
    SpecChanged: {"spec": SPEC},
    ReplicaPlaced: {"replica_id": "llm#1.0", "node_id": "a"},
    ReplicaReady: {"replica_id": "llm#1.0"},
    ReplicaStartFailed: {"replica_id": "llm#1.0"},
    ReplicaDied: {"replica_id": "llm#1.0"},
    ReplicaStopped: {"replica_id": "llm#1.0"},
    ReplicaReconfigured: {"replica_id": "llm#1.0", "revision": 1},
    ReplicaReconfigureFailed: {"replica_id": "llm#1.0", "revision": 1},
    ReplicaReported: {
        "replica_id": "llm#1.0",
        "node_id": "a",
        "rank": ReplicaRank(0, 0, 0),
        "version": "1",
        "ready": True,
        "epoch": 1,
    },
    ReplicaMissing: {"replica_id": "llm#1.0"},
    ReplicaUnhealthy: {"replica_id": "llm#1.0"},
    NodeChanged: {"node_id": "a", "capacity": 3},
    NodeLost: {"node_id": "a"},
    NodeCordoned: {"node_id": "a"},
    NodeUncordoned: {"node_id": "a"},
    NodeDrainRequested: {"node_id": "a"},
    ReplaceRequested: {"replica_ids": ("llm#1.0",)},
    ClockAdvanced: {},
    StopRequested: {"replica_ids": ("llm#1.0",)},
    DeleteRequested: {},
}
BAD_FIELDS: dict[str, list[object]] = {
    "spec": [None, {"name": "llm"}, "llm"],
    "replica_id": BAD_NAMES,
    "node_id": BAD_NAMES,
    "version": ["", "a\nb", None, 1],
    "revision": [-1, 2**63, 1.0, "1", None, True],
    "epoch": [-1, 2**63, 1.0, "1", None, True],
    "capacity": BAD_COUNTS,
    "rank": [0, (0, 0, 0), "0"],
    "ready": [None, 1, 0, "true"],
    "draining": [None, 1, "false"],
    "prepared": [None, 1, "false"],
    "no_room": [None, 1, "false"],
    "accepted": [None, 1, "false"],
    "ready_for_s": [each for each in BAD_TIMES if each is not None],
    "config_id": ["", "a\n", 5],
    "reason": [None, 5, b"x"],
    "at": BAD_TIMES,
    "deadline_at": [each for each in BAD_TIMES if each is not None],
}


def _cases() -> list[tuple[type, str, object]]:
    names = {kind: [field.name for field in attrs.fields(kind)] for kind in VALID}
    return [(kind, field, found) for kind in VALID for field in names[kind] for found in BAD_FIELDS.get(field, ())]


@pytest.mark.parametrize(("kind", "field", "found"), _cases())
def test_an_event_refuses_what_its_field_does_not_allow(kind: type, field: str, found: object) -> None:
    arguments = {"at": 0.0, **VALID[kind], field: found}
    refused(lambda: kind(**arguments), InvalidEventError, f"{kind.__name__}.{field}", found)


@pytest.mark.parametrize("kind", VALID, ids=lambda kind: kind.__name__)
def test_every_event_needs_its_time_and_takes_no_other_field(kind: type) -> None:
    with pytest.raises(TypeError):
        kind(**VALID[kind])
    with pytest.raises(TypeError):
        kind(**VALID[kind], at=0.0, colour="red")


@pytest.mark.parametrize("level", ["rank", "node_rank", "local_rank"])
@pytest.mark.parametrize("found", [-1, 1_000_000_000_000, 1.0, None, True])
def test_a_reported_rank_is_checked_at_each_level(level: str, found: object) -> None:
    rank = attrs.evolve(ReplicaRank(0, 0, 0), **{level: found})
    arguments = {**VALID[ReplicaReported], "rank": rank, "at": 0.0}
    refused(lambda: ReplicaReported(**arguments), InvalidEventError, f"ReplicaReported.rank.{level}", found)


@pytest.mark.parametrize("found", ["llm#1.0", None, 5, {"llm#1.0"}])
def test_a_list_of_replicas_has_to_be_one(found: object) -> None:
    refused(lambda: StopRequested(replica_ids=found, at=0.0), InvalidEventError, "StopRequested.replica_ids", found)
    refused(lambda: ReplaceRequested(replica_ids=found, at=0.0), InvalidEventError, "ReplaceRequested.replica_ids", found)
    refused(lambda: SpecChanged(spec=SPEC, stop_first=found, at=0.0), InvalidEventError, "SpecChanged.stop_first", found)


@pytest.mark.parametrize("found", BAD_NAMES)
def test_each_id_in_a_list_is_checked_and_the_offender_is_named(found: object) -> None:
    ids = ["llm#1.0", found]
    refused(lambda: StopRequested(replica_ids=ids, at=0.0), InvalidEventError, "StopRequested.replica_ids[1]", found)
    refused(lambda: SpecChanged(spec=SPEC, stop_first=ids, at=0.0), InvalidEventError, "SpecChanged.stop_first[1]", found)


# ---------------------------------------------------------------------------------------------------------------------
# the three functions


@pytest.mark.parametrize("found", [None, 5, "ReplicaDied", {"at": 1.0}, ReplicaDied, object()])
def test_step_refuses_what_is_no_event(found: object) -> None:
    d = Deployment.running(1)
    refused(lambda: step(d.state, found), InvalidEventError, "event", found)


@pytest.mark.parametrize("found", [None, 5, "state", SPEC])
def test_step_refuses_what_is_no_state(found: object) -> None:
    refused(lambda: step(found, ClockAdvanced(at=0.0)), InvalidEventError, "state", found)


@pytest.mark.parametrize("function", ["deploy", "recover"])
@pytest.mark.parametrize("found", [None, {"name": "llm"}, "llm"])
def test_a_beginning_needs_a_spec(function: str, found: object) -> None:
    begin = {"deploy": deploy, "recover": lambda s: recover(s, [], at=0.0, epoch=2)}[function]
    refused(lambda: begin(found), InvalidEventError, f"{function}.spec", found)


@pytest.mark.parametrize("found", BAD_TIMES)
def test_a_beginning_refuses_times_that_are_none(found: object) -> None:
    refused(lambda: deploy(SPEC, at=found), InvalidEventError, "deploy.at", found)
    refused(lambda: recover(SPEC, [], at=found, epoch=2), InvalidEventError, "recover.at", found)


@pytest.mark.parametrize("found", [0, -1, 2**31, 1.0, "1", None, True])
def test_a_beginning_refuses_epochs_that_are_none(found: object) -> None:
    refused(lambda: deploy(SPEC, epoch=found), InvalidEventError, "deploy.epoch", found)
    refused(lambda: recover(SPEC, [], at=0.0, epoch=found), InvalidEventError, "recover.epoch", found)


@pytest.mark.parametrize("found", ["llm#1.0", None, 5])
def test_recover_needs_a_collection_of_ids(found: object) -> None:
    refused(lambda: recover(SPEC, found, at=0.0, epoch=2), InvalidEventError, "recover.replica_ids", found)


@pytest.mark.parametrize("found", BAD_NAMES)
def test_recover_checks_each_id(found: object) -> None:
    ids = ["llm#1.0", found]
    refused(lambda: recover(SPEC, ids, at=0.0, epoch=2), InvalidEventError, "recover.replica_ids[1]", found)


def test_recover_refuses_an_id_that_occurs_twice() -> None:
    ids = ["llm#1.0", "llm#1.1", "llm#1.0"]
    refused(lambda: recover(SPEC, ids, at=0.0, epoch=2), InvalidEventError, "recover.replica_ids[2]", "llm#1.0")


@pytest.mark.parametrize("replica_id", ["llm#2.0", "llm#3.7"])
def test_recover_refuses_replicas_of_its_own_or_a_later_epoch(replica_id: str) -> None:
    """Section 2.4: epochs only grow; otherwise the ids of new replicas would be those of old ones."""
    with pytest.raises(InvalidEventError) as caught:
        recover(SPEC, ["llm#1.0", replica_id], at=0.0, epoch=2)
    assert caught.value.field in ("recover.epoch", "recover.replica_ids[1]")


@pytest.mark.parametrize("found", ["llm", {"name": "llm"}, 5])
def test_recover_refuses_a_previous_spec_that_is_none(found: object) -> None:
    refused(lambda: recover(SPEC, [], at=0.0, epoch=2, previous=found), InvalidEventError, "recover.previous", found)


@pytest.mark.parametrize("found", [None, 1, "yes"])
def test_recover_refuses_a_flag_that_only_looks_like_it(found: object) -> None:
    refused(lambda: recover(SPEC, [], at=0.0, epoch=2, deleting=found), InvalidEventError, "recover.deleting", found)
    refused(lambda: recover(SPEC, [], at=0.0, epoch=2, failed=found), InvalidEventError, "recover.failed", found)


# ---------------------------------------------------------------------------------------------------------------------
# another deployment

OTHER = DeploymentSpec(name="other", target_replicas=2)


def test_recover_refuses_what_belongs_to_another_deployment() -> None:
    ids = ["llm#1.0", "other#1.0"]
    refused(lambda: recover(SPEC, ids, at=0.0, epoch=2), UnknownDeploymentError, "recover.replica_ids[1]", "other#1.0")
    refused(
        lambda: recover(SPEC, [], at=0.0, epoch=2, previous=OTHER),
        UnknownDeploymentError,
        "recover.previous.name",
        "other",
    )


def test_a_spec_of_another_deployment_is_refused_and_nothing_changes() -> None:
    d = Deployment.running(2)
    before = d.state
    refused(lambda: step(d.state, SpecChanged(spec=OTHER, at=9.0)), UnknownDeploymentError, "SpecChanged.spec.name", "other")
    assert d.state is before
    assert before.clock == 0.0


ABOUT_ONE = [kind for kind in VALID if "replica_id" in VALID[kind]]


@pytest.mark.parametrize("kind", ABOUT_ONE, ids=lambda kind: kind.__name__)
def test_news_of_a_replica_of_another_deployment_is_refused_and_nothing_changes(kind: type) -> None:
    d = Deployment.running(2)
    ranks = dict(d.state.ranks)
    event = kind(**{**VALID[kind], "replica_id": "other#1.0", "at": 9.0})
    field = f"{kind.__name__}.replica_id"
    refused(lambda: step(d.state, event), UnknownDeploymentError, field, "other#1.0")
    assert (dict(d.state.ranks), d.state.clock) == (ranks, 0.0)


def test_replicas_of_another_deployment_cannot_be_stopped_by_name_here() -> None:
    """Like news of them: a caller's mistake, not a late name."""
    d = Deployment.running(2)
    event = StopRequested(replica_ids=("llm#1.0", "other#1.0"), at=0.0)
    refused(lambda: step(d.state, event), UnknownDeploymentError, "StopRequested.replica_ids[1]", "other#1.0")


def test_victims_of_another_deployment_cannot_be_named_here() -> None:
    d = Deployment.running(2)
    smaller = attrs.evolve(d.state.spec, target_replicas=1)
    event = SpecChanged(spec=smaller, stop_first=("other#1.0",), at=0.0)
    refused(lambda: step(d.state, event), UnknownDeploymentError, "SpecChanged.stop_first[0]", "other#1.0")


# ---------------------------------------------------------------------------------------------------------------------
# the errors themselves


def test_all_errors_have_one_base_class() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) >= 8
    assert all(issubclass(kind, RankcoreError) for kind in kinds)
    assert issubclass(UnknownDeploymentError, InvalidEventError)


def test_a_long_value_is_shortened_in_the_text_and_kept_whole_in_the_error() -> None:
    found = "x" * 100_000
    raised = refused(lambda: spec(name=found), InvalidSpecError, "DeploymentSpec.name", found)
    assert len(str(raised)) < 250


def test_an_error_survives_pickling() -> None:
    """It may have to cross a process boundary."""
    raised = refused(lambda: spec(target_replicas=-1), InvalidSpecError, "DeploymentSpec.target_replicas", -1)
    again = pickle.loads(pickle.dumps(raised))
    assert (type(again), str(again), again.field, again.found) == (
        type(raised),
        str(raised),
        raised.field,
        raised.found,
    )
