"""Published traces by name: a preset stands for the keys with which a file of that kind is read."""

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Preset:
    """How files of one publication are read.

    Attributes:
        about: What it is of, and its licence.
        keys: Of whoever reads it; those that it does not have are left out.
        optional: Which of `columns` not every file has.
        ignored: A column that may mean something, and is not read.
    """

    about: str
    keys: Mapping[str, Any]
    optional: tuple[str, ...] = ()
    ignored: str | None = None


_AZURE = {
    "time_unit": "iso",
    "columns": {"time": "TIMESTAMP", "prompt": "ContextTokens", "output": "GeneratedTokens"},
}

REQUESTS = {
    "azure-llm-2023": Preset(about="LLM requests of Azure, November 2023 (CC BY 4.0)", keys=_AZURE),
    "azure-llm-2024": Preset(about="LLM requests of Azure, a week of May 2024 (CC BY 4.0)", keys=_AZURE),
    "mooncake": Preset(
        about="requests of Kimi, in JSON lines (Apache-2.0)",
        keys={"time_unit": "ms", "columns": {"time": "timestamp", "prompt": "input_length", "output": "output_length"}},
        ignored="hash_ids",
    ),
    "burstgpt": Preset(
        about="requests to ChatGPT and GPT-4 of a campus, at whole seconds (CC BY 4.0)",
        keys={
            "time_unit": "s",
            "jitter_s": 1.0,
            "where": {"Response tokens": {"min": 1}},  # 0 tokens: it failed
            "columns": {
                "time": "Timestamp",
                "prompt": "Request tokens",
                "output": "Response tokens",
                "session": "Session ID",
                "service": "Elapsed time",
            },
        },
        optional=("session", "service"),
    ),
    "alibaba-openb-pods": Preset(
        about="pods of a GPU cluster: created, and deleted (Apache-2.0)",
        keys={
            "time_unit": "s",
            "columns": {"time": "creation_time", "service": "deletion_time"},
            "service_unit": "end",
        },
    ),
}
RATES = {
    "servegen": Preset(
        about="rates of clients of a production service, in windows of 600 s (Apache-2.0)",
        keys={
            "client_column": "client_id",
            "start_column": "timestamp",
            "rate_column": "rate",
            "cv_column": "cv",
            "window_s": 600.0,
        },
    ),
}
FAULTS = {
    "stepfun-faults": Preset(
        about="node faults of a training cluster of 400 nodes, in days (Apache-2.0)",
        keys={
            "node_column": "node_id",
            "time_column": "event_time",
            "event_column": "event_type",
            "down": "fault_start",
            "up": "fault_end",
            "time_unit": "days",
            "cluster_size": 400,
        },
    ),
    "bamboo-spot": Preset(
        about="spot nodes of a cloud, added and removed, in ms (MIT)",
        keys={
            "node_column": "node",
            "time_column": "time",
            "event_column": "event",
            "down": "remove",
            "up": "add",
            "time_unit": "ms",
            "map": "slots",
        },
    ),
}
PRESETS: Mapping[str, Preset] = {**REQUESTS, **RATES, **FAULTS}


def with_preset(data: Mapping[str, Any], known: tuple[str, ...]) -> Mapping[str, Any]:
    """The keys of the preset that these keys name, and these, which win; those of `columns` and `where` one by one."""
    name = data.get("preset")
    preset = PRESETS.get(name) if isinstance(name, str) else None
    if preset is None:
        return data
    keys = {key: value for key, value in preset.keys.items() if key in known}
    inner = {
        key: {**keys[key], **value}
        for key, value in data.items()
        if isinstance(value, Mapping) and isinstance(keys.get(key), Mapping)
    }
    return {**keys, **data, **inner}
