"""Whatever a user hands in is refused with an error of ours, or can be stepped, written into a journal and read back."""

import enum
from typing import get_args

import attrs
import numpy as np
import pytest

from rankcore import DeploymentSpec, ReplicaRank, codec, deploy, plan, recover, step
from rankcore.autoscaling import AutoscalerState, AutoscalingSpec, HandleReport, Metrics, autoscale
from rankcore.errors import InvalidEventError, InvalidSpecError, RankcoreError, shown
from rankcore.events import ClockAdvanced, Event, ReplicaReconfigured
from rankcore.routing import RoutingSpec, credits, open_router, route_step


class Name(str):
    """What an enum of strings is, or a string of numpy."""


class Unshowable:
    def __repr__(self):
        raise OSError("it cannot be shown")


class Choice(enum.StrEnum):
    ANY = "any"


STRANGE = [
    10**5000, -(10**5000), 2**64, True, None, float("nan"), float("inf"), -1.0, "\ud800", "", "x" * 300, b"x", [], {}, object(),
    Name("llm#1.0"), Choice.ANY, np.float64(1.0), np.int64(3), np.str_("x"), np.bool_(True), Unshowable(), [10**5000],
    {"a": Unshowable()},
]  # fmt: skip
STRANGER = [*STRANGE, *((each,) for each in STRANGE), *(ReplicaRank(each, 0, 0) for each in STRANGE)]
SPEC = DeploymentSpec(name="llm", target_replicas=2)
USUAL = {
    "replica_id": "llm#1.0", "at": 1.0, "node_id": "a", "rank": ReplicaRank(0, 0, 0), "version": "1", "ready": True,
    "revision": 1, "reason": "x", "spec": SPEC, "capacity": 2, "bundles": (1,), "replica_ids": ("llm#1.0",), "epoch": 1,
    "draining": False, "prepared": False, "no_room": True, "unready": None, "final": False, "deadline_at": 9.0, "ranks": (0,),
    "ready_for_s": 2.5, "config_id": None, "group_id": None, "restart_token": "", "stop_first": (), "accepted": False,
}  # fmt: skip


def taken(make, *args, **kwargs):
    """What was made, or None where it was refused with an error that can be shown."""
    try:
        return make(*args, **kwargs)
    except RankcoreError as error:
        str(error), repr(error)
        return None


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_a_strange_field_of_an_event_is_refused_or_can_be_written(kind):
    fields = [field.name for field in attrs.fields(kind)]
    state = deploy(SPEC).state
    for field in fields:
        for value in STRANGER:
            event = taken(kind, **{**{name: USUAL[name] for name in fields}, field: value})
            if event is not None:
                assert codec.from_json(codec.to_json(event), kind) == event
                after = taken(step, state, event)
                assert after is None or codec.to_json(after.state)


@pytest.mark.parametrize("field", [field.name for field in attrs.fields(DeploymentSpec) if field.init])
def test_a_strange_field_of_a_spec_is_refused_or_can_be_written(field):
    for value in STRANGER:
        spec = taken(DeploymentSpec, **{"name": "llm", "target_replicas": 2, field: value})
        if spec is not None:
            assert codec.from_json(codec.to_json(spec), DeploymentSpec) == spec
            assert codec.to_json(deploy(spec).state)


def test_strange_arguments_are_refused():
    state = deploy(SPEC).state
    for value in STRANGER:
        taken(deploy, SPEC, at=value)
        taken(deploy, SPEC, epoch=value)
        taken(recover, SPEC, value, at=0.0, epoch=2)
        taken(recover, SPEC, [value], at=0.0, epoch=2)
        for function in (step, plan):
            taken(function, value, ClockAdvanced(at=1.0))
            taken(function, state, value)
        taken(codec.to_json, value)
        taken(codec.from_json, value, DeploymentSpec)


def test_strange_arguments_of_routers_credits_and_autoscalers_are_refused():
    router, book, scaling = open_router(RoutingSpec(name="llm")), credits.open_credits(limit=8), AutoscalingSpec()
    for value in STRANGER:
        taken(route_step, router, value)
        taken(route_step, value, ClockAdvanced(at=1.0))
        taken(credits.open_credits, limit=value)
        taken(credits.credit_step, book, value)
        taken(credits.credit_step, value, credits.RouterJoined(router_id="a"))
        taken(credits.RouterJoined, router_id=value)
        taken(autoscale, AutoscalerState(spec=scaling), value, 1.0)
        for reports in ([value], [HandleReport("a", value, 1.0)], [HandleReport(value, 1, 1.0)], [HandleReport("a", 1, value)]):
            taken(Metrics, target_replicas=1, reports=reports)
            taken(Metrics, target_replicas=value, running=reports)
        taken(Metrics, target_replicas=1, running=value)
        taken(Metrics, target_replicas=1, reports=value)


def test_what_derives_from_strings_and_numbers_is_refused_where_it_could_not_be_written():
    with pytest.raises(InvalidSpecError, match=r"DeploymentSpec\.name .* got 'llm' of type .*\.Name"):
        DeploymentSpec(name=Name("llm"), target_replicas=1)
    with pytest.raises(InvalidEventError, match=r"ClockAdvanced\.at .* of type numpy\.float64"):
        ClockAdvanced(at=np.float64(1.0))


def test_in_a_user_config_it_becomes_the_plain_value():
    spec = DeploymentSpec(name="llm", target_replicas=1, user_config={Name("rate"): np.float64(0.5), "which": Choice.ANY})
    assert spec.user_config == {"rate": 0.5, "which": "any"}
    assert [type(each) for each in (*spec.user_config, *spec.user_config.values())] == [str, str, float, str]
    assert codec.from_json(codec.to_json(spec), DeploymentSpec).config_id == spec.config_id


def test_a_number_that_has_no_text_is_named_by_its_kind():
    with pytest.raises(InvalidEventError, match=r"revision must be .*, got a value of type int that cannot be shown"):
        ReplicaReconfigured(replica_id="llm#1.0", revision=10**5000, at=1.0)
    assert shown(Unshowable()) == "a value of type Unshowable that cannot be shown"
    with pytest.raises(InvalidSpecError, match="is an integer of 16610 bits"):
        DeploymentSpec(name="llm", target_replicas=1, user_config={"a": 10**5000})


def test_credits_name_what_they_take():
    with pytest.raises(InvalidEventError, match=r"event must be an event of rankcore\.routing\.credits, got None"):
        credits.credit_step(credits.open_credits(limit=8), None)
    with pytest.raises(InvalidEventError, match=r"credit_step\.book must be a CreditBook"):
        credits.credit_step(None, credits.RouterJoined(router_id="a"))
