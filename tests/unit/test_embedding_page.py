"""docs/embedding.md: what it shows of models in one process runs, and it names every error that a call may end with."""

import re
from pathlib import Path
from typing import Any

from executors.inproc import InprocCluster

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "embedding.md").read_text()


def test_the_program_on_the_page_gives_the_answers_that_it_says():
    [program] = [
        each for each in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "InprocCluster" in each
    ]
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["answers"] == ["hello by rank 0", "1 + 1 by rank 0"]
    assert names["states"][0] in ("QUEUED", "PROVISIONING")
    assert "PROVISIONING" in names["states"]
    assert names["states"][-2:] == ["LOADING", "READY"]


def test_the_page_names_what_a_call_may_end_with():
    raised = re.findall(r"(\w+Error):", (InprocCluster.call.__doc__ or "").partition("Raises:")[2])
    assert len(raised) > 4
    for name in raised:
        assert f"`{name}`" in PAGE or name == "UnknownDeploymentError"
