"""Ids of deployments: what a bare name means, and ids as names of files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.deployment_ids import (
    MARKS,
    SHORTEST_FILE_NAME,
    as_application,
    deployment_id,
    escaped,
    is_called,
    meant_by,
    own_name,
    problem_of,
    unescaped,
)
from rankcore import DeploymentSpec, deploy, step
from rankcore.events import ClockAdvanced

PARTS = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters=MARKS), min_size=1, max_size=60)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
FILE_NAME_BYTES = st.integers(SHORTEST_FILE_NAME, 255)


@given(PARTS, PARTS)
def test_an_id_names_one_deployment_of_one_application(application, deployment):
    found = deployment_id(application, deployment)
    assert own_name(application, found) == deployment
    assert found.split("/") == [application, deployment]
    assert (problem_of(application), problem_of(deployment)) == (None, None)


@given(PARTS, PARTS)
def test_ids_of_replicas_begin_with_the_deployments_id_in_the_core(application, deployment):
    found = deployment_id(application, deployment)
    made = deploy(DeploymentSpec(name=found, target_replicas=1), at=0.0, epoch=1)
    replica_id = next(iter(step(made.state, ClockAdvanced(at=1.0)).state.replicas))
    assert replica_id.rpartition("#")[0] == found


@pytest.mark.parametrize("part", ["", " a", "a ", "a/b", "a#1", "a@b", "a\n", None, 3, b"a"])
def test_what_is_no_name_is_said(part):
    assert problem_of(part) == "a non-empty string of printable characters without / # @ and surrounding blanks"


@given(st.sets(st.tuples(PARTS, PARTS), max_size=6), PARTS)
def test_a_bare_name_means_all_deployments_that_have_it_and_an_id_itself_alone(pairs, name):
    pairs |= {("some", name), ("other", name)}
    ids = {deployment_id(*pair) for pair in pairs}
    assert set(meant_by(name, ids)) == {deployment_id(*pair) for pair in pairs if pair[1] == name}
    assert all(meant_by(each, ids) == [each] for each in ids)
    assert meant_by(f"none/{name}/", ids) == []


@given(TEXTS)
def test_whatever_an_application_was_called_becomes_a_name_and_a_name_stays(text):
    found = as_application(text)
    assert found
    assert not set(found) & set(MARKS)
    assert as_application(found) == found


@given(TEXTS, TEXTS, FILE_NAME_BYTES)
def test_no_two_texts_have_one_file_name_and_none_is_too_long(one, other, bytes_max):
    first, second = escaped(one, bytes_max), escaped(other, bytes_max)
    assert (first == second) == (one == other)
    assert len(first.encode()) <= bytes_max
    assert not set(first) & set("/.\0")
    assert unescaped(first) in (one, None)


@given(TEXTS)
def test_what_is_short_enough_is_found_again_in_the_name_of_its_file(text):
    assert unescaped(escaped(text, 10_000)) == text


def test_two_long_texts_that_begin_and_end_alike_have_two_file_names():
    one, other = (escaped("a" * 300 + middle + "b" * 300, 64) for middle in "12")
    assert one != other
    assert (len(one), unescaped(one)) == (64, None)


@given(TEXTS, FILE_NAME_BYTES)
def test_a_name_with_a_hash_is_no_other_texts_own_name(text, bytes_max):
    """A text that looks like a hashed name is written otherwise."""
    assert escaped(escaped(text, bytes_max)) != escaped(text, bytes_max) or "~" not in escaped(text, bytes_max)


def test_a_deployment_is_called_by_its_id_by_its_name_and_by_its_applications():
    assert all(is_called("chat/llm", name) for name in ("chat/llm", "chat", "llm"))
    assert not any(is_called("chat/llm", name) for name in ("ch", "lm", "", "chat/"))
    assert is_called("llm", "llm")
