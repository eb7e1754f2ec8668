"""A replica asks for the context of its trace; which traces there are a `TracingConfig` says."""

from ray import serve
from ray.serve.schema import TracingConfig


@serve.deployment
class Asks:
    async def __call__(self) -> bool:
        return serve.get_trace_context() is None

    def on_a_thread(self) -> bool:
        return serve.get_trace_context() is None


def fields(config: TracingConfig) -> list:
    return [config.enabled, config.exporter_import_path, config.sampling_ratio]


def main() -> object:
    handle = serve.run(Asks.bind(), route_prefix=None)
    try:
        TracingConfig(sampling_ratio=2.0)
        problem = ""
    except Exception as error:
        problem = "sampling_ratio" in str(error)
    given = serve.TracingConfig(enabled=True, exporter_import_path="mine:processors", sampling_ratio=0.5)
    unseen = [handle.remote().result(), handle.on_a_thread.remote().result()]
    return [fields(TracingConfig()), fields(given), problem, unseen, serve.get_trace_context() is None]


EXPECTED = [[False, "", 0.01], [True, "mine:processors", 0.5], True, [True, True], True]
