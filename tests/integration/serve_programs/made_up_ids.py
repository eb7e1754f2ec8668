"""A call that nobody has named has an id of its own: response and replica say the same, also of calls that it leads to."""

import uuid

from ray import serve


@serve.deployment
class Inner:
    async def seen(self, handle_id: str) -> bool:
        return bool(handle_id)


@serve.deployment
class Outer:
    def __init__(self, inner) -> None:
        self.inner = inner

    async def ids(self) -> str:
        response = self.inner.seen.remote("x")
        await response
        return response.request_id

    async def stream(self):
        response = self.inner.seen.remote("x")
        await response
        yield response.request_id


def main() -> object:
    handle = serve.run(Outer.bind(Inner.bind()), route_prefix=None)
    first, second = handle.ids.remote(), handle.ids.remote()
    stream = handle.options(method_name="stream", stream=True).remote()
    ids = [first.result(), second.result(), *stream]
    said = [first.request_id, second.request_id, stream.request_id]
    return [ids == said, len(set(ids)), {uuid.UUID(each).version for each in said}]


EXPECTED = [True, 3, {4}]
