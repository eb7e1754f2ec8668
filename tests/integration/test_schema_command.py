"""`rankcore schema`, and the reference: both say what the classes say."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from executors.simulator.scenario.describe import keys_of
from executors.simulator.scenario.schema import of_check, scenario_schema

ROOT = Path(__file__).resolve().parents[2]


def schema_of_command(hash_seed: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "executors.cli", "schema"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=600).stdout


def test_the_command_prints_the_schema_and_nothing_else_whatever_the_hash_seed():
    printed = schema_of_command("0")
    assert json.loads(printed) == scenario_schema()
    assert schema_of_command("1") == printed


def test_the_reference_is_current():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "make_reference.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_key_is_described_wherever_it_stands():
    nameless = []

    def look(schema, path):
        for key, value in schema.get("properties", {}).items():
            if not value.get("description"):
                nameless.append(f"{path}.{key}")
        for key, value in schema.items():
            for index, inner in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(inner, dict):
                    look(inner, f"{path}.{key}[{index}]")

    look(scenario_schema(), "")
    assert nameless == []


def test_the_key_that_chooses_a_fault_says_what_each_kind_does():
    about = scenario_schema()["$defs"]["Fault"]["properties"]["kind"]["description"]
    assert "node_loss: A node goes down, and comes back empty after `back_after_s`, or never." in about


def test_every_class_of_the_schema_is_in_the_reference():
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.page()
    for name, schema in scenario_schema()["$defs"].items():
        if name != "Change":
            for key in schema.get("properties", {}):
                assert f"`{key}`" in page, f"{name}.{key}"


def test_a_check_that_nobody_can_describe_is_refused_where_it_is_used():
    import attrs

    from executors.simulator.fields import Check

    class Unheard(Check):
        allowed = "anything"

        def accepts(self, value: object) -> bool:
            return True

    @attrs.frozen
    class Odd:
        field: int = attrs.field(validator=lambda *_: None)

    with pytest.raises(TypeError, match="field: its validator cannot be asked what it allows"):
        keys_of(Odd)
    with pytest.raises(TypeError, match="no schema for Unheard"):
        of_check(Unheard())
