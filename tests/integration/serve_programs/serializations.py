"""Arguments and results travel as plain data, as msgpack or as JSON, where a handle wants that; large ones by reference."""

from ray import serve


@serve.deployment
class Echo:
    def __call__(self, *args, **kwargs) -> object:
        return [list(args), kwargs]

    def count(self, number: int):
        yield from range(number)


def main() -> object:
    handle = serve.run(Echo.bind(), name="echo", route_prefix=None)
    found = []
    for how in ("cloudpickle", "pickle", "msgpack", "orjson"):
        asked = handle.options(request_serialization=how, response_serialization=how)
        response = asked.remote({"a": [1, 2.5, None]}, text="x")
        found.append([response.result(), response.by_reference])
    counted = handle.options(method_name="count", stream=True, response_serialization="msgpack").remote(3)
    return [found[0] == each for each in found] + [list(counted), counted.by_reference, found[0]]


EXPECTED = [True, True, True, True, [0, 1, 2], True, [[[{"a": [1, 2.5, None]}], {"text": "x"}], True]]
