"""The user's code in a replica: a thread with an event loop of its own, so that whatever it does, the replica answers.

Replica processes import this: it needs nothing of the core. Synchronous calls run on threads beside that loop, one after
another unless the deployment asks for more threads; a `reconfigure` never runs beside one.
"""

import asyncio
import inspect
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from executors.ray_gpu.context import get_replica_context, replica_rank
from executors.ray_gpu.errors import as_error
from executors.ray_gpu.http.ingress import APP
from executors.ray_gpu.messages import NO_RANKS, Change, Ranks, across_releases
from executors.ray_gpu.requests.loops import new_loop
from executors.ray_gpu.requests.threads import SyncThreads

if TYPE_CHECKING:
    from executors.ray_gpu.http.lifespan import Lifespan
    from executors.ray_gpu.logs.access import AccessLog

T = TypeVar("T")

FIRST_CHECK_S = 5.0
"""How long the first `check_ready` may take, at the end of a start-up; who has not answered is unready until the next."""
OUR_FOLDER = os.path.dirname(__file__)

_RETURNS_AT_ONCE = "_rankcore_returns_at_once"


@across_releases
@attrs.frozen
class Code:
    """One version of what a user deployed, as it is kept in the cluster.

    Attributes:
        deployment: Its id.
        version: Its name within the deployment.
        class_name: Module and qualified name, to be shown.
        app_name: Of the application.
        blob: Pickled (class or function, args, kwargs).
        sys_path: Where the deployer's modules are found, before the interpreter's own.
        actor_options: For Ray, with the whole runtime environment.
        max_ongoing_requests: How many calls a replica takes at once, unless it is told otherwise later.
        sync_threads: How many of them may be synchronous ones.
        sys_path_behind: Where the deployer's modules are found that are nowhere else.
        weights: The path of its weights, where they may be COLD; "": it has none such.
        weights_contents: The contents that they must have; None: nobody has looked at them.
        logging: How replicas log, as `logs.config.as_plain` has it; None: nobody has said.
        version_said: Whether the user has named the version; else it follows from the code.
        actors: Of what its replicas create the actors that they share, as `deployment_actors.packed` has it; b"": none.
        actor_names: How the deployment calls them.
        actors_said: What a file has said of them; None: code did, or there are none.
        runtime_env_said: What the user has said of it for this deployment; the whole one is among the `actor_options`.
    """

    deployment: str
    version: str
    class_name: str
    app_name: str
    blob: bytes
    sys_path: tuple[str, ...]
    actor_options: dict[str, Any]
    max_ongoing_requests: int = 5
    sync_threads: int = 1
    sys_path_behind: tuple[str, ...] = ()
    weights: str = ""
    weights_contents: str | None = None
    logging: dict[str, Any] | None = None
    version_said: bool = False
    runtime_env_said: dict[str, Any] | None = None
    actors: bytes = b""
    actor_names: tuple[str, ...] = ()
    actors_said: list[dict[str, Any]] | None = None

    @property
    def without_code(self) -> "Code":
        """What the controller keeps of it."""
        return attrs.evolve(self, blob=b"", actors=b"")


class UserCode:
    """Loads, builds and runs what the user deployed, on its own thread.

    Attributes:
        loop: Of that thread; everything of the user's runs there.
        instance: The user's object, or function; None before `start`.
        user_config: That it was last given.
        threads: For synchronous calls.
        access_log: Takes a line for each request; None: there are to be none.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.loop = new_loop()
        self.instance: Any = None
        self.access_log: AccessLog | None = None
        self.threads = SyncThreads(self.loop, code.sync_threads)
        self._methods: dict[str, tuple[Callable[..., Any], bool]] = {}
        self._target: Any = None
        self._arguments: list[Any] = [(), {}]
        self._is_class = False
        self._ended = False
        self._consumes = False
        self._lifespan: Lifespan | None = None
        self.user_config: Any = None
        self._config_id: str | None = None
        self._ranks: Ranks | None = None  # that the user's code was last started or reconfigured with
        threading.Thread(target=self._live, name="user-code", daemon=True).start()
        self._loaded = self.submit(self._load())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the user's thread and wait for it here."""
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Coroutine[Any, Any, T]) -> Any:
        """Run something on the user's thread; returns a concurrent future."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def build(self) -> Any:
        """Call the user's `__init__`, once; returns the object. Run it on the user's thread."""
        if self.instance is None:
            await asyncio.wrap_future(self._loaded)
            args, kwargs = self._arguments
            self.instance = await self._build(*args, **kwargs) if self._is_class else self._target
        return self.instance

    async def start(self, change: Change) -> None:
        """Begin a replica: build the object and start the application in front of it, unless an earlier replica of this
        process did, and call `reconfigure` where there is a user_config (R12). Run it on the user's thread.
        """
        self._ranks = get_replica_context().ranks
        await self.build()
        if (
            not self._consumes
            and self._is_class
            and (begins := getattr(self.instance, "initialize_callable", None)) is not None
        ):
            self._consumes = True
            await finished(begins, self.code.max_ongoing_requests)  # it takes tasks besides calls: see `task_processor`
        if self._is_class and hasattr(self._target, APP) and self._lifespan is None:
            from executors.ray_gpu.http.lifespan import begin

            self._lifespan = await begin(self)
        if not change.keeps_config:
            self.user_config = change.user_config
        self._config_id = change.config_id
        if self._ranks != NO_RANKS or not wants_rank(self._target):  # else once it has one
            await self._reconfigure()

    async def change(self, change: Change) -> None:
        """Call the user's `reconfigure` where R12 says so. Run it on the user's thread."""
        news_config = not change.keeps_config and change.config_id != self._config_id
        news_rank = change.ranks != self._ranks
        self._ranks, self._config_id = change.ranks, change.config_id
        if not change.keeps_config:
            self.user_config = change.user_config
        if news_config or (news_rank and self._is_class and wants_rank(self._target)):
            await self._reconfigure()

    async def check_health(self) -> None:
        """Call the user's `check_health`; what it raises says that it is not well. Run it on the user's thread."""
        check = getattr(self.instance, "check_health", None)
        if check is not None and self._is_class:
            await finished(check)

    async def check_ready(self) -> str | None:
        """Call the user's `check_ready`; returns why it takes no requests for now. Run it on the user's thread."""
        if not self._is_class:
            return None
        try:
            check = getattr(self.instance, "check_ready", None)  # a property may raise
            answer = await finished(check) if check is not None else None
            return None if answer is None or answer else f"check_ready returned {answer!r}"
        except Exception as error:
            return traceback_of(error)

    async def problem(self, timeout_s: float) -> str | None:
        """The same, within some seconds; not on the user's thread."""
        if not self.checks_readiness:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                return await self.run(self.check_ready())
        except TimeoutError:
            return f"check_ready has not answered for {timeout_s:g} s"

    async def end(self) -> None:
        """Let the user's code clean up: the shutdown of its application, and its `__del__`, as in Ray Serve. Run it on the
        user's thread.
        """
        if self._ended:
            return
        self._ended = True  # the interpreter does not call it again: the process is ended from outside
        clean_up = getattr(self.instance, "__del__", None) if self._is_class else None
        try:
            if self._lifespan is not None:
                await self._lifespan.end()
        finally:
            if clean_up is not None:
                await finished(clean_up)

    @property
    def checks_health(self) -> bool:
        """Whether the user wrote a `check_health`."""
        return self._is_class and hasattr(self._target, "check_health")

    @property
    def checks_readiness(self) -> bool:
        """Whether the user wrote a `check_ready`."""
        return self._is_class and hasattr(self._target, "check_ready")

    def method(self, name: str) -> tuple[Callable[..., Any], bool]:
        """What a call through a handle runs, and whether it returns at once: an asynchronous function, or a generator's.

        Raises:
            AttributeError: There is no such method; says which there are.
        """
        known = self._methods.get(name)
        if known is None:
            known = self._methods[name] = self._find(name)
        return known

    def _find(self, name: str) -> tuple[Callable[..., Any], bool]:
        if name == "__call__" and callable(self.instance):
            called: Callable[..., Any] = self.instance
            return called, returns_at_once(called) or returns_at_once(type(called).__call__)
        found = getattr(self.instance, name, None) if self._is_class and not name.startswith("_") else None
        if found is None or not callable(found):
            public = [each for each in dir(self._target) if not each.startswith("_")] if self._is_class else []
            there_is = ", ".join(public) or "only __call__"
            raise AttributeError(f"{self.code.deployment} has no method {name!r}; there is: {there_is}")
        return found, returns_at_once(found)

    # -- on the user's thread

    def _live(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def _load(self) -> None:
        for path in (*self.code.sys_path, *self.code.sys_path_behind):
            if path not in sys.path:  # a replica on Ray has put them in order before
                sys.path.append(path)
        self._target, *self._arguments = self.unpack()
        self._is_class = inspect.isclass(self._target)

    def unpack(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The class or function, and its arguments."""
        unpickled: tuple[Any, tuple[Any, ...], dict[str, Any]] = pickle.loads(self.code.blob)
        return unpickled

    async def _reconfigure(self) -> None:
        if self._is_class:
            assert self._ranks is not None, "ranks come before user code"
            await reconfigure(self.instance, self.user_config, self._ranks, self.threads)

    async def _build(self, *args: Any, **kwargs: Any) -> Any:
        if inspect.iscoroutinefunction(self._target.__init__):
            instance = self._target.__new__(self._target)
            await finished(instance.__init__, *args, **kwargs)
        else:
            (instance,) = await finished(lambda: (self._target(*args, **kwargs),))  # which may be awaitable itself
        return instance


def wants_rank(code: Any) -> bool:
    """Whether a class, or an object of it, has a `reconfigure` that takes a rank."""
    reconfigure = getattr(code, "reconfigure", None)
    return reconfigure is not None and "rank" in inspect.signature(reconfigure).parameters


async def reconfigure(instance: Any, user_config: Any, ranks: Ranks, threads: SyncThreads) -> None:
    """Call the `reconfigure` of a user's object, where there is one and a user_config; beside no synchronous call.

    Raises:
        Exception: What it raised.
    """
    function = getattr(instance, "reconfigure", None)
    if function is None or user_config is None:
        return
    arguments = {"rank": replica_rank(ranks)} if wants_rank(instance) else {}
    async with threads.alone():
        if returns_at_once(function):
            await finished(function, user_config, **arguments)
        else:
            # On another thread: those for calls are held.
            result = await asyncio.to_thread(guarded, function, user_config, **arguments)
            await finished(lambda: result)


def returns_at_once(function: Callable[..., Any]) -> bool:
    """Whether calling it blocks nobody, since what it does happens later."""
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or inspect.isgeneratorfunction(function)
        or hasattr(function, _RETURNS_AT_ONCE)
    )


def mark_returns_at_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Say so of a function of which Python does not know it, since it returns what an asynchronous one returns."""
    setattr(function, _RETURNS_AT_ONCE, True)
    return function


async def finished(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What user code returns, asynchronous or not.

    Raises:
        Exception: What it raised; never what would end the user's thread, such as `SystemExit`.
    """
    try:
        value = function(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value
    except Exception:
        raise
    except BaseException as error:
        raise as_error(error).with_traceback(error.__traceback__) from None


def guarded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same for what runs on a thread, whose result may be awaitable yet.

    Raises:
        Exception: What it raised; never what would end a thread or an event loop.
    """
    try:
        return function(*args, **kwargs)
    except StopIteration as error:  # means something to whoever awaits it
        raise RuntimeError("user code raised StopIteration") from error
    except Exception:
        raise
    except BaseException as error:
        raise as_error(error).with_traceback(error.__traceback__) from None


def traceback_of(error: BaseException) -> str:
    """The traceback as a user should see it: from their own code on, without ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [index for index, frame in enumerate(frames) if frame.filename.startswith(OUR_FOLDER + os.sep)]
    start = ours[-1] + 1 if ours else 0
    if (
        error.__cause__ is not None
        or (error.__context__ is not None and not error.__suppress_context__)
        or start == len(frames)
    ):
        return "".join(traceback.format_exception(error)).rstrip()
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames[start:])]
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()
