"""`@multiplexed`: one replica serves several models, and keeps those used last. Replica processes import this."""

import asyncio
import functools
import inspect
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakMethod, WeakSet

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.metrics.counts import counts_here
from executors.ray_gpu.user_code import finished

_MARK = "_rankcore_multiplexed"
_numbers = itertools.count()


def multiplexed(function: Callable[..., Any] | None = None, /, *, max_num_models_per_replica: int = 3) -> Any:
    """Let an asynchronous method, or function, that loads a model by its id keep the models that were asked for last.

    A model is loaded once, however many ask for it at the same time. When there is no room the one that was used longest ago
    is given up: its `__del__`, which may be asynchronous, is called before the next is loaded, and has to bear being called
    once more by Python.

    Args:
        function: What loads a model, when there are no options.
        max_num_models_per_replica: How many are kept, 1 or more.

    Raises:
        InvalidDeploymentError: The function is not asynchronous, takes something else than a model's id (after `self`), or the
            number is not what it may be.

    Example:
        @multiplexed(max_num_models_per_replica=2)
        async def model(self, model_id): return load(model_id)

        async def __call__(self, prompt): return (await self.model(get_multiplexed_model_id()))(prompt)
    """
    if type(max_num_models_per_replica) is not int or max_num_models_per_replica < 1:
        found = f"{max_num_models_per_replica!r:.80}"
        raise InvalidDeploymentError(f"max_num_models_per_replica must be an integer from 1 on, got {found}")

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.iscoroutinefunction(function):
            raise InvalidDeploymentError(f"@multiplexed takes an `async def` that loads a model, got {function!r:.80}")
        count = len(inspect.signature(function).parameters)
        if count not in (1, 2):
            raise InvalidDeploymentError(f"@multiplexed takes a function of a model's id, or a method, got {count} parameters")
        # A method and the one that it overrides have models of their own.
        own = f"_rankcore_models_{function.__module__}.{function.__qualname__}_{next(_numbers)}"

        async def load_for(self: Any, model_id: str) -> Any:
            models = self.__dict__.get(own)
            if models is None:
                models = self.__dict__[own] = Models(functools.partial(function, self), max_num_models_per_replica)
            return await models.get(checked_id(model_id))

        async def load_by_id(model_id: str) -> Any:
            models = models_of_function(load, function, max_num_models_per_replica)
            return await models.get(checked_id(model_id))

        load = functools.wraps(function)(load_for if count == 2 else load_by_id)
        setattr(load, _MARK, True)
        return load

    return wrap if function is None else wrap(function)


def checked_id(model_id: object) -> str:
    """A model's id.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(model_id, str) or not model_id:
        raise ValueError(
            f"a model's id must be a non-empty string, got {model_id!r:.80}: call with handle.options(multiplexed_model_id=...)"
        )
    return model_id


_of_functions: "WeakKeyDictionary[Callable[..., Any], Models]" = WeakKeyDictionary()


def models_of_function(load: Callable[..., Any], function: Callable[[str], Any], count_max: int) -> "Models":
    """The models of a function that is no method: of this process, and not of the function, which may be pickled."""
    models = _of_functions.get(load)
    if models is None:
        models = _of_functions[load] = Models(function, count_max)
    return models


def is_multiplexed(target: object) -> bool:
    """Whether a class has a method that `multiplexed` keeps models for."""
    return any(getattr(inspect.getattr_static(target, name), _MARK, False) for name in dir(target))


_everywhere: "WeakSet[Models]" = WeakSet()
_on_change: list[WeakMethod[Callable[[], None]]] = []
"""Of replicas of this process; those that have ended are dropped."""


def loaded_model_ids() -> set[str]:
    """The ids of all models that this process has."""
    return {model_id for models in tuple(_everywhere) for model_id in models.ids}


def when_models_change(tell: Callable[[], None]) -> None:
    """Call this method, on the user's thread, when a model has come or gone, as long as its object is there."""
    _on_change.append(WeakMethod(tell))


def _models_changed() -> None:
    _on_change[:] = [each for each in _on_change if each() is not None]
    for each in _on_change:
        if (tell := each()) is not None:
            tell()


class Models:
    """The models that one replica has, the one used last at the end."""

    def __init__(self, load: Callable[[str], Any], count_max: int) -> None:
        self._load = load
        self._count_max = count_max
        self._models: OrderedDict[str, Any] = OrderedDict()
        self._changing = asyncio.Lock()
        _everywhere.add(self)

    @property
    def ids(self) -> tuple[str, ...]:
        """Of those that it has."""
        return tuple(self._models)

    async def get(self, model_id: str) -> Any:
        """A model; it is loaded where it is not there."""
        counts = counts_here().models
        counts.asked += 1
        if model_id not in self._models:
            async with self._changing:  # one after another: memory for two may not be there
                if model_id not in self._models:
                    while len(self._models) >= self._count_max:
                        counts.unloads, began = counts.unloads + 1, time.monotonic()
                        await _give_up(self._models.popitem(last=False)[1])
                        counts.unloaded.add(time.monotonic() - began)
                    counts.loads, began = counts.loads + 1, time.monotonic()
                    try:
                        self._models[model_id] = await self._load(model_id)
                        counts.loaded.add(time.monotonic() - began)
                    finally:
                        _models_changed()
        self._models.move_to_end(model_id)
        return self._models[model_id]


async def _give_up(model: Any) -> None:
    """Free what it holds, also where somebody still has it. As in Ray Serve, `__del__` has to bear being called twice."""
    end = getattr(model, "__del__", None)
    if end is not None:
        await finished(end)
