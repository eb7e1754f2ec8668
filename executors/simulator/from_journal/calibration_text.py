"""A calibrated scenario as a file: what differs from what scenarios have anyway, with a word on what is hardly known."""

from collections.abc import Mapping
from typing import Any

import attrs
import yaml

from executors.simulator.from_journal.calibration import Plain, RecordedWorld, scenario_parts
from executors.simulator.from_journal.scenario import DURATIONS
from executors.simulator.scenario.hardware import DEFAULT_LATENCY
from executors.simulator.scenario.model import Deployment
from rankcore import DeploymentSpec

WIDTH = 120
INDENT = "  "


def scenario_text(world: RecordedWorld, calls: Mapping[str, str]) -> str:
    """The scenario of a recording, as YAML.

    Args:
        calls: The file with the calls of each deployment that has some.
    """
    whole, deployments, marks = scenario_parts(world)
    head = f"# What {world.path.name} recorded, as `rankcore calibrate` has measured it. Times count from the deployment on.\n"
    text = head + _dumped({key: value for key, value in whole.items() if value not in ([], ())})
    text += f"# not measured\nnetwork: {{latency_s: {DEFAULT_LATENCY.value:g}}}\n"
    applications: dict[str, list[str]] = {}
    for name, fields in deployments.items():
        application, slash, own = name.rpartition("/")
        body = _deployment({**fields, "name": own}, marks[name], calls.get(name))
        applications.setdefault(application if slash else "", []).append(body)
    if bare := applications.pop("", []):
        text += "deployments:\n" + "".join(_item(each, INDENT) for each in bare)
    if applications:
        text += "applications:\n"
        for application, bodies in applications.items():
            inner = f"{_dumped({'name': application})}deployments:\n" + "".join(_item(each, INDENT) for each in bodies)
            text += _item(inner, INDENT)
    return text


def calls_text(world: RecordedWorld, deployment: str) -> str:
    """Its calls as CSV: when each came, how long a replica took for it, and its tokens where answers said them."""
    rows = [f"{at:.9f},{service_s:.9f}" for at, service_s in zip(*world.arrivals(deployment), strict=True)]
    tokens = world.tokens(deployment)
    if tokens is not None:
        rows = [f"{row},{prompt},{output}" for row, (prompt, output) in zip(rows, tokens, strict=True)]
    return "".join(f"{row}\n" for row in ("at,service" if tokens is None else "at,service,prompt,output", *rows))


def _deployment(fields: Plain, marks: Mapping[str, str], calls: str | None) -> str:
    defaults = {field.name: field.default for cls in (DeploymentSpec, Deployment) for field in attrs.fields(cls) if field.init}
    said = {key: value for key, value in fields.items() if key not in DURATIONS and not _is_usual(key, value, defaults)}
    text = _dumped(said)
    unknown = ""
    for field in DURATIONS:
        if field in fields:
            comment = f"  # {marks[field]}" if field in marks else ""
            text += f"{_dumped({field: fields[field]}).rstrip()}{comment}\n"
        else:
            unknown += f"{field}: {defaults[field].value:g}\n"
    if unknown:
        text += f"# not measured\n{unknown}"
    if calls is not None:
        columns = {"time": "at", "service": "service"}
        text += _dumped({"requests": {"trace": {"file": calls, "time_unit": "s", "origin": "zero", "columns": columns}}})
    return text


def _is_usual(key: str, value: Any, defaults: Mapping[str, Any]) -> bool:
    """Whether a scenario has it so where it says nothing."""
    default = defaults.get(key)
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = getattr(default, "factory")()  # noqa: B009 (typed as a function, but a class)
    return key not in ("name", "target_replicas", "version") and value == default


def _dumped(value: Plain) -> str:
    def line(key: str, each: Any) -> str:
        flow = None if isinstance(each, (list, dict)) else False
        return str(yaml.safe_dump({key: each}, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=WIDTH))

    return "".join(line(key, each) for key, each in value.items())


def _item(text: str, indent: str) -> str:
    """A mapping as an item of a list."""
    lines = text.splitlines()
    return "".join(f"{indent}{'- ' if not number else '  '}{line}\n" for number, line in enumerate(lines))
