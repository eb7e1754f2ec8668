"""How callers use a fleet: deploy, scale and evict models, ask where they are, and send them requests."""

import asyncio
import pickle
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, RayActorError

from executors.ray_gpu import detached
from executors.ray_gpu.connection import ask, connect, default_namespace
from executors.ray_gpu.errors import (
    CallCancelledError,
    InvalidCallError,
    InvalidDeploymentError,
    NoAnswerError,
    NotRunningError,
    UnknownNameError,
)
from executors.ray_gpu.requests.loops import refuse_to_block
from executors.ray_gpu.residency.declaration import Model
from executors.ray_gpu.residency.options import FleetOptions
from executors.ray_gpu.residency.packing import pack_model
from executors.ray_gpu.residency.sending import Sender
from executors.ray_gpu.residency.words import (
    Answer,
    Declared,
    FleetStanding,
    ModelStanding,
    pack,
    pack_error,
    unpack,
    unpack_error,
)
from executors.torch_weights.files import WeightsFiles, look_at
from rankcore.dispatching import ServingSpec, Status
from rankcore.residency import Level, ModelSpec

CONTROLLER = "rankcore-fleet"
ASK_AGAIN_S = 0.1
RESTART_S = 120.0
"""For so long the controller may be away."""


def start(options: FleetOptions | None = None, *, namespace: str | None = None, journal: str | None = None) -> None:
    """Have a fleet: the one that runs in this namespace, or a new one, on a cluster that is started if none runs.

    Args:
        options: Which memory it may use; of a fleet that runs already they stay as they are.
        namespace: [default: $RANKCORE_NAMESPACE or "rankcore"]
        journal: A file on the controller's node for all that the fleet is told and decides; each controller adds its epoch to
            the name, and `executors.fleet.replay_fleet` runs it again. None: nothing is written.

    Raises:
        NotRunningError: The cluster cannot be reached.
    """
    connect(start=True)
    _start_controller(namespace or default_namespace(), options or FleetOptions(), journal)


def deploy(*models: Model, replicas: int = 1, replace: bool = False, namespace: str | None = None) -> None:
    """Have so many replicas of each model HOT: one request, so that none of them displaces another.

    Returns at once; `where` shows how it comes on, and requests wait. Code, options or weights that have changed since a
    former call take effect, the replicas being loaded again, in the runtime environment of the job that this process is. The
    weights are read here, and what is loaded elsewhere is compared with them.

    Args:
        replace: Whether a model may replace one of another class that has its name, perhaps another program's.

    Raises:
        NameInUseError: A name belongs to a model of another class. Nothing was deployed.
        WeightsFileError: The weights of one cannot be read. Nothing was deployed.
        InvalidSpecError: A field of one is not what it may be. Likewise.
        InvalidDeploymentError: One name is there twice. Likewise.
        NotRunningError: The cluster cannot be reached.
    """
    for each in models:
        if not isinstance(each, Model):
            raise InvalidDeploymentError(f"residency.deploy takes models, got {each!r:.80}")
    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise InvalidDeploymentError(f"models must have names of their own, got {name!r} {names.count(name)} times")
    checked = [_Checked.of(model) for model in models]
    connect(start=True)
    controller = _start_controller(namespace or default_namespace(), FleetOptions(), None)
    _ask(controller, "deploy", tuple(each.declared(replicas) for each in checked), replace)


class _Checked(NamedTuple):
    """A model that is what it may be, with what its weights are here and now: on every node they have to be the same."""

    model: Model
    files: WeightsFiles
    spec: ModelSpec
    serving: ServingSpec

    @staticmethod
    def of(model: Model) -> "_Checked":
        files = look_at(model.weights)
        try:
            pack(model)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            found = f"code, args and kwargs of model {model.name!r} must be what can be pickled: {error}"
            raise InvalidDeploymentError(found) from error
        return _Checked(model, files, model.spec(files), model.serving())

    def declared(self, replicas: int) -> Declared:
        """As it is sent; the job has to be connected, since the model takes its runtime environment along."""
        return Declared(pack_model(self.model, self.files.declared()), self.spec, self.serving, replicas)


def scale(model: str, replicas: int, *, namespace: str | None = None) -> None:
    """Have so many replicas of a model HOT; 0: none, until somebody asks for it.

    Raises:
        UnknownNameError: Nobody has deployed it.
        NotRunningError: There is no fleet.
    """
    _ask(_controller(namespace), "scale", model, replicas)


def evict(model: str | None = None, *, replica_id: str | None = None, keep: str = "WARM", namespace: str | None = None) -> None:
    """Take a model, or one of its replicas, off the GPU, once its requests are finished.

    Args:
        keep: "WARM": its weights stay in the node's memory if there is room; "COLD": they do not.

    Raises:
        UnknownNameError: There is none.
        NotRunningError: There is no fleet.
    """
    if (model is None) == (replica_id is None):
        raise InvalidCallError("evict takes either a model or a replica_id")
    if not isinstance(keep, str) or keep not in (Level.WARM, Level.COLD):
        raise InvalidCallError(f"keep must be 'WARM' or 'COLD', got {keep!r}")
    _ask(_controller(namespace), "evict", model, replica_id, keep)


def where(model: str, *, namespace: str | None = None) -> ModelStanding:
    """Where a model's replicas are, why, and what they have displaced.

    Raises:
        UnknownNameError: Nobody has deployed it.
        NotRunningError: There is no fleet.
    """
    found = standing(namespace=namespace)
    for each in found.models:
        if each.model == model:
            return each
    known = ", ".join(each.model for each in found.models) or "none"
    raise UnknownNameError(f"there is no model {model!r}; deployed are: {known}")


def standing(*, namespace: str | None = None) -> FleetStanding:
    """All nodes and models.

    Raises:
        NotRunningError: There is no fleet.
    """
    found: FleetStanding = _ask(_controller(namespace), "standing")
    return found


def shutdown(*, namespace: str | None = None) -> None:
    """End the fleet and all its replicas. There may be none."""
    try:
        controller = _controller(namespace)
    except NotRunningError:
        return
    _ask(controller, "shut_down")
    ray.kill(controller, no_restart=True)


class ModelHandle:
    """Sends requests to one model.

        response = ModelHandle("tiny").remote("hello")
        print(response.result())

    A request for a model that is not HOT waits until it is; `response.statuses()` says what it waits for.
    """

    def __init__(
        self, model: str, *, method: str = "__call__", timeout_s: float | None = None, namespace: str | None = None
    ) -> None:
        self.model = model
        self._method = method
        self._timeout_s = timeout_s
        self._namespace = namespace

    def options(self, *, method: str | None = None, timeout_s: float | None = None) -> "ModelHandle":
        """The same model, another method, or another time after which a request has failed."""
        return ModelHandle(
            self.model,
            method=method or self._method,
            timeout_s=timeout_s if timeout_s is not None else self._timeout_s,
            namespace=self._namespace,
        )

    def remote(self, *args: Any, **kwargs: Any) -> "ModelResponse":
        """Send a request."""
        call = pack((self._method, args, kwargs))
        return ModelResponse(_controller(self._namespace), self.model, call, self._timeout_s)


class ModelResponse:
    """The answer of one request, which may not be there yet."""

    def __init__(self, controller: Any, model: str, call: bytes, timeout_s: float | None) -> None:
        self.request_id = uuid.uuid4().hex
        self._controller = controller
        self._request = (model, call)
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._sending = threading.Lock()
        self._sent = self._given_up = self._again = False
        self._future: Future[Answer] = Future()
        _sender().submit(self._ask)

    def result(self, timeout_s: float | None = None) -> Any:
        """The answer. Not in asynchronous code, which awaits the response itself.

        Raises:
            InvalidCallError: An event loop runs in this thread, which would be blocked.
            TimeoutError: There is none yet; it may be asked for again.
            CallError: There will be none: too many wait, the deadline has passed, the replica was lost, the model has no
                room or cannot be loaded; the text says why.
            Exception: What user code raised, as itself, with the remote traceback as its cause.
        """
        refuse_to_block("response.result()", "`await response`")
        try:
            answer = self._future.result(timeout_s)
        except FutureTimeoutError:
            raise TimeoutError(f"no answer within {timeout_s:g} s: statuses() says what the request waits for") from None
        return _opened(answer)

    def __await__(self) -> Any:
        """As `result`."""
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        return _opened(await asyncio.wrap_future(self._future))

    def statuses(self) -> Iterator[Status]:
        """What the request waits for, each time that changes, until it is answered.

        Raises:
            InvalidCallError: An event loop runs in this thread, which would be blocked.
            NoAnswerError: The controller hangs. The request may be answered yet.
        """
        refuse_to_block("response.statuses()", "a thread of its own, such as `asyncio.to_thread` gives, and `await response`")
        revision = 0
        while not self._future.done():
            try:
                news = ask(self._controller, "told", self.request_id, revision)
            except NoAnswerError:
                raise
            except NotRunningError:
                time.sleep(ASK_AGAIN_S)
                continue
            if news is not None:
                revision, status = news
                yield status
            elif not self._future.done():
                time.sleep(ASK_AGAIN_S)

    def cancel(self) -> None:
        """Wait no longer: the replica is told, and `result` raises CallCancelledError."""
        with self._sending:
            self._given_up = True
            if self._sent:
                self._controller.cancel.remote(self.request_id)

    def _ask(self) -> None:
        try:
            with self._sending:
                if self._given_up:
                    self._over(Answer(error=pack_error(CallCancelledError("the request was given up"), "")))
                    return
                left_s = None if self._deadline is None else max(0.001, self._deadline - time.monotonic())
                asked = self._controller.ask.remote(self.request_id, *self._request, left_s, self._again)
                self._sent = True
            asked.future().add_done_callback(self._heard)
        except Exception as error:  # whatever Ray raises
            self._over(error)

    def _heard(self, asked: "Future[Answer]") -> None:
        """Whoever loses the controller asks the next one, which knows what has been begun."""
        try:
            self._over(asked.result())
        except ActorUnavailableError:
            self._again = True
            _sender().again(self._ask, ASK_AGAIN_S)
        except RayActorError as error:
            self._over(NotRunningError(f"the fleet is gone: {error}"))
        except Exception as error:  # whatever Ray raises
            self._over(error)

    def _over(self, outcome: Answer | Exception) -> None:
        if isinstance(outcome, Answer):
            self._future.set_result(outcome)
        else:
            self._future.set_exception(outcome)
        _sender().done()


def _opened(answer: Answer) -> Any:
    if answer.error is not None:
        raise unpack_error(answer.error)
    return unpack(answer.value or b"")


_senders: list[Sender] = []


def _sender() -> Sender:
    if not _senders:
        _senders.append(Sender())
    return _senders[0]


def _controller(namespace: str | None) -> Any:
    connect(start=False)
    name = namespace or default_namespace()
    try:
        return ray.get_actor(CONTROLLER, namespace=name)
    except ValueError:
        raise NotRunningError(
            f"no fleet of models runs in namespace {name!r} of this cluster: `rankcore deploy module:model` starts one"
        ) from None


def _ask(controller: Any, method: str, *args: object) -> Any:
    """Call the controller and wait; whatever is asked here may be asked twice, and is while it restarts.

    Raises:
        NoAnswerError: It has not answered for `RESTART_S`.
    """
    deadline = time.monotonic() + RESTART_S
    while True:
        try:
            return ask(controller, method, *args, timeout_s=max(ASK_AGAIN_S, deadline - time.monotonic()))
        except NotRunningError as error:
            if not isinstance(error.__context__, ActorUnavailableError) or time.monotonic() > deadline:
                raise
        time.sleep(ASK_AGAIN_S)


def _start_controller(namespace: str, options: FleetOptions, journal: str | None) -> Any:
    kind, retries = "executors.ray_gpu.residency.controller:FleetController", {"max_task_retries": 0}
    controller = detached.started(kind, CONTROLLER, namespace, retries, namespace, pack(options), journal)
    _ask(controller, "hello")
    return controller
