"""What the Ray tests deploy. Replicas import this module, so it imports little."""

import asyncio
import json
import logging
import os
import time
from pathlib import Path

from executors import ray_gpu as serve

NO_CPU = {"num_cpus": 0}


@serve.deployment(ray_actor_options=NO_CPU, user_config={"name": "v1"})
class RankAware:
    """Remembers what it was told, and when."""

    def __init__(self, build="a"):
        context = serve.get_replica_context()
        self.build = build
        self.first = (context.rank, context.world_size)
        self.calls = []

    async def reconfigure(self, user_config, rank):
        await asyncio.sleep(0)
        self.calls.append((user_config, rank))

    def __call__(self):
        context = serve.get_replica_context()
        return context.rank, context.world_size

    def history(self):
        return self.first, self.calls

    def id(self):
        return serve.get_replica_context().replica_id

    def pid(self):
        return os.getpid()

    def which_build(self):
        return self.build


@serve.deployment(ray_actor_options=NO_CPU, user_config={})
class ConfigOnly:
    """Its reconfigure takes no rank."""

    def __init__(self):
        self.calls = []

    def reconfigure(self, user_config):
        self.calls.append(user_config)

    def __call__(self):
        context = serve.get_replica_context()
        return context.rank.rank, context.world_size, self.calls


@serve.deployment(ray_actor_options=NO_CPU)
class NoConfig:
    """Without a user_config its reconfigure is never called."""

    def __init__(self):
        self.calls = 0

    def reconfigure(self, user_config, rank):
        self.calls += 1

    def __call__(self):
        return serve.get_replica_context().rank.rank, self.calls


@serve.deployment(ray_actor_options=NO_CPU)
def double(x):
    return 2 * x


@serve.deployment(ray_actor_options=NO_CPU)
class Caller:
    """Is given another deployment's handle."""

    def __init__(self, handle):
        self.handle = handle

    async def __call__(self, x):
        return 1 + await self.handle.remote(x)


@serve.deployment(ray_actor_options=NO_CPU)
class Faulty:
    """Fails as it is told to."""

    def __init__(self, how="", gate=""):
        self.gate = gate
        if how == "raise":
            raise ValueError("no such model: tiny")
        if how == "hang":
            time.sleep(3600)
        if how in ("wait", "raise-later"):
            Path(f"{gate}.begun").touch()
            while not Path(gate).exists():
                time.sleep(0.01)
        if how == "raise-later":
            raise ValueError("too late to tell anybody")

    def __call__(self, what="ok"):
        if what == "raise":
            raise KeyError("not here")
        if what == "exit":
            os._exit(1)
        return what

    async def slow(self, path):
        Path(f"{path}.begun").touch()
        Path(f"{path}.begun.{os.getpid()}").touch()
        while not Path(path).exists():
            await asyncio.sleep(0.01)
        return "done"

    async def doze(self, seconds):
        await asyncio.sleep(seconds)

    def hang(self, path):
        Path(path).touch()
        time.sleep(3600)

    def pid(self):
        return os.getpid()


@serve.deployment(ray_actor_options=NO_CPU, user_config={"how": ""})
class FaultyConfig:
    """Its reconfigure fails, or waits, as the user_config says."""

    def __init__(self):
        self.applied = []

    async def reconfigure(self, user_config, rank):
        if user_config["how"] == "raise":
            raise RuntimeError("this config is bad")
        if user_config["how"] == "wait":
            Path(f"{user_config['gate']}.{rank.rank}").touch()
            while not Path(user_config["gate"]).exists():
                await asyncio.sleep(0.01)
        self.applied.append(user_config["how"])

    def __call__(self):
        return self.applied


@serve.deployment(ray_actor_options=NO_CPU, health_check_period_s=0.2, health_check_timeout_s=10.0)
class Sickly:
    """Is unwell while a file exists."""

    def __init__(self, path, how="raise"):
        self.path, self.how = Path(path), how

    async def check_health(self):
        if self.path.exists():
            if self.how == "hang":
                await asyncio.sleep(3600)
            raise RuntimeError("the GPU fell off the bus")

    def __call__(self):
        return os.getpid()


@serve.deployment(ray_actor_options=NO_CPU, health_check_period_s=0.2, health_check_timeout_s=2.0)
class Moody:
    """Takes no requests while a file of its rank exists, which says how it tells."""

    def __init__(self, folder):
        self.folder = Path(folder)

    async def check_ready(self):
        closed = self.folder / f"closed-{serve.get_replica_context().rank.rank}"
        how = closed.read_text() if closed.exists() else None
        if how == "hang":
            await asyncio.sleep(3600)
        if how == "raise":
            raise RuntimeError("no licence")
        return how is None

    async def slow(self, gate):
        Path(f"{gate}.begun").touch()
        while not Path(gate).exists():
            await asyncio.sleep(0.01)
        return serve.get_replica_context().rank.rank

    def __call__(self):
        return serve.get_replica_context().rank.rank


@serve.deployment(ray_actor_options=NO_CPU)
class Obedient:
    """Its start does what the files in a folder say: each file `fail.*` is for one failure, `slow` has seconds to wait."""

    def __init__(self, folder):
        slow = Path(folder) / "slow"
        time.sleep(float(slow.read_text()) if slow.exists() else 0.0)
        for order in sorted(Path(folder).glob("fail.*")):
            try:
                order.unlink()
            except FileNotFoundError:
                continue  # another replica has failed for it
            raise RuntimeError("told to fail")

    async def reconfigure(self, user_config, rank):
        await asyncio.sleep(0)

    def __call__(self):
        return serve.get_replica_context().rank.rank


@serve.deployment(ray_actor_options={"num_cpus": 1})
class OnOrder:
    """The same, and its reconfigure and its end are slow too, for as long as the file `slow` says so."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.wait()
        for order in sorted(self.folder.glob("fail.*")):
            try:
                order.unlink()
            except FileNotFoundError:
                continue  # another replica has failed for it
            raise RuntimeError("told to fail")

    def wait(self):
        begun = time.monotonic()
        while (slow := self.folder / "slow").exists() and time.monotonic() < begun + float(slow.read_text() or 0.0):
            time.sleep(0.01)

    def reconfigure(self, user_config, rank):
        self.wait()

    def check_ready(self):
        return not (self.folder / "closed").exists()

    def __del__(self):
        self.wait()


@serve.deployment(ray_actor_options=NO_CPU, user_config={})
class ComesUpWithoutRank:
    """Needs its rank for its reconfigure only; writes down when it came up and as what, was given a rank, and ended."""

    def __init__(self, folder, build="a"):
        self.lines = Path(folder) / f"{os.getpid()}"
        self.write("begins", serve.get_replica_context().rank_or_none is not None)
        while (Path(folder) / f"closed-{build}").exists():
            time.sleep(0.01)
        self.write("up", build)

    def write(self, *what):
        with self.lines.open("a") as lines:
            lines.write(f"{time.monotonic()} {' '.join(map(str, what))}\n")

    def reconfigure(self, user_config, rank):
        self.write("given", rank.rank)

    def __call__(self):
        return serve.get_replica_context().rank.rank

    def __del__(self):
        self.write("ends")


@serve.deployment(ray_actor_options=NO_CPU, user_config={}, max_ongoing_requests=100)
class ServesWithoutRank:
    """Says as what it answers, whether it has a rank or not; files in a folder say what is to wait, and who is not well."""

    def __init__(self, folder="", build="a"):
        self.folder, self.build = Path(folder), build

    async def reconfigure(self, user_config, rank):
        while (self.folder / "no-ranks").exists():
            await asyncio.sleep(0.01)

    def check_health(self):
        if (self.folder / f"unwell-{self.build}").exists():
            raise RuntimeError("the GPU fell off the bus")

    async def __call__(self, request=None):
        return self.standing()

    def on_a_thread(self):
        return self.standing()

    async def items(self, count):
        for _ in range(count):
            yield self.standing()

    @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.01)
    async def together(self, values):
        return [self.standing() for _ in values]

    async def Method1(self, request):
        from ray.serve.generated import serve_pb2

        return serve_pb2.UserDefinedResponse(greeting=json.dumps(self.standing()))

    async def wait_for(self, name):
        """What it is when it is asked, and when there is a file of that name."""
        begun = self.standing()
        (self.folder / f"{name}-begun").touch()
        while not (self.folder / name).exists():
            await asyncio.sleep(0.01)
        return begun, self.standing()

    def standing(self):
        context = serve.get_replica_context()
        rank = context.rank_or_none
        try:
            refusal = "" if context.rank is not None else "no rank is no answer"
        except Exception as error:
            refusal = type(error).__name__
        return {"pid": os.getpid(), "build": self.build, "rank": rank and rank.rank, "refusal": refusal}


@serve.deployment(ray_actor_options={"num_cpus": 0.5}, user_config={"name": "v1"})
class OnBundles:
    """Says where it stands, and where its children do."""

    def __init__(self):
        self.names = []

    async def reconfigure(self, user_config):
        self.names.append(user_config["name"])

    async def __call__(self):
        return serve.get_replica_context().rank.rank, self.names

    async def child(self, bundle=None, num_cpus=0.1):
        """The group and node of an actor that is started here: on a bundle, or wherever Ray puts it."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        options = {"num_cpus": num_cpus}
        if bundle is not None:
            group = ray.util.get_current_placement_group()
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
        return await ray.remote(Child).options(**options).remote().where.remote()

    def bundles(self):
        return serve.get_replica_context().rank.rank, serve.get_replica_context().bundle_indices


class Child:
    def where(self):
        import ray

        group = ray.util.get_current_placement_group()
        return group.id.hex() if group is not None else None, ray.get_runtime_context().get_node_id()


@serve.deployment(ray_actor_options=NO_CPU, max_ongoing_requests=100)
class Requests:
    """Answers in every way there is."""

    def __init__(self):
        self.cancelled = 0
        self.at_once = 0
        self.most_at_once = 0

    def __call__(self, value):
        return value

    def rank(self):
        return serve.get_replica_context().rank.rank

    def pid(self):
        return os.getpid()

    async def count(self, upto):
        for number in range(upto):
            yield number

    async def for_ever(self):
        yield os.getpid()
        await asyncio.Event().wait()

    async def until_cancelled(self, path):
        Path(path).touch()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1

    def how_many_cancelled(self):
        return self.cancelled

    async def one_of(self, path):
        """Counts how many run at once, until a file exists."""
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        Path(f"{path}.begun{id(asyncio.current_task())}").touch()
        while not Path(path).exists():
            await asyncio.sleep(0.01)
        self.at_once -= 1
        return self.most_at_once

    async def wait_for(self, path):
        Path(f"{path}.{os.getpid()}").touch()
        while not Path(path).exists():
            await asyncio.sleep(0.01)
        return os.getpid()

    def add(self, one, other):
        return one + other

    def array(self, numbers):
        import numpy

        return numpy.ones(numbers, dtype=numpy.int64)

    def is_read_only(self, array):
        return int(array.sum()), not array.flags.writeable

    def request(self):
        return serve.get_request_context()


@serve.deployment(ray_actor_options=NO_CPU, max_ongoing_requests=100)
class Batched:
    """Answers what comes together, together."""

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=100.0)
    async def __call__(self, values):
        return [(value, len(values)) for value in values]


@serve.deployment(ray_actor_options=NO_CPU, num_replicas=2, routing_policy="affinity", max_ongoing_requests=100)
class ManyModels:
    """Loads models by their ids."""

    def __init__(self):
        self.loaded = []

    @serve.multiplexed(max_num_models_per_replica=2)
    async def model(self, model_id):
        self.loaded.append(model_id)
        return model_id

    async def __call__(self):
        return await self.model(serve.get_multiplexed_model_id()), os.getpid(), list(self.loaded)

    async def pid(self):
        return os.getpid()


@serve.deployment(ray_actor_options=NO_CPU, max_ongoing_requests=100)
class Web:
    """Answers HTTP requests without an ingress."""

    def __init__(self, gate=""):
        self.gate = gate
        self.cancelled = 0

    async def __call__(self, request):
        match request.url.path.rpartition("/")[2]:
            case "fail":
                raise KeyError("not here")
            case "stream":
                return self.items(3)
            case "for-ever":
                return self.until_cancelled()
            case "wait":
                Path(f"{self.gate}.begun").touch()
                while not Path(self.gate).exists():
                    await asyncio.sleep(0.01)
                return "waited"
            case "cancelled":
                return str(self.cancelled)
            case "pid":
                return str(os.getpid())
        return {"length": len(await request.body()), "id": serve.get_request_context().request_id}

    async def items(self, upto):
        for number in range(upto):
            yield f"{number}\n"

    async def until_cancelled(self):
        try:
            while True:
                yield "more\n"
                await asyncio.sleep(0.05)
        finally:
            self.cancelled += 1


@serve.deployment(
    ray_actor_options=NO_CPU,
    max_ongoing_requests=2,
    autoscaling_config={
        "min_replicas": 0,
        "max_replicas": 3,
        "target_ongoing_requests": 1,
        "metrics_interval_s": 0.2,
        "look_back_period_s": 1.0,
        "upscale_delay_s": 0.2,
        "downscale_delay_s": 1.0,
    },
)
class Scaled:
    """Answers when a file exists."""

    async def __call__(self, path):
        while not Path(path).exists():
            await asyncio.sleep(0.02)
        return serve.get_replica_context().rank.rank


@serve.deployment
class NeedsFile:
    """Starts where a file is there."""

    def __init__(self, path):
        if not os.path.exists(path):
            raise FileNotFoundError(path)

    def __call__(self):
        return "there"


@serve.deployment(ray_actor_options=NO_CPU)
class Chatty:
    """Logs as users of Ray Serve do."""

    def __init__(self, words="asked for {}"):
        self.words = words

    async def __call__(self, request=None):
        logging.getLogger("ray.serve").info(self.words.format(request if isinstance(request, str) else "it"))
        return "said"

    async def fail(self):
        raise ValueError("as asked")


@serve.deployment(ray_actor_options=NO_CPU)
class Asks:
    """Answers over HTTP what another deployment says."""

    def __init__(self, other):
        self.other = other

    async def __call__(self, request):
        return await self.other.remote(request.query_params.get("q", "it"))


@serve.deployment(ray_actor_options=NO_CPU)
class Traced:
    """Has spans of its own, on the loop and on a thread."""

    async def __call__(self, name):
        return self._mine(name)

    def on_a_thread(self, name):
        return self._mine(name)

    def _mine(self, name):
        from opentelemetry import trace

        with trace.get_tracer("mine").start_as_current_span(name, context=serve.get_trace_context()) as span:
            return f"{span.get_span_context().trace_id:032x}"


def span_processors():
    """Of OpenTelemetry: each process writes its spans to a file of its own, one a line."""
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    file = (Path(os.environ["RANKCORE_TEST_SPANS"]) / f"{os.getpid()}.jsonl").open("a")
    return [SimpleSpanProcessor(ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n"))]
