"""Texts of older formats, made into texts of this one: specs, records, requests; no others are kept longer than a release.

    text = upgraded(path.read_text())        # whatever format it has
    record = from_json(text, Recovered)

Each major format has one function here that makes what the next major has of it, from plain data to plain data; a text goes
through as many as it is old. A minor needs none: what a text does not name is at its default. `tests/golden/` has a pair of
texts for each function, the old one written by a release that had it.
"""

from collections.abc import Callable
from typing import Any

from rankcore.autoscaling import AutoscalingSpec
from rankcore.codec import FORMAT, Plain, check_head, from_plain, read_object, to_plain, write_object
from rankcore.errors import CodecError, shown
from rankcore.routing import RoutingSpec
from rankcore.spec import DeploymentSpec

OLDEST = 3


def upgraded(text: str) -> str:
    """A text of this format, or of one that an older release wrote, in this format. A text that is in it comes back as it is.

    Raises:
        CodecError: It has no format, or one that cannot be upgraded; says which this release reads.
    """
    data = read_object(text)
    if "format" not in data and data.keys() >= RECORD_OF_3:
        data = {"format": OLDEST, "type": "Record", **data}
    if "format" not in data and data.get("type") in STORED_SINCE_5_2:
        return upgraded(write_object({"format": (5, 2), **{key: value for key, value in data.items() if key != "release"}}))
    found = data.get("format")
    if type(found) is int and OLDEST <= found <= FORMAT_BEFORE_MINORS:
        if data.get("type") not in STORED_BEFORE_MINORS:
            raise CodecError(
                f"{shown(data.get('type'))} of format {found} cannot be upgraded: only {', '.join(STORED_BEFORE_MINORS)} are "
                "kept for longer than the release that wrote them"
            )
    elif type(found) is list and [type(each) for each in found] == [int, int] and found[0] in UPGRADES:
        found = found[0]
    else:
        if check_head(data) is None:
            raise CodecError("this text is for the release of rankcore that wrote it, and has no format to be upgraded from")
        return text
    for major in range(found, FORMAT[0]):
        data = UPGRADES[major](data)
    return write_object({**data, "format": FORMAT})


FORMAT_BEFORE_MINORS = 4
"""Of texts whose format was one number."""

STORED_BEFORE_MINORS = ("DeploymentSpec", "Recovered", "Record")

STORED_SINCE_5_2 = ("NodeCordoned", "NodeDrainRequested", "ReplaceRequested")
"""They were kept before, and named the release that wrote them, as events do that are not kept."""

RECORD_OF_3 = {"spec", "previous", "class_name", "app_name"}
"""A record of a deployment on Ray had no format of its own: its specs were texts within the text, and each of them had one."""


def upgrade_3_to_4(data: Plain) -> Plain:
    """Specs and local records are as they were. One of Ray becomes a record like any other."""
    return _ray_record(data) if data.get("type") == "Record" else data


def _ray_record(data: Plain) -> Plain:
    record = {**data, "spec": _spec(data.get("spec"))}
    if data.get("previous") is not None:
        record["previous"] = _spec(data["previous"])
    if "routing" in data:  # else it was stored before there were any
        record["routing"] = _fields(data["routing"], RoutingSpec)
    if data.get("autoscaling") is not None:
        record["autoscaling"] = _fields(data["autoscaling"], AutoscalingSpec)
    return record


def _spec(text: Any) -> Plain:
    return _fields({key: value for key, value in read_object(text).items() if key not in ("format", "type")}, DeploymentSpec)


def _fields(data: Plain, kind: Any) -> Plain:
    """What a record holds of a class: read once, so that an upgraded text is one that can be read."""
    if type(data) is not dict:
        raise CodecError(f"an object with the fields of {kind.__name__} is expected, got {shown(data)}")
    plain = to_plain(from_plain({**data, "type": kind.__name__}, kind))
    del plain["type"]
    return plain


def upgrade_4_to_5(data: Plain) -> Plain:
    """Specs and local records are as they were. One of Ray becomes one of a cluster, with what Ray needs beside as extras."""
    return _cluster_record(data) if data.get("type") == "Record" else data


def _cluster_record(data: Plain) -> Plain:
    """What the user applied last was not stored: it is taken for what is in force."""
    old = data.get("spec")
    name = old.get("name") if type(old) is dict else None
    application = data.get("app_name")
    if type(old) is not dict or type(name) is not str or type(application) is not str:
        raise CodecError(f"a record with a spec and the name of an application is expected, got {shown(data)}")
    application = _part(application) or "default"
    deployment = f"{application}/{_part(name.removeprefix(f'{application}/'))}"

    def named(part: Any) -> Any:
        return {**part, "name": deployment} if type(part) is dict and part.get("name") == name else part

    policy = data.get("scaling_policy")
    extras = {
        "type": "RayExtras",
        "class_name": data.get("class_name"),
        "spares": data.get("spares", 0),
        "policy": policy,
        "id_on_ray": name if name != deployment else None,
    }
    applied: Plain = {
        "ranks": named(old),
        "autoscaling": data.get("autoscaling"),
        "policy": policy.get("name") if type(policy) is dict else None,
        "routing": named(data.get("routing")),
        "demand": {},
        "extras": extras,
    }
    kept: Plain = {key: data[key] for key in ("deleting", "failed", "trouble", "route_prefix", "is_ingress") if key in data}
    record: Plain = {"type": "Record", "deployment": deployment, "number": 0, "applied": applied, "spec": named(old), **kept}
    return {**record, "previous": named(data.get("previous"))}


def _part(name: str) -> str:
    """A name of before names were parts of ids, as such a part."""
    return "".join("." if each in "/#@" else each for each in name)


UPGRADES: dict[int, Callable[[Plain], Plain]] = {3: upgrade_3_to_4, 4: upgrade_4_to_5}
"""By the major that they upgrade from."""
