"""docs/weights.md: what it shows runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/weights.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "512 of 512 bytes" in lines
    assert lines[-1].startswith("HOT WARM ")
