"""Tasks of a queue beside calls, with the names of Ray Serve's `schema` and `task_consumer`; a `TaskProcessorAdapter` has it.

    @serve.deployment
    @task_consumer(task_processor_config=TaskProcessorConfig(queue_name="resize", adapter=MyAdapter, adapter_config={...}))
    class Resizes:
        @task_handler(name="resize")
        def resize(self, path): ...

Each replica makes an adapter once its `__init__` is over, has it consume the queue with as many tasks at once as the replica
takes calls, and stops it when it ends. What a task is, how often it is tried again and where it goes then is the adapter's.
There is none for Celery here.
"""

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.sent_code import imported

CONSUMER_CONCURRENCY = 8
_HANDLER = "_rankcore_task"
_ADAPTER = "_rankcore_adapter"


@attrs.frozen(kw_only=True)
class TaskProcessorConfig:
    """Which queue, and what has it.

    Attributes:
        queue_name: Of the tasks.
        adapter: A `TaskProcessorAdapter`, or "module:Class"; there is no default.
        adapter_config: For the adapter.
        max_retries: How often a task is tried again that has failed.
        failed_task_queue_name: Where it goes then; None: nowhere.
        unprocessable_task_queue_name: Where a task goes that cannot be read, or has no handler; None: nowhere.
    """

    queue_name: str
    adapter: Any = None
    adapter_config: Any
    max_retries: int | None = 3
    failed_task_queue_name: str | None = None
    unprocessable_task_queue_name: str | None = None


@attrs.frozen(kw_only=True)
class TaskResult:
    """How a task stands.

    Attributes:
        id: Of the task.
        status: In the adapter's words.
        created_at: In seconds since 1970; None: it does not say.
        result: What it has returned; None: nothing yet.
    """

    id: str
    status: str
    created_at: float | None = None
    result: Any


class TaskProcessorAdapter(ABC):
    """Puts tasks into a queue, and runs those of a queue."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: B027
        """Args: the `TaskProcessorConfig`."""

    @abstractmethod
    def initialize(self, consumer_concurrency: int = CONSUMER_CONCURRENCY) -> None:
        """Connect; so many tasks may run at once."""

    @abstractmethod
    def register_task_handle(self, func: Callable[..., Any], name: str | None = None) -> None:
        """Have tasks of this name, or of the function's, run by a function."""

    @abstractmethod
    def enqueue_task_sync(
        self, task_name: str, args: Any = None, kwargs: dict[str, Any] | None = None, **options: Any
    ) -> TaskResult:
        """Put a task into the queue."""

    @abstractmethod
    def get_task_status_sync(self, task_id: str) -> TaskResult:
        """How a task stands."""

    @abstractmethod
    def start_consumer(self, **kwargs: Any) -> None:
        """Begin to run tasks, on threads of its own; returns at once."""

    @abstractmethod
    def stop_consumer(self, timeout: float = 10.0) -> None:
        """Begin no more, and wait for those that run, so long at most."""

    @abstractmethod
    def cancel_task_sync(self, task_id: str) -> Any:
        """Have a task not run any more."""

    @abstractmethod
    def get_metrics_sync(self) -> dict[str, Any]:
        """What it counts."""

    @abstractmethod
    def health_check_sync(self) -> list[dict[str, Any]]:
        """How its consumers are."""


def instantiate_adapter_from_config(
    task_processor_config: TaskProcessorConfig, consumer_concurrency: int = CONSUMER_CONCURRENCY
) -> TaskProcessorAdapter:
    """The adapter of a config, connected.

    Raises:
        InvalidDeploymentError: The config names none.
        TypeError: What it names is none.
        RuntimeError: It cannot be made, or cannot connect.
    """
    kind = task_processor_config.adapter
    kind = imported(kind) if isinstance(kind, str) else kind
    if kind is None:
        raise InvalidDeploymentError("TaskProcessorConfig.adapter must be a TaskProcessorAdapter or 'module:Class', got None")
    if not callable(kind):
        raise TypeError(f"TaskProcessorConfig.adapter must be a TaskProcessorAdapter or 'module:Class', got {kind!r:.80}")
    name = getattr(kind, "__name__", "adapter")
    try:
        adapter = kind(task_processor_config)
        if not callable(getattr(adapter, "register_task_handle", None)):
            raise TypeError(f"{name} must be a TaskProcessorAdapter, got {adapter!r:.80}")
        adapter.initialize(consumer_concurrency)
    except TypeError:
        raise
    except Exception as error:
        raise RuntimeError(f"{name} cannot be made, or cannot connect: {error}") from error
    return adapter  # type: ignore[no-any-return]


def task_consumer(*, task_processor_config: TaskProcessorConfig) -> Callable[[type], type]:
    """Let the replicas of a class run the tasks of a queue, by those of its methods that are `task_handler`."""

    def wrap(target: type) -> type:
        class Consumer(target):  # type: ignore[misc] # whatever class it is
            def initialize_callable(self, consumer_concurrency: int) -> None:
                adapter = instantiate_adapter_from_config(task_processor_config, consumer_concurrency)
                setattr(self, _ADAPTER, adapter)
                for name, method in inspect.getmembers(target, inspect.isfunction):
                    if task := getattr(method, _HANDLER, ""):
                        adapter.register_task_handle(getattr(self, name), task)
                adapter.start_consumer()

            def __del__(self) -> None:
                adapter = self.__dict__.pop(_ADAPTER, None)
                if adapter is not None:
                    adapter.stop_consumer()
                if hasattr(target, "__del__"):
                    target.__del__(self)

        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(Consumer, name, getattr(target, name))
        return Consumer

    return wrap


def task_handler(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Let a method run tasks of a name; None: of its own.

    Raises:
        ValueError: The name is no non-empty string.
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise ValueError(f"a task's name must be a non-empty string, got {name!r:.80}")

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def handle(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        @functools.wraps(function)
        async def handle_later(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        handler = handle_later if inspect.iscoroutinefunction(function) else handle
        setattr(handler, _HANDLER, name or function.__name__)
        return handler

    return wrap if function is None else wrap(function)
