"""Executors by name: what a distribution brings so that `rankcore run --executor NAME` finds the executor in it.

A distribution names an `ExecutorPlugin` in the group of entry points `rankcore.executors`:

    [project.entry-points."rankcore.executors"]
    nomad = "rankcore_nomad.plugin:PLUGIN"

`ray`, `local` and `slurm` come by the same door, and win over nobody: a name that two distributions have is refused. Entry
points are read when a name is asked for, and only the module that has this name is imported. Those of rankcore itself stand in
`BUILT_IN` too, which equals them: a checkout that was installed before it had them finds its own executors nevertheless.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Protocol, get_origin

import attrs
import msgspec

from executors.base import Executor
from rankcore import DeploymentSpec, __version__
from rankcore.errors import RankcoreError
from rankcore.values import NodeId, ReplicaId

API = 1
GROUP = "rankcore.executors"
OURS = "rankcore"
BUILT_IN = {
    "local": "executors.local.plugin:PLUGIN",
    "ray": "executors.ray_gpu.plugin:PLUGIN",
    "slurm": "executors.slurm.plugin:PLUGIN",
}
NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
CHECK_S = 2.0


class ControllerFence(Protocol):
    """What outlives the controllers of a deployment: the newest epoch and the record, and the right of the newest to act.

    `executors.run.fence` says what it is for. One that is not a folder of this machine keeps the same order: who raises it
    does so alone, and whoever acts inside `upheld` has acted before, or does not act.
    """

    @property
    def where(self) -> Path | str:
        """Where the record is, for people."""

    def newest(self) -> int:
        """The epoch of the newest controller; 0: there was none."""

    def raise_to(self, epoch: int) -> None:
        """Begin an epoch, if it is newer than all before: compare and set.

        Raises:
            FenceError: It is not (`executors.run.fence.FenceError`).
        """

    def upheld(self) -> AbstractContextManager[None]:
        """What is done inside is done before any newer controller begins, or not at all.

        Raises:
            FenceError: A newer one has begun.
        """

    def read(self) -> bytes | None:
        """The record, as it was written; None: there is none."""

    def write(self, text: str | None) -> None:
        """Replace the record whole, or remove it, behind the fence.

        Raises:
            FenceError: As `upheld`.
            OSError: It cannot be written. It is as it was.
        """


class OpenExecutor(Executor, Protocol):
    """The executor of one controller, which `executors.controller` runs."""

    def survivors(self) -> Sequence[ReplicaId]:
        """Those that have not ended, as far as is known; at first all that earlier controllers have left behind."""

    def nodes(self) -> Sequence[NodeId]:
        """Those there are now; asked after each `wait`."""

    def close_nodes(self, nodes: frozenset[NodeId]) -> None:
        """Nothing new comes to these any more, unless a command names them, and to all others it may."""

    def pid_of(self, replica_id: ReplicaId) -> int | None:
        """The number of its process on this machine, for people; None: it has none here."""

    def wait(self, timeout_s: float, files: Sequence[int] = ()) -> None:
        """Return when there may be something to tell, when one of these files can be read, or after that time."""

    def close(self) -> None:
        """Let go of everything; replicas live on."""


@attrs.frozen(kw_only=True)
class ExecutorPlugin:
    """What an entry point names.

    Attributes:
        api: Which release of this contract it keeps; 1 is this one.
        options: A msgspec struct with defaults: what `--option NAME=VALUE` may set.
        check: Why it cannot run here, in one line such as "no sbatch on PATH"; None: it can. Within 2 seconds.
        open: Begins a controller's executor: of a target (MODULE:APP), for a spec, which is what is wanted now whenever it is
            called, with an epoch and a fence that is up already. None: it has a controller of its own, see `functions`.
        fence: Of a namespace and a deployment; None: files of this machine (`executors.run.folder_fence`).
        bench: A bench for the conformance kit, as a context manager, of a folder that is gone at its end and of options; None:
            `rankcore conform` has none.
        functions: A module with functions of the names of `executors.ray_gpu`, by which commands ask its controller; None: they
            ask the commands of this machine that run controllers (`executors.run.api`).
    """

    api: int
    options: type[msgspec.Struct]
    check: Callable[[Any], str | None]
    open: Callable[[str, Callable[[], DeploymentSpec], int, ControllerFence, Any], OpenExecutor] | None = None
    fence: Callable[[str, str, Any], ControllerFence] | None = None
    bench: Callable[[Path, Any], AbstractContextManager[Any]] | None = None
    functions: str | None = None


class PluginError(RankcoreError):
    """There is no such executor, or it cannot be used, or its options are wrong."""


@attrs.frozen(order=True)
class Found:
    """An entry point, which nobody has imported yet."""

    name: str
    distribution: str
    version: str
    value: str

    def __str__(self) -> str:
        return f"{self.name!r} ({self.distribution} {self.version})"


def found() -> tuple[Found, ...]:
    """All that are installed, by name; those with names that no executor may have too."""
    return tuple(sorted(_ours_and_others()))


def _ours_and_others() -> Iterator[Found]:
    for name, value in BUILT_IN.items():
        yield Found(name, OURS, __version__, value)
    for each in metadata.entry_points(group=GROUP):
        dist = each.dist
        if dist is not None and dist.name.lower() != OURS:
            yield Found(each.name, dist.name, dist.version, each.value)


def named(name: str) -> tuple[Found, ExecutorPlugin]:
    """The executor of a name. Nothing else is imported.

    Raises:
        PluginError: There is none, or it cannot be used.
    """
    there_are = found()
    meant = [each for each in there_are if each.name == name and NAME.fullmatch(name)]
    if not meant:
        names = sorted({each.name for each in there_are if NAME.fullmatch(each.name)})
        raise PluginError(f"no executor {name[:40]!r}: installed are {', '.join(names)}")
    return meant[0], loaded(meant[0], meant)


def loaded(one: Found, of_that_name: Sequence[Found]) -> ExecutorPlugin:
    """Import what an entry point names.

    Args:
        of_that_name: All entry points that have it.

    Raises:
        PluginError: It cannot be used; the text says why, and whose it is.
    """
    if not NAME.fullmatch(one.name):
        raise PluginError(f"executor {one}: expected a name of a to z, 0 to 9 and -, with at most 32 characters")
    if len(of_that_name) > 1:
        whose = " and ".join(f"{each.distribution} {each.version}" for each in of_that_name)
        raise PluginError(f"executor {one.name!r} is of {whose}: uninstall one of them")
    module, _, attribute = one.value.partition(":")
    try:
        plugin = getattr(import_module(module), attribute)
    except Exception as error:  # whatever the module does when it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise PluginError(f"executor {one} cannot be imported: {reason}") from error
    if (speaks := getattr(plugin, "api", None)) != API and isinstance(speaks, int):
        raise PluginError(f"executor {one} speaks api {speaks}, this rankcore {API}")
    if not isinstance(plugin, ExecutorPlugin):
        raise PluginError(f"executor {one}: expected an ExecutorPlugin at {one.value}, found {type(plugin).__name__}")
    return plugin


def options_of(name: str, plugin: ExecutorPlugin, said: Sequence[str]) -> Any:
    """What `--option NAME=VALUE`, given so often, make of an executor's options. A tuple is written with commas.

    Raises:
        PluginError: One is unknown, is given twice, or is not what it may be.
    """
    fields = {each.name: each.type for each in msgspec.structs.fields(plugin.options)}
    values: dict[str, object] = {}
    for each in said:
        key, equals, text = each.partition("=")
        if not equals or key not in fields:
            has = f"NAME=VALUE with one of {', '.join(fields)}" if fields else "none, since it has no options"
            raise PluginError(f"--option of executor {name!r}: expected {has}, found {each[:80]!r}")
        if key in values:
            raise PluginError(f"--option {key}: expected it once, found it again")
        kind = fields[key]
        try:
            values[key] = msgspec.convert(text.split(",") if get_origin(kind) is tuple else text, kind, strict=False)
        except msgspec.ValidationError as error:
            raise PluginError(f"--option {key}: {error}, found {text[:80]!r}") from None
    try:
        return plugin.options(**values)
    except (TypeError, ValueError) as error:  # one without a default is missing, or two do not go together
        raise PluginError(f"--option of executor {name!r}: {error}") from None


def checked(plugin: ExecutorPlugin, options: Any) -> str | None:
    """Why it cannot run here; None: it can. What takes too long, or raises, cannot be relied on."""
    said: list[str | None] = []

    def ask() -> None:
        try:
            said.append(plugin.check(options))
        except Exception as error:  # the plugin's own
            said.append(f"its check has failed: {type(error).__name__}: {error}")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(CHECK_S)
    return said[0] if said else f"its check has not answered within {CHECK_S:g} s"
