"""Write docs/scenario-reference.md from the classes that read scenario files.

python docs/make_reference.py           write the page
python docs/make_reference.py --check   say whether it is current (exit status 1 if not)
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from executors.simulator.fields import (
    SECONDS_MAX,
    Amounts,
    Check,
    Choice,
    FileTime,
    Flag,
    Integer,
    Number,
    Optional,
    Text,
    TrueOr,
)
from executors.simulator.load.distributions import BY_NAME, ColumnOfFile, Distribution
from executors.simulator.scenario.describe import Key, keys_of, summary_of, without_none
from executors.simulator.scenario.engines import EngineTable, RequestSlo, ScenarioEngine
from executors.simulator.scenario.faults import FAULTS, Fault, FaultRate, FaultTrace
from executors.simulator.scenario.gpu_nodes import NodeList
from executors.simulator.scenario.hardware import NetworkModel, NodeGroup
from executors.simulator.scenario.model import CHANGEABLE, Change, Deployment, Scenario, ScenarioApplication
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.placements import Bundles, Placement, PlacementGroup
from executors.simulator.scenario.requests import REQUEST_SOURCES, DrawnTokens, Requests
from executors.simulator.scenario.traffic import ClientTraffic, Traffic, ZipfTraffic
from executors.simulator.scenario.weights import DisplacementRule, Loading, ScenarioResidency, WeightSizes
from rankcore.autoscaling import AutoscalingSpec

PAGE = Path(__file__).with_name("scenario-reference.md")

HEAD = """\
# Scenario files: the reference

Written from the classes in `executors/simulator/scenario/` by `make docs`; a test checks that this page is current. What a
scenario is for, and what comes out of it, is in [simulating.md](simulating.md); `examples/` has scenarios to start from.

An editor that knows the [YAML language server](https://github.com/redhat-developer/yaml-language-server) completes keys and
marks mistakes, if the schema is written to a file and the first line of the scenario names it:

    rankcore schema > scenario.schema.json

```yaml
# yaml-language-server: $schema=scenario.schema.json
```

## The text of a file

- UTF-8, a regular file of at most 4 MB, one YAML document, nested at most 40 deep, of at most 200,000 values.
- Values are those of YAML 1.2: `1e-4` is a number; `yes`, `1_000` and `12:30` are texts. Numbers with leading zeros, which
  programs disagree about, and numbers beyond 64 bits are refused. There are no tags.
- Anchors (`&x`), aliases (`*x`) and merge keys (`<<: *x`) are read; what they stand for counts in full.
- A name or a text has 1 to 253 printable characters (a deployment's name: 213), no blank at either end; in quotes where it
  looks like a number.
- Each key may stand once, and unknown keys are refused. Durations are in seconds: names that end in `_s` say so.

What is wrong is told in one line with the key path, what was found, what is allowed, and where; nothing is run:

    rankcore: error: deployments[0].target_replicas: expected an integer >= 0, found "four" (scenario.yaml:12)
"""

DURATION = f"""\
A number of seconds from 0 to {SECONDS_MAX:g}, or one of these distributions to draw from, such as
`{{lognormal: {{median: 22.7, p99: 51.9}}}}`:

| distribution | what it is | parameters |
|---|---|---|
"""

MOMENT = f"""\
Seconds from the start of the run, 0 to {SECONDS_MAX:g}; or `busiest_minute`, the start of the minute in which most requests
arrive; or `busiest_minute + 15`, seconds counted from there.
"""

PLACEMENT = """
A deployment is put on a group with `placement: {group: NAME, bundles: [[0, 1], [2, 3]]}`: rank 0 on bundles 0 and 1, its
process on the first of them, rank 1 on 2 and 3. It has as many replicas as ranks, and `target_replicas` is left out. Ranks may
be written out: `bundles: {0: [0, 1], 1: [2, 3]}`. A replica has its bundles whole; together they hold `gpus_per_replica` and
`memory_gb_per_replica`.
What is wrong is told with rank, bundle and group:

    bundle 5 of rank 2 is outside placement group 'pg-llm', which has bundles 0..3
"""

AUTOSCALING = """
The rules A1 to A10 behind these options are in [autoscaling.md](autoscaling.md). `target_replicas` is left out, in the
deployment and in its changes, and a static placement cannot be scaled.
"""

CHANGES = """
Beside these, every key of a [deployment](#deployments) that `DeploymentSpec` has but `name`, from `target_replicas` to
`rollback`: what is not named stays as it is.
"""
NAME = re.compile(r"a (?:name|text) \(1 to \d+ printable characters((?: without [^,]+)?), no blank at either end\)")

TYPES: dict[type[Check], str] = {Integer: "integer", Number: "number", Flag: "flag", Choice: "word", Text: "text"}
TYPES |= {Amounts: "integer or text", TrueOr: "flag or word", FileTime: "number or text"}
TYPES[Placement] = "word, or [mapping](#placement-groups)"
UNIONS = {
    "Distribution": (Distribution, "[duration](#durations)"),
    "Requests": (Requests, "[requests](#requests)"),
    "Fault": (Fault, "[fault](#faults)"),
    "Moment": (Moment, "[moment](#moments)"),
}
RESIDENCY = """
All deployments of a scenario have residency, or none: what happens to them then is `replica_crash` (of the oldest replica on
GPUs), `node_loss`, `controller_crash`, `load_failure` and `memory_shrinks`, and there are no placement groups, fault rates and
fault traces. What it is for is in [simulating.md](simulating.md#weights-that-do-not-all-fit). Scenarios of models, as releases
before had them (`models`, `every_model`, `model_sizes`, `policy`, `dispatch`), are read as `rankcore upgrade` rewrites them.
"""
ENGINES = """
What an engine does is in [simulating.md](simulating.md#engines-under-load). `disaggregation`, `speculative` and
`pipeline_parallel` are refused by name: figures would be of another engine.
"""
EVERY = """
A deployment has the keys of `every_deployment` that it does not have itself; those of `residency` one by one.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, section(2, "A scenario", Scenario), section(2, "Nodes", NodeGroup), section(2, "Network", NetworkModel)]
    parts += [section(2, "Placement groups", PlacementGroup) + PLACEMENT, section(3, "`bundles`", Bundles)]
    parts += [section(2, "Deployments", Deployment) + EVERY, section(3, "`autoscaling`", AutoscalingSpec) + AUTOSCALING]
    parts += [section(3, "`residency`", ScenarioResidency) + RESIDENCY, section(2, "Applications", ScenarioApplication)]
    parts += [section(3, "`request_slo`", RequestSlo), section(2, "Engines", ScenarioEngine) + ENGINES]
    parts.append(section(3, "`tables`", EngineTable))
    parts += [f"## Durations\n\n{DURATION}{distributions()}", f"## Moments\n\n{MOMENT}"]
    parts.append("## Requests\n\n" + one_of(REQUEST_SOURCES, "under `requests:`, one of"))
    parts += [section(3, f"`{name}`", cls) for name, cls in REQUEST_SOURCES.items()]
    parts.append(section(3, "`tokens`", DrawnTokens))
    parts.append("## Faults\n\n" + one_of(FAULTS, "in the list `faults:`, mappings with one of these as `kind`"))
    parts += [section(3, f"`{name}`", cls) for name, cls in FAULTS.items()]
    parts += [section(2, "Fault rates", FaultRate), section(2, "Fault trace", FaultTrace)]
    parts.append(section(2, "Changes", Change, without=CHANGEABLE) + CHANGES)
    parts += [section(2, "`traffic`", Traffic), section(3, "`zipf`", ZipfTraffic), section(3, "`clients`", ClientTraffic)]
    parts += [section(2, "`loading`", Loading), section(2, "`displacement`", DisplacementRule)]
    parts += [section(2, "`node_list`", NodeList), section(2, "`weight_sizes`", WeightSizes)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def section(level: int, title: str, cls: type, without: tuple[str, ...] = ()) -> str:
    """A class: what it is, and its keys."""
    rows = [
        f"| `{key.name}` | {type_of(key)} | {allowed(key)} | {default(key)} | {cell(key.meaning)} |"
        for key in keys_of(cls)
        if key.name not in without
    ]
    table = "\n".join(["| key | type | allowed | default | meaning |", "|---|---|---|---|---|", *rows])
    return f"{'#' * level} {title}\n\n{summary_of(cls)}\n\n{table}\n"


def one_of(classes: Mapping[str, type], where: str) -> str:
    """A list of alternatives."""
    rows = [f"- [`{name}`](#{name}): {summary_of(cls).splitlines()[0]}" for name, cls in classes.items()]
    return f"{where[:1].upper()}{where[1:]}:\n\n" + "\n".join(rows) + "\n"


def distributions() -> str:
    """A row for each distribution."""
    rows = []
    for name, cls in BY_NAME.items():
        parameters = "; ".join(f"`{key.name}`: {allowed(key)}. {key.meaning}" for key in keys_of(cls))
        rows.append(f"| `{name}` | {cell(summary_of(cls))} | {cell(parameters)} |")
    columns = "; ".join(f"`{key.name}`: {key.meaning}" for key in keys_of(ColumnOfFile))
    rows.append(f"| `empirical` | One of the measured values, equally likely. | a list of numbers, or {cell(columns)} |")
    return "\n".join(rows) + "\n"


def type_of(key: Key) -> str:
    """In a word, with a link where there is more to say."""
    check = key.check.check if isinstance(key.check, Optional) else key.check
    if check is not None:
        return TYPES[type(check)]
    annotation, _ = without_none(key.annotation)
    return type_words(annotation)


def type_words(annotation: Any) -> str:
    """Of a type without a check."""
    for union, words in UNIONS.values():
        if annotation == union:
            return words
    if get_origin(annotation) is tuple:
        return f"list of {type_words(get_args(annotation)[0])}"
    links = {NodeGroup: "nodes", NetworkModel: "network", Deployment: "deployments", DrawnTokens: "tokens", Change: "changes"}
    links |= {PlacementGroup: "placement-groups", Bundles: "bundles"}
    links |= {AutoscalingSpec: "autoscaling", ScenarioEngine: "engines", EngineTable: "tables", RequestSlo: "request_slo"}
    links |= {FaultRate: "fault-rates", FaultTrace: "fault-trace"}
    links |= {Traffic: "traffic", ZipfTraffic: "zipf", ClientTraffic: "clients", Loading: "loading", NodeList: "node_list"}
    links |= {ScenarioResidency: "residency", WeightSizes: "weight_sizes", ScenarioApplication: "applications"}
    links |= {DisplacementRule: "displacement"}
    if annotation in links:
        return f"[mapping](#{links[annotation]})"
    return {str: "text", int: "integer", float: "number"}.get(
        annotation, "mapping" if get_origin(annotation) is not None else "anything"
    )


def allowed(key: Key) -> str:
    """What its check takes, in words."""
    if key.check is None:
        return ""
    text = (
        key.check.allowed.removeprefix("an integer ").removeprefix("a number ").removeprefix("from ").removesuffix(", or null")
    )
    text = NAME.sub(r"printable\1", text).replace("e+0", "e")
    return cell(text)


def default(key: Key) -> str:
    """As it would be written; a word where there is none."""
    if key.required:
        return "required"
    return "" if key.default is None else f"`{json.dumps(key.default)}`"


def cell(text: str) -> str:
    """A text that does not end its cell of the table."""
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        print(f"{PAGE.name} is {'current' if current else 'out of date: run make docs'}")
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
