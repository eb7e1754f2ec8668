"""The documentation runs."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rankcore import step
from rankcore.commands import StartReplica
from rankcore.events import ReplicaDied

ROOT = Path(__file__).parents[2]


def test_the_embedding_example_runs_and_prints_what_the_readme_says(capsys):
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    assert len([line for line in example.splitlines() if line]) <= 15
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    assert capsys.readouterr().out == "HEALTHY [0, 1]\n"
    commands = step(names["state"], ReplicaDied(replica_id="llm#1.0", reason="OOM", at=9)).commands
    assert isinstance(commands[0], StartReplica)
    assert (commands[0].replica_id, commands[0].rank) == ("llm#1.2", 0)


def test_the_scenario_in_the_manual_runs(tmp_path):
    scenario = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/simulating.md").read_text(), re.DOTALL).group(1)
    (tmp_path / "scenario.yaml").write_text(scenario)
    command = [sys.executable, "-m", "executors.cli", "simulate", "scenario.yaml", "--json", "-"]
    run = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    assert figures["deployments"][0]["status"] == "HEALTHY"


def told_in_answers(command: str) -> str:
    """What docs/answers.md says that a command prints, without its indentation."""
    page = (ROOT / "docs/answers.md").read_text()
    block = page.partition(f"    $ rankcore {command}\n")[2].partition("\n\n```")[0]
    lines = []
    for line in block.splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line[4:])
    return "\n".join(lines).strip()


def test_the_guide_shows_what_explain_and_plan_print(tmp_path):
    def rankcore(*arguments: str) -> str:
        command = [sys.executable, "-m", "executors.cli", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    (tmp_path / "examples").symlink_to(ROOT / "examples")
    rankcore("simulate", "examples/node-failure-at-peak.yaml", "--journal", "run.jsonl", "--quiet")
    why, change = "explain run.jsonl --replica 'llama-70b#1.15'", "plan examples/node-failure-at-peak.yaml --target 12"
    assert rankcore(*shlex.split(why)) == told_in_answers(why)
    assert rankcore(*shlex.split(change)) == told_in_answers(change)


def test_the_life_cycle_page_is_current():
    checked = subprocess.run([sys.executable, "docs/make_lifecycle.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_link_between_the_pages_leads_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "bench/README.md"]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
