"""The kit itself: each broken executor is caught by the case that is there for it."""

import pytest

from rankcore.testing import conformance
from rankcore.testing.conformance.controlled import ControlledBench
from tests.conformance.broken import BROKEN, BROKEN_DEPLOYMENTS
from tests.conformance.in_memory import World

pytestmark = pytest.mark.traced

CASES = {case.name: case for case in conformance.CONTRACT}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_caught_by_the_case_that_is_there_for_it(name):
    world, case_name, other_line = BROKEN[name]
    case, line = CASES[case_name], other_line or CASES[case_name].line
    with pytest.raises(conformance.BrokenLineError) as caught:
        conformance.check(case, world())
    assert caught.value.line is line
    assert line.value in str(caught.value)
    assert "expected: " in str(caught.value)
    assert "seen: " in str(caught.value)


@pytest.mark.parametrize(("name", "case"), BROKEN_DEPLOYMENTS)
def test_a_broken_executor_is_caught_by_the_deployment_that_is_there_for_it(name, case):
    world, match = BROKEN_DEPLOYMENTS[name, case]
    (found,) = (each for each in conformance.CASES if str(each) == case)
    with pytest.raises(conformance.NonconformityError, match=match):
        conformance.run(found, ControlledBench(world()))


def test_a_controller_that_forgets_what_it_has_given_up_is_caught():
    class Forgetful(ControlledBench):
        def crash_controller(self):
            super().crash_controller()
            self._failed = False

    (case,) = (case for case in conformance.CASES if str(case) == "version that fails while the controller crashes")
    conformance.run(case, ControlledBench(World()))
    with pytest.raises(conformance.NonconformityError, match="version '2' was given up"):
        conformance.run(case, Forgetful(World()))


def test_all_is_tried_without_faults_and_then_with_those_of_each_seed():
    some = conformance.tries([7], conformance.CONTRACT[:1], conformance.CASES[:1])
    assert [each.name.partition(", ")[2] for each in some] == ["", "", "faults of seed 7", "faults of seed 7"]
    for each in some:
        each.play(World())


def test_every_case_has_caught_somebody():
    assert {case for _, case, _ in BROKEN.values()} == set(CASES)


def test_every_line_of_the_contract_has_a_case():
    assert {case.line for case in conformance.CONTRACT} == set(conformance.Line)


def test_a_bench_that_is_not_whole_is_told_all_that_it_lacks():
    class Begun:
        patience_s = 1.0

        def open(self, epoch):
            raise AssertionError("nothing is begun with it")

    lacks = r"^the bench Begun has no survivors, crash, now, .*, slow: rankcore\.testing\.conformance\.bench\.Bench says"
    with pytest.raises(TypeError, match=lacks):
        conformance.check(conformance.CONTRACT[0], Begun())
    with pytest.raises(TypeError, match=lacks):
        ControlledBench(Begun())
