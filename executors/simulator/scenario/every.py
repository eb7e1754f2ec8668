"""What a scenario says once for several deployments, written out: applications, `every_deployment`, a file of sizes.

All of it is done with plain data, before any class is built, so that each deployment is checked as if it had been written out.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from executors.deployment_ids import DEFAULT_APPLICATION, MARKS
from executors.simulator.fields import FieldProblem, Text

Path: TypeAlias = tuple[str | int, ...]
Origins: TypeAlias = dict[int, Path]
"""Where each deployment stands in the file, by its place among all."""

NAME = Text(without=MARKS)


def expanded(data: Any, names_in: Callable[[object], list[str]], by_id: bool) -> tuple[Any, Origins]:
    """The same scenario with all deployments in one list, each with all of its keys; what is no scenario stays.

    Args:
        names_in: Reads the names of `weight_sizes`.
        by_id: Whether deployments outside of `applications` may have ids, `application/deployment`, for names.

    Raises:
        FieldProblem: Applications are not what they may be, a name is an id, or the file of sizes is not what it may be.
    """
    if not isinstance(data, Mapping):
        return data, {}
    every, sizes = data.get("every_deployment"), data.get("weight_sizes")
    written = data.get("deployments")
    found: list[tuple[Path, Any]] = []
    if isinstance(written, list):
        found += [(("deployments", index), each) for index, each in enumerate(written)]
        if not by_id:
            _refuse_ids(written)
    elif written is not None:
        return data, {}
    found += _of_applications(data.get("applications"))
    if not found and sizes is not None:
        found = [(("weight_sizes",), {"name": name}) for name in names_in(sizes)]
    needs: dict[str, Any] = {"residency": {}} if sizes is not None else {}
    whole = {key: value for key, value in data.items() if key not in ("applications", "every_deployment")}
    if found or written is not None:
        whole["deployments"] = [_merged(needs, _merged(every, each)) for _, each in found]
    return whole, {index: path for index, (path, _) in enumerate(found)}


def _refuse_ids(deployments: list[Any]) -> None:
    for index, each in enumerate(deployments):
        name = each.get("name") if isinstance(each, Mapping) else None
        if isinstance(name, str) and "/" in name:
            application = json.dumps(name.partition("/")[0], ensure_ascii=False)
            allowed = f"a name without /, as a deployment of application {application} stands in applications[].deployments"
            raise FieldProblem(("deployments", index, "name"), name, allowed)


def _of_applications(applications: Any) -> list[tuple[Path, Any]]:
    if applications is None:
        return []
    if not isinstance(applications, list):
        raise FieldProblem(("applications",), applications, "a list")
    found: list[tuple[Path, Any]] = []
    for index, application in enumerate(applications):
        path: Path = ("applications", index)
        if not isinstance(application, Mapping) or application.keys() != {"name", "deployments"}:
            raise FieldProblem(path, application, "a mapping with name, deployments")
        name, members = application["name"], application["deployments"]
        if not NAME.accepts(name):
            raise FieldProblem((*path, "name"), name, NAME.allowed_instead_of(name))
        if not isinstance(members, list) or not members:
            raise FieldProblem((*path, "deployments"), members, "a list with at least one deployment")
        prefix = "" if name == DEFAULT_APPLICATION else f"{name}/"
        for place, each in enumerate(members):
            named = isinstance(each, Mapping) and isinstance(each.get("name"), str)
            found.append(((*path, "deployments", place), {**each, "name": prefix + each["name"]} if named else each))
    return found


def _merged(every: Any, own: Any) -> Any:
    """With the keys of `every` that it does not have itself, those of `residency` one by one."""
    if not isinstance(every, Mapping) or not isinstance(own, Mapping):
        return own
    whole = {**every, **own}
    if isinstance(every.get("residency"), Mapping) and isinstance(own.get("residency"), Mapping):
        whole["residency"] = {**every["residency"], **own["residency"]}
    return whole
