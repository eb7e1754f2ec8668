"""What a user asks of deployments that `rankcore run --executor local` runs: functions with the names of `executors.ray_gpu`.

Each such command is the controller of one deployment, and whoever asks finds it by its folder. A node is a part of one
command's machine (`--node`): what is said of a name is said to all commands of the namespace that have a node so called.
"""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import msgspec

from executors import operations
from executors.controller import STATUS, read_status
from executors.deployment_ids import meant_by, split
from executors.engine.recent_notes import Notes
from executors.log_lines import LogLine, tail
from executors.notes_followed import Asking, followed
from executors.ray_gpu import errors
from executors.ray_gpu.errors import (
    InvalidCallError,
    InvalidDeploymentError,
    NoAnswerError,
    NotRunningError,
    UnknownNameError,
    not_one,
)
from executors.ray_gpu.overview import CordonedNode, Status
from executors.run.door import ANSWER_S, ask
from executors.run.files import LOG, DamagedFileError
from executors.run.folders import is_locked, namespace_folder
from rankcore.errors import RankcoreError
from rankcore.values import ReplicaId

DEFAULT_NAMESPACE = "rankcore"
LOOK_EVERY_S = 0.05
LEAST_S = 2.0
"""A controller that is told to end has so long to say that it has heard it, however short its end may be."""


def status(*, namespace: str | None = None, timeout_s: float = ANSWER_S) -> Status:
    """What runs, and how it is, of all commands of a namespace in one; epoch and process are those of the first.

    Args:
        timeout_s: So long each of them may be silent.

    Raises:
        NotRunningError: Nothing runs there.
        NoAnswerError: One of them has not answered in time.
    """
    first, *others = _statuses(namespace, timeout_s)
    all_of = (first, *others)
    return attrs.evolve(
        first,
        deployments={name: info for each in all_of for name, info in each.deployments.items()},
        cordons=tuple(_in_one(found) for found in _by_node(node for each in all_of for node in each.cordons)),
    )


def config_in_force(*, namespace: str | None = None) -> dict[str, Any]:
    """What is in force, as a file of applications says it."""
    found = [_asked(folder, "config", as_type=dict[str, Any]) for folder in _there_are(namespace).values()]
    return {"applications": sorted(found, key=lambda each: str(each["name"]))}


def scale(name: str, num_replicas: int, *, stop_first: Iterable[ReplicaId] = (), namespace: str | None = None) -> None:
    """As `executors.ray_gpu.scale`; so are all that follow."""
    _change(name, {"target_replicas": num_replicas}, namespace, tuple(stop_first))


def restart(name: str, *, token: str | None = None, namespace: str | None = None) -> None:
    """Replace every replica of a deployment once, a few at a time, by one of the same version (V10)."""
    _change(name, operations.restarted(token), namespace)


def pause(name: str, *, namespace: str | None = None) -> None:
    """Let an update reach no further rank (V13)."""
    _change(name, operations.paused(), namespace)


def promote(name: str, replicas: int | str = "100%", *, namespace: str | None = None) -> None:
    """Let an update reach so many replicas in all, those with the highest ranks."""
    reach = operations.checked_reach(replicas)
    deployment, folder = _one(name, namespace)
    world_size = _asked(folder, "status", as_type=Status).deployments[deployment].world_size
    _asked(folder, "change", operations.promoted(reach, world_size), ())


def resume(name: str, *, namespace: str | None = None) -> None:
    """Let an update that was paused, or held back by a partition, reach all ranks."""
    _change(name, operations.resumed(), namespace)


def rollback(name: str, *, namespace: str | None = None) -> None:
    """Go back to what was healthy last, in all ranks.

    Raises:
        InvalidDeploymentError: It was never healthy, or with nothing else than what is wanted now; or its file holds other
            code by now.
    """
    _asked(_one(name, namespace)[1], "rollback")


def retry(name: str, *, ranks: Iterable[int] = (), namespace: str | None = None) -> None:
    """Try again now what failed (V19)."""
    named = operations.checked_ranks(ranks)
    _asked(_one(name, namespace)[1], "retry", named)


def evict(name: str, *, keep: str = "WARM", namespace: str | None = None) -> None:
    """Local replicas have their weights for life.

    Raises:
        InvalidDeploymentError: Always.
    """
    found = _one(name.partition("#")[0], namespace)[0]
    raise InvalidDeploymentError(
        f"{found} has no residency: its replicas have their weights for life; "
        f"`rankcore scale {found} 0 --executor local` ends them"
    )


def delete(name: str, *, namespace: str | None = None, timeout_s: float | None = None) -> None:
    """Have the command that runs an application, or a deployment, end it and itself, as by Ctrl-C there; wait until it has.

    Raises:
        UnknownNameError: There is neither, or there are several deployments of that name.
        TimeoutError: It has not ended in time; it goes on ending.
    """
    there_are = _there_are(namespace)
    of_application = [each for each in there_are if split(each)[0] == name]
    _end({there_are[each] for each in of_application or [_one(name, namespace)[0]]}, timeout_s)


def shutdown(*, namespace: str | None = None, timeout_s: float | None = None) -> None:
    """End all commands of a namespace, as by Ctrl-C in each, and wait until they have. Where nothing runs, nothing happens.

    Raises:
        TimeoutError: As `delete`.
    """
    _end(set(controllers(namespace).values()), timeout_s)


def notes(*, follow: bool = False, namespace: str | None = None) -> Iterator[dict[str, Any]]:
    """What was decided lately, and why."""

    def asking(folder: Path) -> Asking:
        return lambda after: _asked(folder, "notes", after, as_type=Notes)

    return followed(lambda: {str(each): asking(each) for each in sorted(set(_there_are(namespace).values()))}, follow)


def replica_logs(name: str, *, lines: int = 100, follow: bool = False, namespace: str | None = None) -> Iterator[LogLine]:
    """The last lines that the replicas of a deployment have printed, to one file for all of them, and then what they print.

    Args:
        name: Of an application or a deployment.
        lines: So many.
        follow: Whether to go on with what comes, until the deployment has ended.

    Raises:
        UnknownNameError: Nothing is called so, or several deployments are, or a rank or replica is asked for.
    """
    there_are = _there_are(namespace)
    if "#" in name:
        raise UnknownNameError(f"local replicas of a deployment print to one file: ask for {name.partition('#')[0]!r}")
    found = [each for each in there_are if split(each)[0] == name] or [_one(name, namespace)[0]]
    return chain.from_iterable(_lines(each, there_are[each], lines, follow) for each in found)


def _lines(deployment: str, folder: Path, lines: int, follow: bool) -> Iterator[LogLine]:
    texts, end = tail(folder / LOG, lines)
    while True:
        yield from (LogLine(deployment, None, "out", each) for each in texts)
        if not follow or not is_locked(folder):
            return
        time.sleep(LOOK_EVERY_S)
        texts, end = tail(folder / LOG, lines, end)


def propose_defragmentation(name: str | None = None, *, namespace: str | None = None) -> Any:
    """Local replicas have their weights for life.

    Raises:
        InvalidDeploymentError: Always.
    """
    found = ", ".join(_there_are(namespace)) if name is None else _one(name, namespace)[0]
    raise InvalidDeploymentError(f"{found} has no residency: its replicas have their weights for life, and nothing is moved")


def requests_under_way(name: str | None = None, *, namespace: str | None = None) -> Any:
    """Local replicas take no requests.

    Raises:
        InvalidCallError: Always, where there is what is named.
    """
    there_are = _there_are(namespace)
    of_application = [each for each in there_are if name is None or split(each)[0] == name]
    raise _no_requests(", ".join(of_application or [_one(name or "", namespace)[0]]))


def cancel_request(request: str, *, reason: str = "", namespace: str | None = None) -> None:
    """Local replicas take no requests.

    Raises:
        InvalidCallError: Always, where something runs.
    """
    raise _no_requests(", ".join(_there_are(namespace)))


def cancel_waiting(name: str, *, reason: str = "", namespace: str | None = None) -> Any:
    """Likewise."""
    return requests_under_way(name, namespace=namespace)


def _no_requests(deployments: str) -> InvalidCallError:
    return InvalidCallError(
        f"local replicas of {deployments} take no requests, so that none is under way: `rankcore logs NAME --executor local` "
        "prints what they do, and `rankcore stop REPLICA --executor local` ends one; calls are for --executor ray"
    )


def _end(folders: Collection[Path], timeout_s: float | None) -> None:
    for folder in folders:
        _asked(folder, "delete", timeout_s=ANSWER_S if timeout_s is None else min(ANSWER_S, max(LEAST_S, timeout_s)))
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while left := [each for each in folders if is_locked(each)]:
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"{len(left)} of the commands have not ended within {timeout_s:g} s")
        time.sleep(LOOK_EVERY_S)


def update(name: str, *, namespace: str | None = None, **options: Any) -> None:
    """Change options of a deployment in place: `user_config`, `num_replicas`, time-outs, ..."""
    from executors.ray_gpu.declaration import SPEC_OPTIONS
    from executors.ray_gpu.serve_options import in_our_words

    options = in_our_words(options)
    changeable = {option: field for option, field in SPEC_OPTIONS.items() if option != "version"}
    for option in options:
        if option not in changeable:
            raise InvalidDeploymentError(
                f"update cannot change {option!r} of local replicas; it can change: {', '.join(sorted(changeable))}"
            )
    _change(name, {changeable[option]: value for option, value in options.items()}, namespace)


def stop_replicas(replica_ids: Iterable[ReplicaId], *, namespace: str | None = None) -> None:
    """Stop these replicas; each is replaced, and its replacement has its rank."""
    named = operations.checked_ids("stop_replicas", replica_ids)
    _ask_of_replicas("stop_replicas", named, namespace)


def replace_replicas(
    replica_ids: Iterable[ReplicaId], *, deadline_s: float | None = None, namespace: str | None = None
) -> None:
    """Replace these replicas within the budget, each by a successor with its rank that has a place before it goes (V14)."""
    named, for_s = operations.checked_ids("replace_replicas", replica_ids), operations.checked_deadline(deadline_s)
    _ask_of_replicas("replace_replicas", named, namespace, for_s)


def cordon(node: str, *, namespace: str | None = None) -> CordonedNode:
    """Let nothing new come to a node; nobody there is touched (V14)."""
    return _ask_of_node("cordon", node, namespace)


def uncordon(node: str, *, namespace: str | None = None) -> CordonedNode:
    """Cordon and drain of a node are over; who was told to stop by then still stops."""
    return _ask_of_node("uncordon", node, namespace)


def drain(node: str, *, deadline_s: float | None = None, reason: str = "drain", namespace: str | None = None) -> CordonedNode:
    """Have all replicas leave a node, each once its successor has a place elsewhere (V14), or by the deadline (V15)."""
    for_s, why = operations.checked_deadline(deadline_s), operations.checked_reason(reason)
    return _ask_of_node("drain", node, namespace, for_s, why)


# -- whom names mean


def controllers(namespace: str | None = None) -> dict[str, Path]:
    """The folders of the deployments that run, by their ids."""
    found: dict[str, Path] = {}
    for file in sorted(namespace_folder(namespace or default_namespace()).glob(f"*/{STATUS}")):
        try:
            if is_locked(file.parent):
                found |= dict.fromkeys(read_status(file).deployments, file.parent)
        except (OSError, RankcoreError):  # it has ended since, or has just begun
            continue
    return found


Speaker: TypeAlias = Literal["answers", "is silent", "is gone"]
"""A controller, as to where its status is from: itself, or what it wrote down last."""


def last_statuses(namespace: str) -> list[tuple[Status | DamagedFileError, Speaker, str]]:
    """How each is, or was when its controller ended or wrote that down last; what the controller does, and why it is silent."""
    found: list[tuple[Status | DamagedFileError, Speaker, str]] = []
    for file in sorted(namespace_folder(namespace).glob(f"*/{STATUS}")):
        speaker: Speaker = "is silent" if is_locked(file.parent) else "is gone"
        why = ""
        try:
            if speaker == "is silent":
                try:
                    found.append((_asked(file.parent, "status", as_type=Status), "answers", ""))
                    continue
                except NoAnswerError as error:  # it begins, or ends, or is stopped
                    why = str(error)
            found.append((read_status(file), speaker, why))
        except FileNotFoundError:  # it has ended since
            continue
        except DamagedFileError as error:
            found.append((error, speaker, why))
    return found


def default_namespace() -> str:
    """Where no other is named."""
    return os.environ.get("RANKCORE_NAMESPACE") or DEFAULT_NAMESPACE


def _there_are(namespace: str | None) -> dict[str, Path]:
    if not (found := controllers(namespace)):
        name = namespace or default_namespace()
        raise NotRunningError(f"nothing runs on this machine in namespace {name!r}: see `rankcore run --help`")
    return found


def _one(name: str, namespace: str | None) -> tuple[str, Path]:
    """The one deployment that has this name."""
    there_are = _there_are(namespace)
    found = meant_by(name, there_are)
    if len(found) != 1:
        raise UnknownNameError(not_one("deployment", name, found, there_are))
    return found[0], there_are[found[0]]


def _statuses(namespace: str | None, timeout_s: float = ANSWER_S) -> list[Status]:
    return [_asked(folder, "status", as_type=Status, timeout_s=timeout_s) for folder in _there_are(namespace).values()]


# -- asking


def _asked(folder: Path, verb: str, *arguments: Any, as_type: Any = None, timeout_s: float = ANSWER_S) -> Any:
    """What a controller answers, or the error that it says."""
    answer = ask(folder, verb, arguments, timeout_s)
    if "error" in answer:
        kind = getattr(errors, str(answer.get("kind")), InvalidDeploymentError)
        if not (isinstance(kind, type) and issubclass(kind, errors.RayExecutorError)):
            kind = InvalidDeploymentError
        raise kind(answer["error"])
    return None if as_type is None else msgspec.convert(answer["answer"], as_type)


def _change(name: str, fields: Mapping[str, Any], namespace: str | None, stop_first: tuple[ReplicaId, ...] = ()) -> None:
    _asked(_one(name, namespace)[1], "change", fields, stop_first)


def _ask_of_replicas(verb: str, named: tuple[str, ...], namespace: str | None, *arguments: Any) -> None:
    """Each controller about its own; nobody is asked where one of them cannot be found."""
    statuses = {folder: _asked(folder, "status", as_type=Status) for folder in _there_are(namespace).values()}
    known = {
        replica.replica_id: folder
        for folder, status in statuses.items()
        for info in status.deployments.values()
        for replica in info.replicas
    }
    meant = operations.replicas_meant(named, {each: each for each in known})
    for folder in dict.fromkeys(known[each] for each in meant):
        _asked(folder, verb, tuple(each for each in meant if known[each] == folder), *arguments)


def _ask_of_node(verb: str, node: str, namespace: str | None, *arguments: Any) -> CordonedNode:
    """All who have a node of that name."""
    found: list[CordonedNode] = []
    refusals: list[UnknownNameError] = []
    for folder in _there_are(namespace).values():
        try:
            found.append(_asked(folder, verb, node, *arguments, as_type=CordonedNode))
        except UnknownNameError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    return _in_one(tuple(found))


def _by_node(nodes: Iterable[CordonedNode]) -> Iterator[tuple[CordonedNode, ...]]:
    found: dict[str, list[CordonedNode]] = {}
    for each in nodes:
        found.setdefault(each.node_id, []).append(each)
    return (tuple(each) for _, each in sorted(found.items()))


def _in_one(nodes: tuple[CordonedNode, ...]) -> CordonedNode:
    """Of nodes that are called the same: what was said of the first, and who is there."""
    return attrs.evolve(nodes[0], replicas=tuple(replica for each in nodes for replica in each.replicas))
