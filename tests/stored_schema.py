"""What texts and messages of this code have, as `tests/golden/schema.json` keeps it, and which change of it is legal.

python -m tests.stored_schema        # after a legal change: writes it anew, and refuses otherwise
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import attrs
import msgspec

from executors.engine.deployments import Recovered
from executors.ray_gpu import messages, names
from executors.ray_gpu.extras import RayExtras
from executors.ray_gpu.requests import frames
from executors.ray_gpu.requests.packing import About
from executors.ray_gpu.user_code import Code
from executors.ray_gpu.worker import messages as worker_messages
from executors.simulator.scenario.model import Scenario
from rankcore import DeploymentSpec
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.records import Record
from rankcore.codec import FORMAT
from rankcore.codec_plans import MISSING, fields_of
from rankcore.events import NodeCordoned, NodeDrainRequested, ReplaceRequested
from rankcore.routing import RoutingSpec

GOLDEN = Path(__file__).parent / "golden"
STORED = (
    *(DeploymentSpec, AutoscalingSpec, RoutingSpec, Recovered, Record, RayExtras),
    *(NodeCordoned, NodeDrainRequested, ReplaceRequested),
)
SCENARIOS = (Scenario,)
MESSAGES = (
    *(messages.Change, messages.Outcome, messages.Endpoint, messages.Routes, messages.Ingress, messages.Report),
    *(Code, About),
    *(worker_messages.Load, worker_messages.Leave, worker_messages.Progressed, worker_messages.MoveEnded),
    worker_messages.WorkerReport,
)
NO_KINDS = ("NUMBER_BYTES", "CONNECTION", "PIECE_BYTES")
FRAMES = [name for name, value in vars(frames).items() if name.isupper() and type(value) is int and name not in NO_KINDS]

Classes = dict[str, dict[str, dict[str, Any]]]
"""The fields of each class, each with its "type", and its "default" and "since" where it has them."""


def schema() -> dict[str, Any]:
    """Of the code as it is."""
    return {
        "format": list(FORMAT),
        "stored": described(STORED),
        "scenarios": described(SCENARIOS),
        "protocol": names.PROTOCOL,
        "messages": described(MESSAGES),
        "frames": {name: getattr(frames, name) for name in FRAMES},
    }


def described(roots: tuple[Any, ...]) -> Classes:
    """These classes and all that their fields may hold."""
    found: Classes = {}
    waiting = list(roots)
    while waiting:
        cls = waiting.pop()
        if cls.__name__ not in found:
            fields = fields_of(cls)
            found[cls.__name__] = {field.name: _described(field) for field in fields}
            waiting += [each for field in fields for each in _records_in(field.hint)]
    return dict(sorted(found.items()))


def _described(field: Any) -> dict[str, Any]:
    said = {"type": _type_text(field.hint)}
    if field.default is not MISSING:
        said["default"] = "made" if isinstance(field.default, attrs.Factory) else repr(field.default)
    if field.since is not None:
        said["since"] = list(field.since)
    return said


def _type_text(hint: Any) -> str:
    """The same with any version of Python, and wherever the classes live."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " | ".join(map(_type_text, args))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, args))
    if args:
        return f"{origin.__name__}[{', '.join(map(_type_text, args))}]"
    names = {NoneType: "None", Ellipsis: "..."}
    return hint if isinstance(hint, str) else names.get(hint) or hint.__name__


def _records_in(hint: Any) -> Iterator[Any]:
    for each in get_args(hint):
        yield from _records_in(each)
    if isinstance(hint, type) and (attrs.has(hint) or issubclass(hint, msgspec.Struct) or hasattr(hint, "_fields")):
        yield hint


def verdict(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What is to be done about the difference of two schemas, which begins with LEGAL where it is; "": there is none."""
    return _stored_verdict(old, new) or _messages_verdict(old, new) or _scenarios_verdict(old, new)


LEGAL = "This is legal: "
REGENERATE = "`python -m tests.stored_schema` writes it to tests/golden/schema.json"


def _stored_verdict(old: dict[str, Any], new: dict[str, Any]) -> str:
    added, broken = changes(old["stored"], new["stored"], may_widen=True)
    (major, minor), now = old["format"], new["format"]
    upgrader, pair = f"upgrade_{major}_to_{major + 1}", f"tests/golden/{major}_to_{major + 1}/"
    if now == [major + 1, 0]:
        return f"{LEGAL}a new major, with {upgrader} in rankcore/upgrade.py, and texts for it in {pair}; {REGENERATE}"
    if broken:
        return (
            f"{'; '.join(broken)}: stored texts would not be read any more. The one legal choice: FORMAT = ({major + 1}, 0) "
            f"in rankcore/codec.py, `{upgrader}` in rankcore/upgrade.py, and in {pair} a text of before beside what becomes of "
            "it. (A field with a default that is added needs none of it.)"
        )
    undeclared = [name for name, said in added.items() if said is not None and said.get("since") != [major, minor + 1]]
    if added and (now != [major, minor + 1] or undeclared):
        return (
            f"{', '.join(added)}: added, with a default. The one legal choice: FORMAT = ({major}, {minor + 1}) "
            f"in rankcore/codec.py, `metadata=since({major}, {minor + 1})` at each such field, and {REGENERATE}"
        )
    if added:
        return f"{LEGAL}{', '.join(added)}: added as it should be; {REGENERATE}"
    return f"FORMAT is {now}, and nothing has changed since {[major, minor]}" if now != [major, minor] else ""


def _messages_verdict(old: dict[str, Any], new: dict[str, Any]) -> str:
    added, broken = changes(old["messages"], new["messages"])
    frames_now = {name: number for name, number in new["frames"].items() if name in old["frames"]}
    if frames_now != old["frames"]:
        broken = [*broken, "frames have other numbers"]
    if broken and new["protocol"] == old["protocol"]:
        return (
            f"{'; '.join(broken)}: processes of this PROTOCOL would not understand each other any more. The one legal choice: "
            "PROTOCOL one more in executors/ray_gpu/names.py, which makes replicas of before an outdated generation; what a "
            "controller says to any replica (query, announce, drain, watch, the Report's old fields) has to stay. Then "
            f"{REGENERATE}"
        )
    if broken or added or new["frames"] != old["frames"] or new["protocol"] != old["protocol"]:
        return f"{LEGAL}messages have changed: {', '.join([*broken, *added]) or 'frames, or PROTOCOL'}; {REGENERATE}"
    return ""


def _scenarios_verdict(old: dict[str, Any], new: dict[str, Any]) -> str:
    added, broken = changes(old["scenarios"], new["scenarios"])
    if broken:
        return (
            f"{LEGAL[:-2]} where scenario files that say it otherwise are still read, for one release at least, and CHANGELOG "
            f"says so: {'; '.join(broken)}; {REGENERATE}"
        )
    return f"{LEGAL}{', '.join(added)}: added to scenarios, with a default; {REGENERATE}" if added else ""


def changes(old: Classes, new: Classes, *, may_widen: bool = False) -> tuple[dict[str, dict[str, Any] | None], list[str]]:
    """What is new and may be left out of a text, by name (None: a class, or a field that takes more than it did), and what else
    is not as it was.

    Args:
        may_widen: Whether a field may take more than it did: texts of before are read as they were.
    """
    added: dict[str, dict[str, Any] | None] = {name: None for name in new if name not in old}
    broken = [f"{name} is gone" for name in old if name not in new]
    for name in old.keys() & new.keys():
        before, after = old[name], new[name]
        broken += [f"{name}.{field} is gone" for field in before if field not in after]
        for field, said in after.items():
            if field not in before and "default" in said:
                added[f"{name}.{field}"] = said
            elif field not in before:
                broken.append(f"{name}.{field} is new and has no default")
            elif may_widen and _is_wider(before[field], said):
                added[f"{name}.{field}"] = None
            elif said != before[field]:
                broken.append(f"{name}.{field} was {_said(before[field])} and is {_said(said)}")
    return dict(sorted(added.items())), sorted(broken)


def _is_wider(before: dict[str, Any], after: dict[str, Any]) -> bool:
    was, now = (set(said["type"].split(" | ")) for said in (before, after))
    return was < now and {**before, "type": ""} == {**after, "type": ""}


def _said(said: dict[str, Any]) -> str:
    return said["type"] + (f" = {said['default']}" if "default" in said else "")


def main() -> None:
    """Write the schema anew, where that is legal."""
    path, now = GOLDEN / "schema.json", schema()
    if path.exists():
        found = verdict(json.loads(path.read_text()), now)
        if not found.startswith(LEGAL[:-2]):
            sys.exit(found or 0)
    path.write_text(text_of(now))


def text_of(found: dict[str, Any]) -> str:
    """A line for each field, so that a difference of two versions shows which."""
    lines = []
    for key, value in found.items():
        if key in ("stored", "scenarios", "messages"):
            classes = (
                f" {json.dumps(name)}: {{\n"
                + ",\n".join(f"  {json.dumps(field)}: {json.dumps(said)}" for field, said in fields.items())
                + "\n }"
                for name, fields in value.items()
            )
            lines.append(f"{json.dumps(key)}: {{\n" + ",\n".join(classes) + "\n}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    main()
