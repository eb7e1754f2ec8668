"""Everything the Ray executor raises on purpose.

    RayExecutorError            a `rankcore.RankcoreError`, as all others that follow
    ├── MissingExtraError       a package of an extra of rankcore, such as Ray, is not installed; an ImportError too
    ├── NotInReplicaError       a replica's context was asked for outside a replica
    ├── InvalidDeploymentError  what is to be deployed is not what it may be
    │   └── NameInUseError          its name belongs to something else
    ├── ConflictError           another writer came first: what is in force is not what this one has read
    ├── UnknownNameError        there is no such deployment, or several
    ├── DeploymentFailedError   a deployment did not come up; the text has the replica's traceback
    ├── NotRunningError         Ray, or the controller, does not run or cannot be reached
    │   ├── VersionMismatchError    it runs in another version
    │   ├── UntrustedAddressError   its address may be another user's, who would get the token
    │   └── NoAnswerError           it runs, and has not answered in time
    ├── CallError               a call through a handle has no result
    │   ├── ReplicaGoneError        its replica died, or had to leave the GPU, while it ran
    │   ├── CallCancelledError      its caller gave it up
    │   ├── DeadlineError           it was not answered in time
    │   ├── OverloadedError         too many calls wait already
    │   ├── UnavailableError        nobody is there to take it, nor about to be; the text says why
    │   ├── InvalidCallError        it asks for what cannot be had
    │   └── RemoteError             it raised something that cannot be sent; the text has the traceback
    └── ProcessGroupError       a torch process group could not be formed

A call whose user code raises hands that exception to the caller, with the remote traceback as its cause; it is a
`ray.exceptions.RayTaskError` too (`requests.task_errors`). All of them are names of `executors.ray_gpu`.
"""

from collections.abc import Collection, Iterable

from rankcore.errors import FieldError, RankcoreError

SAYS_MORE = "`rankcore status` says more"

EXTRAS = {"ray": "ray", "starlette": "http", "uvicorn": "http", "grpc": "grpc", "torch": "torch", "safetensors": "torch"}
"""Which extra of rankcore a package comes with."""


class RayExecutorError(RankcoreError):
    """Base class: the text is what to tell a user, and says what to do.

    Attributes:
        field: The argument that is refused, as Python or the core calls it; None: it is about no argument.
    """

    def __init__(self, *args: object, field: str | None = None) -> None:
        super().__init__(*args)
        self.field = field

    @property
    def message(self) -> str:
        """The text."""
        return str(self)


class MissingExtraError(RayExecutorError, ModuleNotFoundError):
    """A package is not installed that comes with an extra of rankcore."""

    def __init__(self, text: str, *, name: str | None = None) -> None:
        super().__init__(text)
        self.name = name


class NotInReplicaError(RayExecutorError):
    """A replica's context was asked for outside a replica."""


class InvalidDeploymentError(RayExecutorError):
    """What is to be deployed is not what it may be."""


class NameInUseError(InvalidDeploymentError):
    """The deployment's name belongs to something else."""


class ConflictError(RayExecutorError):
    """Another writer came first: what is in force is not what this one has read. Nothing was changed.

    Attributes:
        expected: The revision that was read.
        revision: The one in force, which has won.
    """

    def __init__(self, expected: str, revision: str) -> None:
        super().__init__(expected, revision)
        self.expected = expected
        self.revision = revision

    def __str__(self) -> str:
        return (
            f"revision must be {self.revision}, which is in force, got {self.expected}: another writer came first; "
            "look at what is wanted now, and ask again"
        )


class UnknownNameError(RayExecutorError):
    """There is no such deployment or application, or there are several that have the name."""


class DeploymentFailedError(RayExecutorError):
    """A deployment did not come up. The text has the traceback of a replica that failed, where there is one."""


class NotRunningError(RayExecutorError):
    """Ray, or the controller, does not run or cannot be reached."""


class VersionMismatchError(NotRunningError):
    """Ray, or the controller, runs in another version."""


class UntrustedAddressError(NotRunningError):
    """The address of the cluster may be another user's. The text says who could have written it, and what to do."""


class NoAnswerError(NotRunningError, TimeoutError):
    """The controller has not answered in time. What it was asked for may be done yet."""


class CallError(RayExecutorError):
    """A call through a handle has no result."""


class ReplicaGoneError(CallError):
    """The replica died, or had to leave the GPU, while it ran the call, which may or may not have had its effect."""


class CallCancelledError(CallError):
    """The caller gave the call up."""


class DeadlineError(CallError):
    """The call was not answered by its deadline. It may have had its effect."""


class OverloadedError(CallError):
    """Too many calls wait already (`max_queued_requests`).

    Attributes:
        retry_after_s: When it may be worth to try again.
        status_code: Over HTTP.
    """

    def __init__(self, text: str, retry_after_s: float = 1.0, status_code: int = 503) -> None:
        super().__init__(text, retry_after_s, status_code)
        self.retry_after_s = retry_after_s
        self.status_code = status_code

    def __str__(self) -> str:
        return str(self.args[0])


class UnavailableError(CallError):
    """No replica takes calls, nor is about to: the deployment has failed. The text has the traceback, where there is one.

    Attributes:
        retry_after_s: When it may be worth to try again; None: once something else is deployed.
    """

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text, retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def reason(self) -> str:
        """What is wrong and, in a line of its own, why; of a traceback, which is user code's, only where that is."""
        what, _, why = str(self).strip().partition("\n")
        if not why:
            return what
        return f"{what}\n{why}" if "\n" not in why and "Traceback" not in why else f"{what}\n{SAYS_MORE}"


class InvalidCallError(CallError):
    """A handle was asked for what cannot be had."""


class RemoteError(CallError):
    """User code raised something that cannot be sent. The text has the remote traceback."""


class RemoteTraceback(Exception):
    """Shows, as the cause of a user's exception, where in the replica it was raised."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class ProcessGroupError(RayExecutorError):
    """A torch process group could not be formed."""


def not_one(kind: str, name: str, found: Collection[str], there_are: Iterable[str]) -> str:
    """What to say of a name that means none of what there is, or several."""
    if found:
        return f"{kind} {name!r} may be any of: {', '.join(sorted(found))}"
    return f"there is no {kind} {name!r}; there is: {', '.join(sorted(there_are)) or 'none'}"


def refused(error: FieldError) -> InvalidDeploymentError:
    """What the core refuses, to whoever has asked for it."""
    return InvalidDeploymentError(str(error), field=error.field)


def as_error(error: BaseException) -> Exception:
    """What user code raised, as an error: `SystemExit` and `CancelledError` would go further than to whoever asked."""
    return error if isinstance(error, Exception) else RemoteError(f"user code raised {type(error).__name__}: {error}")


def explained(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """What a package that is missing is to be installed by; as it is where it is none of an extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    text = f"{package} is not installed, which executors.ray_gpu needs: pip install 'rankcore[{EXTRAS[package]}]'"
    return MissingExtraError(text, name=error.name)
