"""`@batch`: who comes together is answered together, and each gets what is its own."""

import asyncio

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray import cloudpickle

from executors.ray_gpu import batch
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.requests.request_context import enter, get_request_context
from executors.ray_gpu.user_code import returns_at_once

LONG_S = 3600.0


class Doubler:
    """Doubles, and remembers its batches."""

    def __init__(self):
        self.batches = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.contexts = []

    async def _together(self, values):
        self.batches.append(values)
        self.contexts.append(get_request_context().request_id)
        await self.gate.wait()
        if "all" in values:
            raise KeyError("all fail")
        return [ValueError(value) if value == "this" else value * 2 for value in values]

    full = batch(max_batch_size=3, batch_wait_timeout_s=LONG_S)(_together)
    soon = batch(max_batch_size=100, batch_wait_timeout_s=0.0)(_together)

    @batch
    async def short(self, values):
        return values[:-1]


def run(scenario):
    async def play():
        async with asyncio.timeout(120):
            return await scenario(Doubler())

    return asyncio.run(play())


def test_a_batch_begins_when_it_is_full_and_the_rest_waits_for_the_next():
    async def scenario(doubler):
        answers = await asyncio.gather(*(doubler.full(each) for each in range(6)))
        return answers, doubler.batches

    answers, batches = run(scenario)
    assert answers == [0, 2, 4, 6, 8, 10]
    assert batches == [[0, 1, 2], [3, 4, 5]]


def test_without_a_wait_a_single_call_is_not_delayed_and_what_comes_meanwhile_goes_together():
    async def scenario(doubler):
        doubler.gate.clear()
        first = asyncio.create_task(doubler.soon(1))
        while not doubler.batches:
            await asyncio.sleep(0)
        later = [asyncio.create_task(doubler.soon(each)) for each in (2, 3)]
        await asyncio.sleep(0)
        doubler.gate.set()
        return [await first, *[await each for each in later]], doubler.batches

    assert run(scenario) == ([2, 4, 6], [[1], [2, 3]])


def test_an_incomplete_batch_waits_no_longer_than_it_is_told():
    class Once:
        @batch(max_batch_size=10, batch_wait_timeout_s=0.001)
        async def __call__(self, values):
            return values

    async def scenario(_):
        once = Once()
        return await asyncio.gather(once("a"), once("b"))

    assert run(scenario) == ["a", "b"]


def test_one_error_in_the_list_is_for_one_caller_and_what_is_raised_for_all():
    async def scenario(doubler):
        single = await asyncio.gather(*(doubler.full(each) for each in ("x", "this", "y")), return_exceptions=True)
        whole = await asyncio.gather(*(doubler.full(each) for each in ("x", "all", "y")), return_exceptions=True)
        return single, whole

    single, whole = run(scenario)
    assert single[0] == "xx"
    assert isinstance(single[1], ValueError)
    assert [type(each) for each in whole] == [KeyError] * 3


def test_a_wrong_number_of_results_is_said_to_every_caller():
    async def scenario(doubler):
        return await asyncio.gather(doubler.short(1), doubler.short(2), return_exceptions=True)

    for each in run(scenario):
        assert isinstance(each, TypeError)
        assert "one result for each of the 2 values, got 1 results" in str(each)


def test_who_is_cancelled_is_left_out_and_harms_nobody():
    async def scenario(doubler):
        tasks = [asyncio.create_task(doubler.full(each)) for each in (1, 2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        third = await doubler.full(3)
        return third, await tasks[1], doubler.batches

    assert run(scenario) == (6, 4, [[2, 3]])


def test_instances_have_batches_of_their_own_and_no_request_of_anybody():
    async def scenario(doubler):
        enter("r1", "")
        other = Doubler()
        await asyncio.gather(doubler.soon(1), other.soon(2))
        return doubler.batches, other.batches, doubler.contexts

    assert run(scenario) == ([[1]], [[2]], [""])


def test_functions_can_be_batched_too():
    async def scenario(_):
        @batch(max_batch_size=2, batch_wait_timeout_s=LONG_S)
        async def double(values):
            return [2 * each for each in values]

        return await asyncio.gather(double(1), double(2))

    assert run(scenario) == [2, 4]


def test_a_generator_that_nobody_listens_to_any_more_is_closed():
    async def scenario(_):
        yielded, closed = [], asyncio.Event()

        @batch(max_batch_size=2, batch_wait_timeout_s=LONG_S)
        async def count(values):
            try:
                while True:
                    yielded.append(values)
                    yield values
                    await asyncio.sleep(0)
            finally:
                closed.set()

        both = [count(each) for each in "ab"]
        firsts = await asyncio.gather(*(anext(each) for each in both))
        await both[0].aclose()
        assert [await anext(both[1]) for _ in range(3)] == ["b"] * 3
        await both[1].aclose()
        await closed.wait()
        return firsts, {tuple(each) for each in yielded}

    assert run(scenario) == (["a", "b"], {("a", "b")})


def test_a_method_and_the_one_that_it_overrides_have_batches_of_their_own():
    class Base:
        @batch(batch_wait_timeout_s=0.0)
        async def __call__(self, values):
            return values

    class Derived(Base):
        @batch(batch_wait_timeout_s=0.0)
        async def __call__(self, values):
            return [(await super(Derived, self).__call__(each), len(values)) for each in values]

    async def scenario(_):
        derived = Derived()
        return await asyncio.gather(derived(1), derived(2))

    assert run(scenario) == [(1, 2), (2, 2)]


def test_a_call_whose_size_cannot_be_told_fails_alone():
    async def scenario(_):
        @batch(max_batch_size=5, batch_wait_timeout_s=0.0, batch_size_fn=lambda words: sum(map(len, words)))
        async def echo(words):
            return words

        return await asyncio.gather(echo("ab"), echo(None), echo("cde"), echo("abcdef"), return_exceptions=True)

    first, untold, third, large = run(scenario)
    assert (first, third) == ("ab", "cde")
    assert isinstance(untold, TypeError)
    assert str(large) == "batch_size_fn gives this call alone the size 6, and max_batch_size is 5"


def test_what_waits_while_as_many_batches_run_as_may_goes_into_one():
    async def scenario(doubler):
        doubler.gate.clear()
        calls = [asyncio.create_task(doubler.soon(0))]
        while not doubler.batches:
            await asyncio.sleep(0)
        for each in range(1, 5):
            calls.append(asyncio.create_task(doubler.soon(each)))
            await asyncio.sleep(0.001)
        doubler.gate.set()
        return await asyncio.gather(*calls), doubler.batches

    assert run(scenario) == ([0, 2, 4, 6, 8], [[0], [1, 2, 3, 4]])


def test_a_batched_generator_runs_on_the_event_loop_as_any_asynchronous_method():
    @batch
    async def items(values):
        yield values

    assert returns_at_once(items)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_batch_size": 0}, "max_batch_size must be an integer from 1 on"),
        ({"batch_wait_timeout_s": -1}, "batch_wait_timeout_s"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options, told):
    with pytest.raises(InvalidDeploymentError, match=told):
        batch(**options)


def test_what_is_not_asynchronous_is_refused():
    with pytest.raises(InvalidDeploymentError, match="async def"):
        batch(lambda values: values)


def test_a_function_that_was_tried_here_can_still_be_sent_to_a_replica():
    namespace = {"__name__": "__main__", "batch": batch}
    exec("@batch\nasync def doubled(values):\n    return [2 * value for value in values]", namespace)
    doubled = namespace["doubled"]
    assert asyncio.run(doubled(1)) == 2
    assert asyncio.run(cloudpickle.loads(cloudpickle.dumps(doubled))(2)) == 4
