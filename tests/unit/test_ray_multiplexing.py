"""`@multiplexed`: the models that were asked for last are kept, each is loaded once, and who has to go is ended first."""

import asyncio

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import multiplexed
from executors.ray_gpu.declaration import deployment
from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.packing import routing_of


class Model:
    def __init__(self, model_id, log):
        self.model_id, self._log = model_id, log

    def __del__(self):
        if self.model_id:
            self._log.append(f"end {self.model_id}")
        self.model_id = ""


class Server:
    def __init__(self):
        self.log = []

    @multiplexed(max_num_models_per_replica=2)
    async def model(self, model_id):
        self.log.append(f"load {model_id}")
        await asyncio.sleep(0)
        if model_id == "broken":
            raise OSError("no such model")
        return Model(model_id, self.log)


def run(scenario):
    async def play():
        server = Server()
        found = await scenario(server)
        return found, list(server.log)

    return asyncio.run(play())


def test_a_model_is_loaded_once_however_many_ask_for_it():
    async def scenario(server):
        found = await asyncio.gather(*(server.model("a") for _ in range(5)))
        return {each.model_id for each in found}

    assert run(scenario) == ({"a"}, ["load a"])


def test_the_one_used_longest_ago_goes_and_has_ended_before_the_next_is_loaded():
    async def scenario(server):
        for model_id in ("a", "b", "a", "c", "a"):
            await server.model(model_id)

    assert run(scenario)[1] == ["load a", "load b", "end b", "load c"]


def test_a_model_that_cannot_be_loaded_takes_no_room_and_is_tried_again():
    async def scenario(server):
        for _ in range(2):
            with pytest.raises(OSError, match="no such model"):
                await server.model("broken")
        return (await server.model("a")).model_id

    assert run(scenario) == ("a", ["load broken", "load broken", "load a"])


def test_asking_for_no_model_says_what_to_do():
    async def scenario(server):
        with pytest.raises(ValueError, match="multiplexed_model_id"):
            await server.model("")

    run(scenario)


def test_what_cannot_be_is_refused():
    with pytest.raises(InvalidDeploymentError, match="max_num_models_per_replica must be an integer from 1 on"):
        multiplexed(max_num_models_per_replica=0)
    with pytest.raises(InvalidDeploymentError, match="async def"):
        multiplexed(lambda self, model_id: model_id)


def test_deployments_with_models_route_by_the_model_unless_they_say_otherwise():
    class Plain:
        def model(self):
            pass

    class Heir(Server):
        pass

    assert [routing_of(deployment(each), "m").policy for each in (Server, Heir)] == ["affinity", "affinity"]
    assert [routing_of(deployment(each), "m").policy for each in (Plain, len)] == ["least_loaded", "least_loaded"]
    assert routing_of(deployment(routing_policy="round_robin")(Server), "m").policy == "round_robin"


def test_a_function_that_is_no_method_keeps_its_models_too_and_each_function_its_own():
    log = []

    def loader():
        async def load(model_id):
            log.append(model_id)
            return model_id.upper()

        return multiplexed(max_num_models_per_replica=2)(load)

    async def play():
        one, other = loader(), loader()
        return [await each for each in (one("a"), one("b"), one("a"), other("a"), one("c"), one("a"), one("b"))]

    assert asyncio.run(play()) == ["A", "B", "A", "A", "C", "A", "B"]
    assert log == ["a", "b", "a", "c", "b"]


def test_a_function_that_has_models_can_still_be_pickled():
    from ray import cloudpickle

    async def load(model_id):
        return [model_id]

    loads = multiplexed(load)

    async def play():
        return await loads("a"), await cloudpickle.loads(cloudpickle.dumps(loads))("b")

    assert asyncio.run(play()) == (["a"], ["b"])


@pytest.mark.parametrize("model_id", ["", None])
def test_asking_a_function_for_no_model_says_what_to_do_too(model_id):
    @multiplexed
    async def load(model_id):
        return model_id

    with pytest.raises(ValueError, match="multiplexed_model_id"):
        asyncio.run(load(model_id))


def test_what_takes_no_model_id_is_refused_when_it_is_declared():
    async def takes_nothing():
        pass

    async def takes_three(self, model_id, more):
        pass

    for function in (takes_nothing, takes_three):
        with pytest.raises(InvalidDeploymentError, match="a function of a model's id, or a method"):
            multiplexed(function)


class Adapted(Server):
    @multiplexed
    async def model(self, model_id):
        return "adapted", await super().model(model_id)


def test_a_method_that_overrides_one_has_models_of_its_own_and_may_ask_for_those_of_the_other():
    async def scenario():
        async with asyncio.timeout(60):
            return await Adapted().model("a")

    word, model = asyncio.run(scenario())
    assert (word, model.model_id) == ("adapted", "a")
