"""The documentation runs."""

import re
import subprocess
import sys
from pathlib import Path

from rankcore import step
from rankcore.commands import StartReplica
from rankcore.events import ReplicaDied

ROOT = Path(__file__).parents[2]


def test_the_embedding_example_runs_and_prints_what_the_readme_says(capsys):
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    assert len(example.splitlines()) <= 15
    names = {}
    exec(compile(example, "README.md", "exec"), names)
    assert capsys.readouterr().out == "HEALTHY [0, 1]\n"
    commands = step(names["state"], ReplicaDied(replica_id="llm#1.0", reason="OOM", at=9)).commands
    assert isinstance(commands[0], StartReplica)
    assert (commands[0].replica_id, commands[0].rank) == ("llm#1.2", 0)


def test_the_life_cycle_page_is_current():
    checked = subprocess.run([sys.executable, "docs/make_lifecycle.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_link_between_the_pages_leads_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "bench/README.md"]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
