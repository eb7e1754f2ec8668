"""Ray Serve with ranks of rankcore: both rank managers do what docs/ray-serve.md says, called directly and in a running one."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray.serve._private.deployment_state", reason="Ray Serve is not installed: pip install 'ray[serve]'")

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import embed_in_ray_serve as example

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/ray-serve.md").read_text(encoding="utf-8")


def told(title):
    """(what, Serve's, ours) of each row of the first table under a title."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| `([^`]*)` \| `([^`]*)` \|", section, re.MULTILINE)


def printed(title, output):
    """The same of what the example prints."""
    block = output.partition(title)[2].partition("\n\n")[0]
    return [tuple(re.split(r"\s{2,}", line.strip())) for line in block.splitlines()[1:]]


def test_the_page_shows_the_calls_and_what_both_managers_answer():
    assert told("Called directly") == example.side_by_side()
    snippets = re.findall(r"```python\n(def .*?)```", PAGE, re.DOTALL)
    assert snippets == [inspect.getsource(call) for call in example.CALLS]


def test_the_error_of_serve_itself_is_one_only_where_it_is_asked_for():
    with pytest.raises(RuntimeError, match="not assigned"):
        example.DeploymentRankManager().get_replica_rank("nobody")


@pytest.mark.night
@pytest.mark.slow
def test_a_serve_application_on_ray_has_the_ranks_that_the_page_says(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(ROOT / "examples/embed_in_ray_serve.py")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-4000:]
    output = "\n".join(line for line in done.stdout.splitlines() if "(raylet)" not in line)
    assert printed("called directly", output) == told("Called directly")
    assert printed("in a running application", output) == told("In a running application")
