"""`@batch` beside `ray.serve.batch`: the same code, run with both in one process, has the same results.

Where the two differ on purpose the test says so, and what Ray Serve does.
"""

import asyncio
import inspect
import logging
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from ray import serve
from ray.serve import context as serve_context

from executors import ray_gpu
from executors.ray_gpu.requests.request_context import enter

LONG_S = 3600.0
TIMEOUT_S = 60.0


class Theirs:
    """Ray Serve's, which asks its replica for one number, to warn of it."""

    name = "Ray Serve"
    batch = staticmethod(serve.batch)
    model_id = staticmethod(serve.get_multiplexed_model_id)

    @staticmethod
    def enter(model_id):
        serve_context._set_request_context(multiplexed_model_id=model_id)


class Ours:
    """Rankcore's."""

    name = "rankcore"
    batch = staticmethod(ray_gpu.batch)
    model_id = staticmethod(ray_gpu.get_multiplexed_model_id)

    @staticmethod
    def enter(model_id):
        enter("", model_id)


@pytest.fixture(autouse=True, scope="module")
def replica_context():
    with pytest.MonkeyPatch.context() as patch:
        config = SimpleNamespace(max_ongoing_requests=10**9)
        patch.setattr(serve, "get_replica_context", lambda: SimpleNamespace(_deployment_config=config))
        logging.getLogger("ray.serve").setLevel(logging.CRITICAL)  # it logs what a batch raises
        yield
        logging.getLogger("ray.serve").setLevel(logging.NOTSET)


def played(scenario, api):
    async def play():
        async with asyncio.timeout(TIMEOUT_S):
            return await scenario(api)

    return asyncio.run(play())


def both(scenario):
    """What a scenario comes to with Ray Serve and with rankcore."""
    return played(scenario, Theirs), played(scenario, Ours)


def same(scenario):
    theirs, ours = both(scenario)
    assert ours == theirs
    return ours


async def calling(api, function, *args, model_id="", **kwargs):
    """One call, as a request of its own."""
    api.enter(model_id)
    return await function(*args, **kwargs)


async def together(*calls):
    """What each of them comes to; an exception is shown by its type and text."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    return [(type(each), str(each)) if isinstance(each, Exception) else each for each in found]


async def listed(items):
    return [each async for each in items]


def test_the_decorator_takes_the_same_options_with_the_same_defaults():
    theirs, ours = (inspect.signature(each).parameters.values() for each in (serve.batch, ray_gpu.batch))
    assert [(each.name, each.default, each.kind) for each in ours][1:] == [(e.name, e.default, e.kind) for e in theirs][1:]


def test_what_the_decorator_returns_has_the_same_public_setters():
    async def double(values):
        return [2 * each for each in values]

    theirs, ours = ({name for name in vars(api.batch(double)) if not name.startswith("_")} for api in (Theirs, Ours))
    assert ours == theirs == {"set_max_batch_size", "set_batch_wait_timeout_s"}


@given(
    calls=st.lists(st.tuples(st.sampled_from(["", "fr", "de"]), st.integers(0, 9)), min_size=1, max_size=12),
    size_max=st.integers(1, 5),
    concurrent=st.integers(1, 3),
)
def test_calls_that_come_together_make_the_same_batches_with_one_model_each(calls, size_max, concurrent):
    async def scenario(api):
        batches = []

        @api.batch(max_batch_size=size_max, batch_wait_timeout_s=0.0, max_concurrent_batches=concurrent)
        async def double(values):
            model_id = api.model_id()
            batches.append((model_id, values))
            await asyncio.sleep(0)
            if 9 in values:
                raise KeyError(9)
            return [f"{model_id}{2 * each}" for each in values]

        return await together(*(calling(api, double, value, model_id=model) for model, value in calls)), sorted(batches)

    same(scenario)


@given(
    calls=st.lists(
        st.tuples(st.integers(0, 9), st.booleans(), st.booleans()).map(
            lambda drawn: ((drawn[0],) if not drawn[1] else (drawn[0], -drawn[0]), drawn[2])
        ),
        min_size=1,
        max_size=6,
    )
)
def test_each_argument_becomes_a_list_however_it_is_passed(calls):
    async def scenario(api):
        @api.batch(max_batch_size=3, batch_wait_timeout_s=0.0)
        async def paired(lefts, rights):
            return [(left, right, type(lefts) is list) for left, right in zip(lefts, rights, strict=True)]

        def one(args, by_name):
            left, right = args if len(args) == 2 else (args[0], 0)
            return calling(api, paired, left, rights=right) if by_name else calling(api, paired, left, right)

        return await together(*(one(*each) for each in calls))

    same(scenario)


def test_methods_and_arguments_with_defaults():
    async def scenario(api):
        class Model:
            @api.batch(max_batch_size=2, batch_wait_timeout_s=LONG_S)
            async def __call__(self, prompts, lengths, *, seeds=7):
                return list(zip(prompts, lengths, [seeds] * len(prompts) if seeds == 7 else seeds, strict=True))

        model = Model()
        return [
            await together(model("a", 1), model("b", 2)),
            await together(model("a", 1, seeds=3), model("b", lengths=2, seeds=4)),
        ]

    assert same(scenario) == [[("a", 1, 7), ("b", 2, 7)], [("a", 1, 3), ("b", 2, 4)]]


def test_a_call_that_does_not_fit_the_function_is_a_type_error_of_that_call_alone():
    async def scenario(api):
        @api.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
        async def echo(values):
            return values

        return [each if isinstance(each, int) else each[0] for each in await together(echo(1), echo(1, 2), echo(other=3))]

    assert same(scenario) == [1, TypeError, TypeError]


def test_calls_with_other_arguments_go_into_other_batches_where_ray_serve_fails_both():
    async def scenario(api):
        @api.batch(max_batch_size=2, batch_wait_timeout_s=0.0)
        async def scaled(values, factors=None):
            return [value * factor for value, factor in zip(values, factors or [1] * len(values), strict=True)]

        return await together(scaled(2), scaled(3, 10))

    theirs, ours = both(scenario)
    assert ours == [2, 30]
    assert [kind for kind, _ in theirs] == [AssertionError] * 2


@pytest.mark.parametrize("is_method", [True, False])
def test_a_generator_yields_one_item_for_each_caller_until_each_has_its_end(is_method):
    async def scenario(api):
        async def counted(counts):
            for number in range(max(counts) + 1):
                yield [number if number < count else StopIteration for count in counts]

        class Model:
            @api.batch(max_batch_size=3, batch_wait_timeout_s=LONG_S)
            async def count(self, counts):
                async for each in counted(counts):
                    yield each

        function = Model().count if is_method else api.batch(max_batch_size=3, batch_wait_timeout_s=LONG_S)(counted)
        return await together(*(listed(function(each)) for each in (2, 0, 3)))

    assert same(scenario) == [[0, 1], [], [0, 1, 2]]


def test_a_generator_is_called_when_its_items_are_asked_for_later():
    async def scenario(api):
        batches = []

        @api.batch(max_batch_size=2, batch_wait_timeout_s=LONG_S)
        async def twice(values):
            batches.append(values)
            yield values
            yield values

        items = [twice("a"), twice("b")]
        return [await listed(each) for each in items], batches

    assert same(scenario) == ([["a", "a"], ["b", "b"]], [["a", "b"]])


def test_what_a_generator_raises_all_callers_get_that_had_no_end():
    async def scenario(api):
        @api.batch(max_batch_size=2, batch_wait_timeout_s=LONG_S)
        async def broken(values):
            yield [each if each == "a" else StopAsyncIteration for each in values]
            raise KeyError("broken")

        async def heard(items):
            found = []
            try:
                async for each in items:
                    found.append(each)
            except KeyError:
                found.append("KeyError")
            return found

        return await together(heard(broken("a")), heard(broken("b")))

    assert same(scenario) == [["a", "KeyError"], []]


@pytest.mark.parametrize("returned", [[1], [1, 2, 3], None, 5], ids=repr)
@pytest.mark.parametrize("streams", [True, False])
def test_a_wrong_number_of_results_is_an_error_of_all_callers(returned, streams):
    async def scenario(api):
        async def items(values):
            yield returned

        async def results(values):
            return returned

        function = api.batch(max_batch_size=2, batch_wait_timeout_s=LONG_S)(items if streams else results)
        return await together(*(listed(function(each)) if streams else function(each) for each in (1, 2)))

    theirs, ours = both(scenario)
    assert all(isinstance(each, tuple) and issubclass(each[0], Exception) for each in (*theirs, *ours))
    assert [kind for kind, _ in ours] == [TypeError] * 2  # of rankcore's, and one text for all; theirs by what Python says


def test_an_exception_in_a_callers_place_is_raised_where_ray_serve_returns_it():
    async def scenario(api):
        @api.batch(max_batch_size=2, batch_wait_timeout_s=LONG_S)
        async def picky(values):
            return [ValueError("odd") if each % 2 else each for each in values]

        return await asyncio.gather(picky(1), picky(2), return_exceptions=True), await returned(api, picky)

    async def returned(api, picky):
        calls = [asyncio.create_task(picky(each)) for each in (1, 2)]
        await asyncio.wait(calls)
        return calls[0].exception() is None

    theirs, ours = both(scenario)
    assert [[str(each) for each in found] for found, _ in (theirs, ours)] == [["odd", "2"]] * 2
    assert (theirs[1], ours[1]) == (True, False)


def test_an_array_of_results_has_one_for_each():
    numpy = pytest.importorskip("numpy")

    async def scenario(api):
        @api.batch(max_batch_size=2, batch_wait_timeout_s=LONG_S)
        async def squared(values):
            return numpy.array(values) ** 2

        return await together(squared(2), squared(3))

    assert same(scenario) == [4, 9]


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=10))
def test_batches_by_size_never_are_larger_and_what_is_too_large_alone_fails_alone(sizes):
    async def scenario(api):
        batches = []

        @api.batch(max_batch_size=5, batch_wait_timeout_s=0.0, batch_size_fn=sum)
        async def echo(values):
            batches.append(sum(values))
            return values

        found = await together(*(echo(each) for each in sizes))
        assert all(each <= 5 for each in batches)
        return [each if isinstance(each, int) else "too large" for each in found]

    assert same(scenario) == [each if each <= 5 else "too large" for each in sizes]


def test_a_batch_by_size_begins_when_it_is_full():
    async def scenario(api):
        batches = []

        @api.batch(max_batch_size=5, batch_wait_timeout_s=LONG_S, batch_size_fn=lambda words: sum(map(len, words)))
        async def echo(words):
            batches.append(words)
            return words

        return await together(*(echo(each) for each in ("ab", "abc", "abcde"))), batches

    assert same(scenario) == (["ab", "abc", "abcde"], [["ab", "abc"], ["abcde"]])


@pytest.mark.parametrize("concurrent", [1, 2, 3])
def test_no_more_batches_run_at_once_than_may(concurrent):
    async def scenario(api):
        running, most = 0, 0

        @api.batch(max_batch_size=1, batch_wait_timeout_s=0.0, max_concurrent_batches=concurrent)
        async def echo(values):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return values

        return await together(*(echo(each) for each in range(6))), most

    assert same(scenario) == (list(range(6)), concurrent)


def test_batches_of_two_models_are_two_batches_where_ray_serve_counts_them_as_one():
    async def scenario(api):
        running, most = 0, 0

        @api.batch(max_batch_size=2, batch_wait_timeout_s=LONG_S, max_concurrent_batches=1)
        async def echo(values):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return [(api.model_id(), each) for each in values]

        return await together(*(calling(api, echo, 1, model_id=each) for each in ("fr", "de"))), most

    theirs, ours = both(scenario)
    assert (theirs[0], ours[0]) == ([("fr", 1), ("de", 1)],) * 2
    assert (theirs[1], ours[1]) == (2, 1)


def test_the_setters_change_the_next_batches_of_all_instances():
    async def scenario(api):
        class Model:
            def __init__(self):
                self.batches = []

            @api.batch(max_batch_size=1, batch_wait_timeout_s=LONG_S)
            async def __call__(self, values):
                self.batches.append(values)
                return values

        model = Model()
        await together(model.__call__(1), model.__call__(2))
        model.__call__.set_max_batch_size(2)
        await together(model.__call__(3), model.__call__(4))
        model.__call__.set_batch_wait_timeout_s(0.0)
        await together(model.__call__(5))
        return model.batches

    assert same(scenario) == [[1], [2], [3, 4], [5]]


def test_who_is_cancelled_before_a_batch_begins_is_not_in_it_and_later_changes_nothing_for_the_others():
    async def scenario(api):
        batches, begun, gate = [], asyncio.Event(), asyncio.Event()

        @api.batch(max_batch_size=3, batch_wait_timeout_s=LONG_S)
        async def echo(values):
            batches.append(values)
            begun.set()
            await gate.wait()
            return values

        calls = [asyncio.create_task(echo(each)) for each in "abc"[:2]]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.sleep(0)
        calls += [asyncio.create_task(echo(each)) for each in "cd"]
        await begun.wait()
        calls[2].cancel()
        await asyncio.sleep(0)
        gate.set()
        return await calls[1], batches[0], calls[2].cancelled() or calls[2].cancelling()

    same(scenario)


@pytest.mark.parametrize(
    "options",
    [
        {"max_batch_size": 0},
        {"max_batch_size": "2"},
        {"batch_wait_timeout_s": -1},
        {"batch_wait_timeout_s": "1"},
        {"max_concurrent_batches": 0},
        {"max_concurrent_batches": 1.5},
        {"batch_size_fn": 3},
    ],
    ids=repr,
)
def test_options_that_cannot_be_are_refused(options):
    with pytest.raises((TypeError, ValueError)):
        serve.batch(**options)
    with pytest.raises(ray_gpu.errors.InvalidDeploymentError, match=next(iter(options))):
        ray_gpu.batch(**options)
