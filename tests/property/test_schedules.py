"""Volume: adversarial schedules decoded from bytes, every promise checked after every step, convergence demanded at the end."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankcore.core import _settle
from rankcore.draft import Draft, Step
from rankcore.testing.schedules import World, heal, play, spec_from, static_spec_from
from tests.extent import examples


@settings(max_examples=examples(500))
@given(number=st.integers(0, 1023), moves=st.binary(max_size=60) | st.binary(min_size=150, max_size=500), bad=st.booleans())
# Found by earlier runs: a slot moved by compaction while its successor was being started.
@example(number=8 + 1, moves=bytes([31, 0] * 6 + [15, 9] + [14, 1] + [31, 0] * 8), bad=False)
def test_no_schedule_breaks_a_promise_and_every_one_converges(number: int, moves: bytes, bad: bool) -> None:
    world = World(spec_from(number), bad_versions=("2",) if bad else ())
    play(world, moves)
    heal(world)


@settings(max_examples=examples(300))
@given(number=st.integers(0, 1023), moves=st.binary(max_size=60) | st.binary(min_size=150, max_size=500), bad=st.booleans())
def test_no_schedule_breaks_a_promise_of_a_static_placement(number: int, moves: bytes, bad: bool) -> None:
    """Bundles and nodes are lost and return, mappings change, groups are exchanged, and the placement comes and goes."""
    world = World(static_spec_from(number), bad_versions=("2",) if bad else ())
    play(world, moves)
    heal(world)


@settings(max_examples=examples(100))
@given(number=st.integers(0, 1023), moves=st.binary(min_size=60, max_size=400), static=st.booleans())
def test_the_rules_have_nothing_to_add_to_what_they_have_settled(number: int, moves: bytes, static: bool) -> None:
    """That is why news that changes nothing can go past them."""

    def settle_again(_before: object, _event: object, step: Step) -> None:
        again = _settle(Draft.open(step.state))
        assert again == (step.state, (), ())

    world = World((static_spec_from if static else spec_from)(number))
    world.watch = settle_again
    play(world, moves)
